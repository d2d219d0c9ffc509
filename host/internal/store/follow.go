package store

import (
	"sync"

	"modernc.org/sqlite"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// pagesWritten counts the pages that a connection wrote.
const pagesWritten = sqlite.DBStatusCacheWrite

// broadcast tells everybody who waits. It costs the writer a lock and, while
// nobody waits, nothing more.
type broadcast struct {
	mu     sync.Mutex
	ch     chan struct{} // nil: nobody waits
	closed bool
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
		if b.closed {
			close(b.ch)
		}
	}
	return b.ch
}

func (b *broadcast) fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil && !b.closed {
		close(b.ch)
		b.ch = nil
	}
}

func (b *broadcast) close() {
	b.fire()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.ch = true, nil
}

// follow wakes those who follow one task.
type follow struct {
	mu     sync.Mutex
	tasks  map[string]chan struct{}
	closed bool
}

func (f *follow) fire(hs []journal.NewHead) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.tasks) == 0 || len(hs) == 0 {
		return
	}
	if ch := f.tasks[anyTask]; ch != nil {
		close(ch)
		delete(f.tasks, anyTask)
	}
	for i := range hs {
		if ch := f.tasks[hs[i].TaskID]; ch != nil {
			close(ch)
			delete(f.tasks, hs[i].TaskID)
		}
	}
}

func (f *follow) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ch := range f.tasks {
		close(ch)
	}
	f.tasks, f.closed = map[string]chan struct{}{}, true
}

// EventsChanged gives a channel that is closed at the next commit of events to
// the task, or when the store is closed. Ask for it before reading, so that
// nothing is missed between the two.
func (s *Store) EventsChanged(task string) <-chan struct{} {
	f := &s.follow
	f.mu.Lock()
	defer f.mu.Unlock()
	ch := f.tasks[task]
	if ch == nil {
		ch = make(chan struct{})
		if f.closed {
			close(ch)
			return ch
		}
		f.tasks[task] = ch
	}
	return ch
}

// OutboxChanged gives a channel that is closed at the next commit that adds
// outbox items, or when the store is closed.
func (s *Store) OutboxChanged() <-chan struct{} { return s.outbox.wait() }
