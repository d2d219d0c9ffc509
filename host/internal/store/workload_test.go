package store_test

import (
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

// with is a batch of one event of a kind, and nothing else.
func (w *workload) with(kind journal.Kind, payload string) store.Batch {
	w.n++
	ev, head := w.head.Next(fmt.Sprintf("0b4f5f6e-8f3c-4f55-9d0c-%012d", w.n), time.Now(), kind, payload)
	w.head = head
	return store.Batch{Task: w.mission, Events: []journal.Event{ev}}
}

// peek is the batch that next would give.
func (w *workload) peek() store.Batch {
	copied := *w
	return copied.next(time.Now())
}
