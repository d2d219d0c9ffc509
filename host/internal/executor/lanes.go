package executor

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-host/airlock/host/internal/store"
)

// gate says whether serve was seen to know a mission on this connection.
type gate int

const (
	shut  gate = iota // not yet: nothing was sent
	blind             // not yet, and what was pending was sent once all the same
	open              // yes
)

// lane is what a connection knows of one mission.
type lane struct {
	id string

	// Guarded by delivery.mu.
	seen    int64 // newest item the pump has seen
	at      time.Time
	index   int // in the heap; -1: not planned
	running bool
	again   bool // planned while running
	// until is when watching the mission's state may end; zero: not watched.
	until  time.Time
	checks int

	// waiting says that the lane has something that serve may still take.
	waiting atomic.Bool

	mu      sync.Mutex
	gate    gate
	since   time.Time // first read-back
	polls   int
	written int64             // newest item written on this connection
	frame   uint64            // newest frame of this lane
	ending  *store.OutboxItem // the terminal item, written and not yet confirmed
	resends int
	resent  time.Time // not to be sent again before
}

// lane finds or makes a lane; d.mu is held.
func (d *delivery) lane(missionID string) *lane {
	l := d.lanes[missionID]
	if l == nil {
		l = &lane{id: missionID, index: -1}
		d.lanes[missionID] = l
	}
	return l
}

// plan gives a lane a turn after a wait, or sooner if it had one planned.
func (d *delivery) plan(l *lane, after time.Duration) {
	at := time.Now().Add(after)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.planAt(l, at)
}

// planIdle gives a lane a turn unless it has one.
func (d *delivery) planIdle(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case l.running: // it may have looked before there was something to see
		l.again = true
	case l.index < 0:
		d.planAt(l, time.Now())
	}
}

func (d *delivery) planAt(l *lane, at time.Time) {
	switch {
	case l.index < 0:
		l.at = at
		heap.Push(&d.due, l)
	case at.Before(l.at):
		l.at = at
		heap.Fix(&d.due, l.index)
	default:
		return
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// finished ends a lane's turn.
func (d *delivery) finished(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.running = false
	if l.again {
		l.again = false
		d.planAt(l, time.Now())
	}
}

// asked is what is wanted of a lane: the newest item that the pump has seen, and
// until when its state is watched.
func (d *delivery) asked(l *lane) (seen int64, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return l.seen, l.until
}

// drop forgets a lane that has nothing left to do; l.mu is held.
func (d *delivery) drop(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.seen > l.written {
		d.planAt(l, time.Now())
		return
	}
	if l.index >= 0 {
		heap.Remove(&d.due, l.index)
	}
	if d.lanes[l.id] == l {
		delete(d.lanes, l.id)
	}
}

// restate has a lane compare serve's state with the true one until a time, and
// for as long as they differ.
func (d *delivery) restate(missionID string, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lane(missionID)
	if l.until.Before(until) {
		l.until = until
	}
	l.checks = 0
	d.planAt(l, time.Now())
}

// laneHeap orders lanes by their turn.
type laneHeap []*lane

func (h laneHeap) Len() int           { return len(h) }
func (h laneHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h laneHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *laneHeap) Push(v any) {
	l := v.(*lane)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *laneHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.index = -1
	return l
}
