package store

import "github.com/airlock-host/airlock/host/internal/journal"

// taskState is what the writer must know of a task to check a batch and to
// choose the cheapest way of writing it.
type taskState struct {
	no     int64 // 0: the task has no row yet
	head   journal.Head
	row    bool // there is a mission row
	origin string
	agent  string
	state  string
	ended  bool // the mission is terminal
	// written: the row was inserted in the open transaction.
	written bool
}

// task is one cached task. staged runs ahead of known inside a transaction.
type task struct {
	id      string
	known   taskState // as committed
	staged  taskState
	mission *MissionRow // to be written with this transaction
	dirty   bool        // in the transaction's list
}

// cacheMax bounds the cache; a task that is not in it is read again. 8192 take
// about 4 MiB.
const cacheMax = 8192

// cache holds the tasks that the writer met. Its memory is bounded; that it
// may forget any task changes nothing but the time of the next commit.
type cache struct {
	tasks map[string]*task
	max   int
}

// trim forgets tasks, those that are over first. Only between transactions.
func (c *cache) trim() {
	if len(c.tasks) <= c.max {
		return
	}
	for _, overOnly := range []bool{true, false} {
		for id, t := range c.tasks {
			if len(c.tasks) <= c.max*3/4 {
				return
			}
			if !overOnly || t.known.ended {
				delete(c.tasks, id)
			}
		}
	}
}
