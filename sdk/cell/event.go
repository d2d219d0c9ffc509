package cell

import (
	"sync"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// Event is something that the agent reports. Exactly one field is set.
type Event struct {
	// Exited: a session's own process has ended; all of its output was read.
	Exited *cellv1.Exited
	// Waiting: a session is blocked reading its terminal.
	Waiting *cellv1.Waiting
	// Ask: a process in the cell asks a human.
	Ask *cellv1.Ask
	// AskWithdrawn: the asking process is gone.
	AskWithdrawn *cellv1.AskWithdrawn
}

func eventOf(f *cellv1.AgentFrame) (Event, bool) {
	e := Event{Exited: f.GetExited(), Waiting: f.GetWaiting(), Ask: f.GetAsk(), AskWithdrawn: f.GetAskWithdrawn()}
	return e, e != Event{}
}

// eventQueue takes events without ever waiting for their reader: a reader that
// is stuck must not hold up replies. It is unbounded here; the agent bounds
// what it sends.
type eventQueue struct {
	ch chan Event

	mu      sync.Mutex
	waiting []Event
	more    chan struct{}
}

func newEventQueue() *eventQueue {
	return &eventQueue{ch: make(chan Event, 16), more: make(chan struct{}, 1)}
}

func (q *eventQueue) push(e Event) {
	q.mu.Lock()
	q.waiting = append(q.waiting, e)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// run hands events over until the connection is done, then closes the channel.
func (q *eventQueue) run(done <-chan struct{}) {
	defer close(q.ch)
	for {
		q.mu.Lock()
		batch := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		for _, e := range batch {
			select {
			case q.ch <- e:
			case <-done:
				return
			}
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-q.more:
		case <-done:
			return
		}
	}
}
