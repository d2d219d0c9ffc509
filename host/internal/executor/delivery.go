package executor

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

const (
	pollers    = 32   // read-backs at once
	pageSize   = 100  // outbox items read at once; the store's limit
	maxUnacked = 4096 // frames that may be on their way
	doneEvery  = 50 * time.Millisecond
	idlePoll   = time.Second // the outbox is looked at this often without a signal
)

// delivery carries the outbox over one connection. Every mission has a lane of
// its own; only lanes whose gate is open are written to straight from the
// outbox's pages, all others read their items when their turn comes, so that
// memory does not grow with what is pending.
type delivery struct {
	x        *Executor
	sock     *socket
	accepted chan struct{} // closed when serve has read the first frame
	first    sync.Once

	mu       sync.Mutex
	lanes    map[string]*lane
	due      laneHeap
	wake     chan struct{}
	cursor   atomic.Int64 // the last item the pump has seen
	caughtUp atomic.Bool  // the pump has been through the backlog

	fmu     sync.Mutex
	room    *sync.Cond
	unacked []sent  // in the order of frames
	done    []int64 // delivered, to be taken out of the outbox
	flush   chan struct{}
}

// sent is one frame on its way.
type sent struct {
	frame uint64
	id    int64 // outbox item that is delivered with it; 0: none
	lane  *lane // to be woken; nil: none
}

func newDelivery(x *Executor, sock *socket) *delivery {
	d := &delivery{
		x: x, sock: sock, accepted: make(chan struct{}), lanes: map[string]*lane{},
		wake: make(chan struct{}, 1), flush: make(chan struct{}, 1),
	}
	d.room = sync.NewCond(&d.fmu)
	return d
}

// run starts the delivery's goroutines; they end with the socket.
func (d *delivery) run(wg *sync.WaitGroup) {
	stop := context.AfterFunc(d.sock.ctx, func() {
		d.fmu.Lock()
		defer d.fmu.Unlock()
		d.room.Broadcast()
	})
	wg.Go(func() {
		defer stop()
		d.pump()
	})
	wg.Go(d.schedule)
	wg.Go(func() {
		for {
			select {
			case <-d.flush:
			case <-d.sock.ctx.Done():
				return
			}
			d.takeOut(d.sock.ctx)
			select {
			case <-time.After(doneEvery):
			case <-d.sock.ctx.Done():
				return
			}
		}
	})
}

// pump reads the outbox page by page and offers every item to its lane.
func (d *delivery) pump() {
	ctx, out := d.sock.ctx, d.x.opt.Outbox
	for ctx.Err() == nil {
		changed := out.OutboxChanged() // before the read: nothing is missed
		items, err := out.Outbox(ctx, d.cursor.Load(), pageSize)
		if err != nil {
			if ctx.Err() == nil {
				d.x.log.Warn("outbox cannot be read", "error", err)
			}
			changed = nil
		}
		for _, it := range items {
			d.offer(it)
			d.cursor.Store(it.ID)
		}
		if len(items) > 0 {
			continue
		}
		d.caughtUp.Store(d.caughtUp.Load() || err == nil)
		select {
		case <-changed:
		case <-time.After(idlePoll):
		case <-ctx.Done():
		}
	}
}

// offer writes an item if its lane is open and has written all before it, and
// else sees to it that the lane gets its turn.
func (d *delivery) offer(it store.OutboxItem) {
	d.mu.Lock()
	l := d.lane(it.MissionID)
	before := l.seen
	l.seen = max(l.seen, it.ID)
	d.mu.Unlock()
	// A lane that is locked is at work: it must not hold up the others.
	if !l.mu.TryLock() {
		d.plan(l, 0)
		return
	}
	defer l.mu.Unlock()
	switch {
	case it.ID <= l.written: // its lane was faster
	case l.gate == open && l.written >= before && l.ending == nil:
		_ = d.item(l, it, false) // an error ends the socket
	case l.gate == open:
		d.plan(l, 0)
	default:
		l.waiting.Store(l.gate == shut)
		d.planIdle(l)
	}
}

// acked runs when serve has read all frames up to a number.
func (d *delivery) acked(upTo uint64) {
	if upTo > 0 {
		d.first.Do(func() { close(d.accepted) })
	}
	var lanes []*lane
	d.fmu.Lock()
	n := 0
	for n < len(d.unacked) && d.unacked[n].frame <= upTo {
		if s := d.unacked[n]; s.id != 0 {
			d.done = append(d.done, s.id)
		}
		if l := d.unacked[n].lane; l != nil {
			lanes = append(lanes, l)
		}
		n++
	}
	d.unacked = append(d.unacked[:0], d.unacked[n:]...)
	d.room.Broadcast()
	d.fmu.Unlock()
	for _, l := range lanes {
		d.plan(l, 0)
	}
	d.flushSoon()
}

func (d *delivery) flushSoon() {
	select {
	case d.flush <- struct{}{}:
	default:
	}
}

// takeOut removes what is delivered from the outbox; what cannot be removed now
// stays on the list.
func (d *delivery) takeOut(ctx context.Context) {
	d.fmu.Lock()
	ids := d.done
	d.done = nil
	d.fmu.Unlock()
	if len(ids) == 0 {
		return
	}
	if err := d.x.opt.Outbox.OutboxDone(ctx, ids); err != nil {
		d.x.log.Warn("delivered events cannot be taken out of the outbox", "count", len(ids), "error", err)
		d.fmu.Lock()
		d.done = append(ids, d.done...)
		d.fmu.Unlock()
		d.flushSoon()
	}
}

// settle takes out what was delivered when the connection is over.
func (d *delivery) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), d.x.opt.Timings.CloseWait)
	defer cancel()
	d.takeOut(ctx)
}

// send writes a frame and puts it on the list of those on their way.
func (d *delivery) send(frame []byte, s sent, l *lane) error {
	d.fmu.Lock()
	for len(d.unacked) >= maxUnacked && d.sock.ctx.Err() == nil {
		d.room.Wait()
	}
	d.fmu.Unlock()
	return d.sock.write(frame, func(n uint64) {
		s.frame = n
		if l != nil {
			l.frame = n // its lock is held
		}
		d.fmu.Lock()
		d.unacked = append(d.unacked, s)
		d.fmu.Unlock()
	})
}

// event sends an event of the link's own.
func (d *delivery) event(event, missionID string, data any) error {
	frame, err := d.x.frame(event, missionID, d.x.opt.Now(), data)
	if err != nil {
		return err
	}
	return d.send(frame, sent{}, nil)
}

// wire sends an event that restates a mission; l, if given, is woken when serve
// has read it.
func (d *delivery) wire(missionID string, e mission.WireEvent, l *lane) error {
	frame, err := d.x.frame(e.Event, missionID, e.TS, e.Data)
	if err != nil {
		return err
	}
	return d.send(frame, sent{lane: l}, l)
}

// schedule runs the steps of lanes when they are due, pollers at once.
func (d *delivery) schedule() {
	var g errgroup.Group
	g.SetLimit(pollers)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for d.sock.ctx.Err() == nil {
		l, wait := d.next()
		if l != nil {
			g.Go(func() error { // waits for a free poller
				d.step(l)
				d.finished(l)
				return nil
			})
			continue
		}
		timer.Reset(wait)
		select {
		case <-d.wake:
		case <-timer.C:
		case <-d.sock.ctx.Done():
		}
	}
	_ = g.Wait()
}

// idle says that all that serve takes has been delivered.
func (d *delivery) idle(ctx context.Context) bool {
	more, err := d.x.opt.Outbox.Outbox(ctx, d.cursor.Load(), 1)
	if err != nil || len(more) > 0 || !d.caughtUp.Load() {
		return false
	}
	d.fmu.Lock()
	busy := len(d.unacked)+len(d.done) > 0
	d.fmu.Unlock()
	if busy {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lanes {
		if l.running || l.waiting.Load() {
			return false
		}
	}
	return true
}

// next pops a lane that is due, or says how long to wait.
func (d *delivery) next() (*lane, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.due) > 0 {
		wait := time.Until(d.due[0].at)
		if wait > 0 {
			return nil, wait
		}
		l := heap.Pop(&d.due).(*lane)
		if l.running {
			l.again = true
			continue
		}
		l.running = true
		return l, 0
	}
	return nil, time.Hour
}
