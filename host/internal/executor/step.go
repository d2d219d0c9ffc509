package executor

import (
	"errors"
	"net/http"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/store"
)

// unackedPoll is how soon a lane looks again whether serve has read its frames.
const unackedPoll = 20 * time.Millisecond

// step gives a lane one turn: write what is pending, then at most one read-back
// and what follows from it.
func (d *delivery) step(l *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		seen, _ := d.asked(l)
		l.waiting.Store(l.ending != nil || (l.gate != blind && seen > l.written))
	}()
	if l.gate == open && !d.drain(l, false) {
		return
	}
	seen, until := d.asked(l)
	watched := !until.IsZero()
	if !watched && l.ending == nil && (l.gate == open || l.gate == shut && seen <= l.written) {
		return // a blind lane goes on asking: what it sent may have been lost
	}
	if l.gate == open && l.frame > d.sock.acked.Load() {
		d.plan(l, unackedPoll) // a read-back would show the time before the frame
		return
	}
	if l.since.IsZero() {
		l.since = time.Now()
	}
	before := l.frame
	l.mu.Unlock() // the pump may write to an open lane meanwhile
	got, err := d.x.serve.mission(d.sock.ctx, d.x.opt.Timings.ReadBackWait, l.id)
	l.mu.Lock()
	switch {
	case d.sock.ctx.Err() != nil:
	case err != nil:
		d.unknown(l, err)
	case l.gate != open:
		d.open(l, got)
	case l.ending != nil:
		d.confirm(l, got)
	case l.frame != before:
		d.plan(l, unackedPoll)
	default:
		d.compare(l, got)
	}
}

// open opens a lane's gate: serve knows the mission.
func (d *delivery) open(l *lane, got known) {
	items, err := d.x.opt.Outbox.OutboxOf(d.sock.ctx, l.id)
	if err != nil {
		d.plan(l, time.Second)
		return
	}
	l.gate, l.written, l.polls = open, 0, 0 // what was sent blind may have been lost
	if n := len(items); n > 0 && shows(got, items[n-1]) {
		// It was all delivered before, and only the record of it was lost. A
		// replay would let events follow a terminal one.
		l.written = items[n-1].ID
		d.delivered(items)
		d.ended(l)
		return
	}
	d.drain(l, false)
	d.plan(l, 0)
}

// shows says that serve has handled exactly this terminal event.
func shows(got known, it store.OutboxItem) bool {
	if !it.Terminal || got.State != stateAfter(it.Event) {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, got.CompletedAt)
	return err == nil && wireTime(at) == wireTime(it.TS)
}

// drain writes a lane's pending items. False: not all of them could be written,
// and another turn is planned if there can be one.
func (d *delivery) drain(l *lane, keep bool) bool {
	for {
		seen, _ := d.asked(l)
		if seen <= l.written {
			return true
		}
		items, err := d.x.opt.Outbox.OutboxOf(d.sock.ctx, l.id)
		if err != nil {
			d.plan(l, time.Second)
			return false
		}
		for _, it := range items {
			if it.ID <= l.written {
				continue
			}
			if err := d.item(l, it, keep); err != nil {
				return false
			}
		}
		l.written = max(l.written, seen) // some may be gone from the outbox
	}
}

// item writes one item; l.mu is held. Kept items stay in the outbox whatever
// happens.
func (d *delivery) item(l *lane, it store.OutboxItem, keep bool) error {
	if l.ending != nil {
		d.x.log.Error("event after a terminal one is not sent", "mission", it.MissionID, "event", it.Event)
		l.written = it.ID
		d.delivered([]store.OutboxItem{it})
		return nil
	}
	frame, err := d.x.itemFrame(it)
	if err != nil {
		d.x.log.Error("event cannot be encoded and is dropped", "mission", it.MissionID, "event", it.Event, "error", err)
		l.written = it.ID
		d.delivered([]store.OutboxItem{it})
		return nil
	}
	s := sent{id: it.ID}
	switch {
	case keep:
		s.id = 0
	case it.Terminal:
		s = sent{lane: l} // it is delivered when the read-back says so
	}
	if err := d.send(frame, s, l); err != nil {
		return err
	}
	l.written = it.ID
	if it.Terminal && !keep {
		l.ending, l.resends, l.resent = &it, 0, time.Time{}
		l.waiting.Store(true)
	}
	return nil
}

// delivered puts items on the list of those to be taken out of the outbox.
func (d *delivery) delivered(items []store.OutboxItem) {
	d.fmu.Lock()
	for _, it := range items {
		d.done = append(d.done, it.ID)
	}
	d.fmu.Unlock()
	d.flushSoon()
}

// confirm holds a terminal event against the read-back that followed it.
func (d *delivery) confirm(l *lane, got known) {
	if got.State == stateAfter(l.ending.Event) {
		d.delivered([]store.OutboxItem{*l.ending})
		l.ending = nil
		d.ended(l)
		return
	}
	if wait := time.Until(l.resent); wait > 0 {
		d.plan(l, wait)
		return
	}
	d.x.log.Warn("terminal event did not take and is sent again", "mission", l.id, "event", l.ending.Event, "shown", got.State)
	l.resends++
	l.resent = time.Now().Add(min(50*time.Millisecond<<min(l.resends, 10), 30*time.Second))
	frame, err := d.x.itemFrame(*l.ending)
	if err == nil {
		_ = d.send(frame, sent{lane: l}, l)
	}
}

// ended is the end of a lane whose mission has ended, unless it is watched.
func (d *delivery) ended(l *lane) {
	if _, until := d.asked(l); until.IsZero() {
		d.drop(l)
		return
	}
	d.plan(l, 0)
}

// unknown deals with a read-back that failed: serve does not know the mission
// (404), or does not say.
func (d *delivery) unknown(l *lane, err error) {
	gone := isStatus(err, http.StatusNotFound)
	t := d.x.opt.Timings
	seen, until := d.asked(l)
	pending := seen > l.written
	switch {
	case l.gate == blind:
		if gone && d.expire(l) {
			return
		}
		d.plan(l, min(time.Second<<min(l.polls, 20), t.SlowPollMax))
		l.polls++
	case l.gate == open && l.ending != nil && gone:
		// Serve forgot it on a connection that still stands.
		l.gate, l.ending, l.polls, l.written = blind, nil, 0, 0
		d.plan(l, time.Second)
	case l.gate == open && l.ending != nil:
		d.plan(l, 250*time.Millisecond)
	case l.gate == shut && pending && time.Since(l.since) >= t.GateWait:
		d.x.log.Warn("orchestrator does not show the mission; its events are sent once and kept", "mission", l.id, "error", err)
		if d.drain(l, true) {
			l.gate, l.polls = blind, 0
			d.unwatch(l)
			d.plan(l, time.Second)
		}
	case l.gate == shut && pending:
		d.plan(l, time.Until(l.since.Add(gatePoll(l.polls+1))))
		l.polls++
	case time.Now().Before(until):
		d.planCheck(l)
	default:
		d.unwatch(l)
	}
}

// gatePoll is when the nth read-back of a shut gate happens after the first
// (rulings 51): 0, 2, 5, 10, 25 ms, then every 25 to 250 ms.
func gatePoll(n int) time.Duration {
	first := []int{0, 2, 5, 10, 25, 50, 100, 200, 400}
	if n < len(first) {
		return time.Duration(first[n]) * time.Millisecond
	}
	return time.Duration(400+250*(n-len(first)+1)) * time.Millisecond
}

// expire marks the events of a mission that serve has not known for too long
// (rulings 4).
func (d *delivery) expire(l *lane) bool {
	items, err := d.x.opt.Outbox.OutboxOf(d.sock.ctx, l.id)
	if err != nil || len(items) == 0 || d.x.opt.Now().Sub(items[len(items)-1].TS) < d.x.opt.Timings.KeepForgotten {
		return false
	}
	why := "the orchestrator does not know this mission (404) and did not for " + d.x.opt.Timings.KeepForgotten.String()
	if err := d.x.opt.Outbox.OutboxMarkUndeliverable(d.sock.ctx, l.id, why); err != nil {
		return false
	}
	d.x.log.Warn("events are undeliverable", "mission", l.id, "count", len(items))
	l.written = max(l.written, items[len(items)-1].ID)
	d.drop(l)
	return true
}

// compare holds serve's state of a mission against the true one and sends the
// true one where they differ.
func (d *delivery) compare(l *lane, got known) {
	if !d.caughtUp.Load() {
		d.plan(l, unackedPoll)
		return
	}
	state, err := d.x.opt.Engine.TrueState(d.sock.ctx, l.id)
	if errors.Is(err, engine.ErrNotFound) {
		d.unwatch(l)
		return
	}
	items, err2 := d.x.opt.Outbox.OutboxOf(d.sock.ctx, l.id)
	if err != nil || err2 != nil {
		d.plan(l, time.Second)
		return
	}
	if n := len(items); n > 0 && items[n-1].ID > l.written {
		d.planCheck(l) // the outbox itself brings what is new
		return
	}
	_, until := d.asked(l)
	switch {
	case got.State != stateAfter(state.Event):
		d.x.log.Debug("state is restated", "mission", l.id, "shown", got.State, "event", state.Event)
		_ = d.wire(l.id, state, l)
		d.planCheck(l)
	case time.Now().Before(until):
		d.planCheck(l)
	default:
		d.unwatch(l)
		if terminalEvent(state.Event) {
			d.drop(l)
		}
	}
}

// planCheck plans the next comparison, at growing distances.
func (d *delivery) planCheck(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.planAt(l, time.Now().Add(min(10*time.Millisecond<<min(l.checks, 10), time.Second)))
	l.checks++
}

func (d *delivery) unwatch(l *lane) {
	d.mu.Lock()
	l.until = time.Time{}
	d.mu.Unlock()
	d.x.restated(l.id)
}
