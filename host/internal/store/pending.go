package store

import (
	"database/sql/driver"
	"sync"
)

// pending knows, for each task that has items in the outbox, between which ids
// they are. It is held in memory because the outbox is usually all but empty,
// while an index on disk would cost a page for each task in every commit.
type pending struct {
	mu    sync.Mutex
	tasks map[int64]span
	items int64
}

// span is a range of ids, with how many of them are the task's.
type span struct{ first, last, n int64 }

// add notes an item; ids only grow.
func (p *pending) add(no, id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sp, ok := p.tasks[no]
	if !ok {
		sp.first = id
	}
	sp.last = id
	sp.n++
	p.tasks[no] = sp
	p.items++
}

// drop forgets n items of a task.
func (p *pending) drop(no, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sp, ok := p.tasks[no]
	if !ok {
		return
	}
	p.items -= min(n, sp.n)
	if sp.n -= n; sp.n > 0 {
		p.tasks[no] = sp
	} else {
		delete(p.tasks, no)
	}
}

func (p *pending) of(no int64) (span, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sp, ok := p.tasks[no]
	return sp, ok
}

func (p *pending) count() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.items
}

// loadPending reads the outbox once, at the start.
func (w *writer) loadPending() error {
	st, err := w.c.prepareOnce("SELECT id, task_no FROM outbox ORDER BY id", 0)
	if err != nil {
		return err
	}
	defer st.s.Close()
	return st.each(func(v []driver.Value) {
		id, _ := v[0].(int64)
		no, _ := v[1].(int64)
		w.s.pending.add(no, id)
	})
}
