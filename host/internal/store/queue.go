package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// request is one caller's wish. The writer owns it from take to answer.
type request interface {
	// apply checks the request and stages what it changes. It is called again
	// after a roll-back. An error is this request's own and leaves nothing
	// staged, unless it is SQLite's.
	apply(w *writer) error
	// mayUseReserve says whether it may use the ballast.
	mayUseReserve() bool
	base() *ticket
}

// ticket is how a caller waits.
type ticket struct {
	state atomic.Int32
	err   error
	done  chan struct{}
}

// States of a ticket: who gets there first, the writer or the caller who does
// not want it any more.
const (
	waiting int32 = iota
	taken
	withdrawn
)

func (t *ticket) base() *ticket { return t }

// queue is unbounded by itself: each caller waits for its one request, so it
// is as long as there are callers.
type queue struct {
	mu     sync.Mutex
	reqs   []request
	closed bool
	wake   chan struct{} // capacity 1
}

// do hands a request to the writer and waits for the answer.
func (w *writer) do(ctx context.Context, r request) error {
	t := r.base()
	t.done = make(chan struct{})
	if err := ctx.Err(); err != nil {
		return err
	}
	w.q.mu.Lock()
	if w.q.closed {
		w.q.mu.Unlock()
		return ErrClosed
	}
	w.q.reqs = append(w.q.reqs, r)
	first := len(w.q.reqs) == 1
	w.q.mu.Unlock()
	if first {
		select {
		case w.q.wake <- struct{}{}:
		default:
		}
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		if t.state.CompareAndSwap(waiting, withdrawn) {
			return ctx.Err()
		}
		<-t.done
	}
	return t.err
}

// take waits for requests and gives all there are. idle is called, again and
// again, while there are none.
func (w *writer) take(idle time.Duration, onIdle func()) (reqs []request, open bool) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		w.q.mu.Lock()
		reqs, w.q.reqs = w.q.reqs, w.spare[:0]
		w.spare = nil
		closed := w.q.closed
		w.q.mu.Unlock()
		if len(reqs) > 0 || closed {
			return reqs, !closed
		}
		w.spare = reqs
		select {
		case <-w.q.wake:
		case <-timer.C:
			onIdle()
			timer.Reset(idle)
		}
	}
}

// len is how many requests wait.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.reqs)
}

func (w *writer) isClosed() bool {
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	return w.q.closed
}
