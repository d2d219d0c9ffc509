package driver

import (
	"context"
	"sync"
)

// locks is one lock per cell, taken with a deadline.
type locks struct {
	mu sync.Mutex
	m  map[string]*lock
}

type lock struct {
	held chan struct{} // holds one token while taken
	uses int
}

func (l *locks) take(ctx context.Context, id string) (release func(), err error) {
	l.mu.Lock()
	if l.m == nil {
		l.m = map[string]*lock{}
	}
	e := l.m[id]
	if e == nil {
		e = &lock{held: make(chan struct{}, 1)}
		l.m[id] = e
	}
	e.uses++
	l.mu.Unlock()
	drop := func() {
		l.mu.Lock()
		if e.uses--; e.uses == 0 {
			delete(l.m, id)
		}
		l.mu.Unlock()
	}
	select {
	case e.held <- struct{}{}:
	case <-ctx.Done():
		drop()
		return nil, ctx.Err()
	}
	release = func() { <-e.held; drop() }
	if err := ctx.Err(); err != nil { // given up meanwhile: whoever came first may count on it
		release()
		return nil, err
	}
	return release, nil
}
