package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

const (
	freezeWait    = time.Second // then the kill comes without it
	cellLatchWait = 500 * time.Millisecond
)

// stopWish is a stop whose latch is set.
type stopWish struct {
	stop  mission.Stop
	at    time.Time // when the latch held
	first []Rung    // before the journal was asked
	// held is closed when the stop is where it survives the host.
	held chan struct{}
	once sync.Once // one caller puts it there
}

// unwritten says that the mission's stop is not this one yet, which is to come:
// nobody has stopped it before.
func (w *stopWish) unwritten(m *mission.Mission) bool {
	return w != nil && (!m.Latched() || m.CameBackStopped() && m.Stop.ID != w.stop.ID)
}

// stopWith latches first and writes then (seed 003): the latch in memory, which
// also cuts the mission off at the host; then its tombstone and the latch in the
// cell agent; then the journal, with the facts that belong before the stop.
func (e *Engine) stopWith(a *actor, s mission.Stop, first ...mission.Fact) error {
	if a.quarantined.Load() != nil {
		return quarantinedError(a)
	}
	own, err := e.latch(a, s)
	if err != nil {
		return err
	}
	m := a.state()
	w := a.stopWish.Load()
	if w == nil { // a restart comes to its end
		w = own
	}
	e.holdOnce(a, m, w)
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		w := a.stopWish.Load()
		if w == nil || !a.latch.Load() {
			w = own // it came back stopped, or was restarted meanwhile
		}
		facts, err := m.StopNow(w.stop)
		if len(facts) > 0 {
			a.stopWish.Store(w)
			facts = append(first, facts...)
		}
		return facts, err
	}, nil)
	if now := a.settled(); now.Latched() {
		a.setLatch() // a restart may have cleared it
		if w := a.stopWish.Load(); w != nil {
			e.holdOnce(a, m, w)
		}
	}
	if m.Harness {
		e.goRun(func(ctx context.Context) {
			if !e.ladder(ctx, a) && ctx.Err() == nil { // a restart came in between: the stop holds
				_ = e.stopWith(a, s)
			}
		})
	}
	return err
}

// latch sets the stop latch, in memory; it never waits. It gives the caller's own
// wish, which holds unless an older one does.
func (e *Engine) latch(a *actor, s mission.Stop) (*stopWish, error) {
	if m := a.state(); m.Terminal() {
		return nil, fmt.Errorf("stop: the mission is %s: %w", m.State, mission.ErrIllegal)
	}
	s.ID = newUUID()
	w := &stopWish{stop: s, at: e.now().UTC(), held: make(chan struct{})}
	if !a.latch.Load() && a.stopWish.CompareAndSwap(nil, w) {
		a.setLatch()
	} else if now := a.state(); now.CameBackStopped() && s.By == "operator" {
		// Nobody has stopped it before: the stop is this one's.
		if old := a.stopWish.Load(); old == nil || old.stop.ID == now.Stop.ID {
			a.stopWish.CompareAndSwap(old, w)
		}
	}
	return w, nil
}

// holdOnce is hold, by one caller.
func (e *Engine) holdOnce(a *actor, m *mission.Mission, w *stopWish) {
	w.once.Do(func() {
		w.first = e.hold(a, m, w)
		close(w.held)
	})
}

func quarantinedError(a *actor) error {
	return fmt.Errorf("the task is quarantined, nothing of it is dispatched and its cell is frozen (%s): %w", *a.quarantined.Load(), ErrConflict)
}

// Stopping is the stop whose latch is set, journalled or not, and since when it
// holds. It never waits.
func (e *Engine) Stopping(id string) (mission.Stop, time.Time, bool) {
	a := e.actor(id)
	if a == nil {
		return mission.Stop{}, time.Time{}, false
	}
	w := a.stopWish.Load()
	if w == nil {
		return mission.Stop{}, time.Time{}, false
	}
	return w.stop, w.at, true
}

// hold puts the stop where it survives the host: beside the heads, and in the
// cell agent.
func (e *Engine) hold(a *actor, m *mission.Mission, w *stopWish) []Rung {
	latched := Rung{Name: "latch", Result: "done", At: w.at}
	a.climbing.begin(w.stop.ID, latched)
	l := ladderLog{now: e.now, live: &a.climbing, rungs: []Rung{latched}}
	var wg sync.WaitGroup
	inCell := ladderLog{now: e.now, live: &a.climbing}
	if s := a.sess.Load(); s != nil && !m.Paused {
		wg.Go(func() {
			inCell.climb("cell_latch", func() string {
				ctx, cancel := context.WithTimeout(context.Background(), cellLatchWait)
				defer cancel()
				return word(s.conn.Load().Latch(ctx, m.Epoch+1))
			})
		})
	}
	l.climb("tombstone", func() string { return word(e.bury(a.id, w.stop, w.at)) })
	wg.Wait()
	return append(l.rungs, inCell.rungs...)
}

// ladder ends a stopped mission: what the host carries is cut already; then the
// cell is frozen, and killed while the issuers are asked; then the proof. It
// insists until nothing of the mission runs; what cannot be proven is said in
// the receipt and never claimed.
//
// It says whether the task is stopped.
func (e *Engine) ladder(ctx context.Context, a *actor) bool {
	a.ladderMu.Lock()
	defer a.ladderMu.Unlock()
	if now := a.settled(); !a.latch.Load() || a.quarantined.Load() != nil || a.stopWish.Load() == nil && !now.Latched() {
		return a.quarantined.Load() != nil || now.Terminal() // else restarted meanwhile
	}
	effective := e.now().UTC()
	l := &ladderLog{now: e.now, live: &a.climbing}
	if w := a.stopWish.Load(); w != nil {
		select {
		case <-w.held:
		case <-ctx.Done():
			return true
		}
		effective, l.rungs = w.at, append(l.rungs, w.first...)
	}
	l.climb("cut", func() string { e.cutOff(a.id); return "done" })
	if r := a.interrupted.Load(); r != nil {
		l.rungs = append(l.rungs, *r)
	}
	e.requestCancel(a)
	proof, err := e.endProcesses(ctx, a, l)
	if err != nil {
		return true // the engine closes; the latch is in the journal or beside the heads
	}
	stopped := true
	err = a.insist(func(m *mission.Mission) ([]mission.Fact, error) {
		if m.Terminal() {
			return nil, nil
		}
		var facts []mission.Fact
		after := *m
		w := a.stopWish.Load()
		if w.unwritten(m) || !m.Latched() { // the latch held but could not be written before
			if w == nil {
				stopped = false // restarted meanwhile
				return nil, nil
			}
			first, err := m.StopNow(w.stop)
			if err != nil {
				return nil, err
			}
			facts = first
			after.Apply(first[0], effective)
		}
		text, err := json.Marshal(e.newReceipt(a, &after, proof, l.rungs, effective))
		if err != nil {
			return nil, err
		}
		done, err := after.StopDone(text)
		return append(facts, done...), err
	}, nil)
	switch {
	case err == nil:
		e.unbury(a.id)
	case ctx.Err() == nil && !errors.Is(err, mission.ErrIllegal):
		a.log().Error("stopped mission could not be ended", "error", err)
	}
	return stopped
}

// requestCancel asks the calls that were admitted before the stop to end; it is
// a request and never a proof (D4).
func (e *Engine) requestCancel(a *actor) {
	err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		var facts []mission.Fact
		for _, i := range m.Task.Running {
			if i.CancelAt == nil && i.Boundary != mission.Launch && m.Stop != nil {
				facts = append(facts, governance.CancelRequested{V: 1, InvocationID: i.ID, StopID: m.Stop.ID, Accepted: true})
			}
		}
		return facts, nil
	}, nil)
	if err != nil {
		a.audit(fmt.Sprintf("the requests to cancel could not be journalled: %v", err))
	}
}

// endProcesses freezes and kills, and takes access back meanwhile.
func (e *Engine) endProcesses(ctx context.Context, a *actor, l *ladderLog) (isolationProof, error) {
	m := a.settled()
	stopID, reason := endID(&m), "stopped"
	if m.Stop != nil {
		stopID, reason = m.Stop.ID, m.Stop.Reason
	} else if w := a.stopWish.Load(); w != nil {
		stopID, reason = w.stop.ID, w.stop.Reason
	}
	proof := isolationProof{Action: "none", Result: "nothing_started", Detail: "no cell was asked for", At: e.now().UTC()}
	if m.Harness {
		proof.Result, proof.Detail = "outside", "the agent runs outside of any cell: it is granted no dispatch any more; its process is not ended"
	}
	c := a.cell()
	if c == nil && a.quarantined.Load() != nil && (m.Phase == mission.PhaseStarting || m.Phase == mission.PhaseLive) && !m.Harness {
		proof.Result, proof.Detail = unproven, fmt.Sprintf("the store knows nothing of its cell (%s): whether it runs is not known; airlock status lists cells that nobody answers for", m.CellID)
	}
	if c != nil && c.State == cells.StateParked {
		proof.Driver, proof.Result, proof.Detail = c.Instance, "no_session", "no session ran: the cell had been ended before, while the mission waited"
		c = nil
	}
	if c != nil {
		e.quieten(ctx, a, c, l)
	}
	var wg sync.WaitGroup
	revoked := ladderLog{now: e.now, live: &a.climbing}
	wg.Go(func() {
		revoked.climb("revoke", func() string {
			e.revoke(ctx, a, stopID, reason, revokeFirst)
			m := a.settled()
			access, _ := e.access(a, &m)
			return access
		})
	})
	var err error
	if c != nil {
		l.climb("kill", func() string {
			if proof, err = e.killCell(ctx, a, c); err != nil {
				return word(err)
			}
			return proof.Result
		})
	}
	wg.Wait()
	l.rungs = append(l.rungs, revoked.rungs...)
	return proof, err
}

// quieten freezes the cell, so that nothing happens any more while it is killed
// and the issuers are asked.
func (e *Engine) quieten(ctx context.Context, a *actor, c *cells.Cell, l *ladderLog) {
	if len(c.Ref) == 0 {
		return
	}
	l.climb("freeze", func() string {
		freezeCtx, cancel := context.WithTimeout(ctx, freezeWait)
		defer cancel()
		err := e.opts.Cells.Freeze(freezeCtx, c)
		if err != nil { // then the agent itself kills what it can, until the driver does
			e.killInside(ctx, a)
		}
		return word(err)
	})
	if s := a.sess.Load(); s != nil {
		s.conn.Load().Close()
	}
}

// killInside latches the cell agent and has it kill the session; a frozen or
// silent agent is passed over, since the driver's kill comes next.
func (e *Engine) killInside(ctx context.Context, a *actor) {
	s, m := a.sess.Load(), a.state()
	if s == nil || m.Paused {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn := s.conn.Load()
	if err := conn.Latch(ctx, m.Epoch); err != nil {
		return
	}
	_ = conn.Kill(ctx, "", 0, 0)
}

// killCell asks the driver until it answers.
func (e *Engine) killCell(ctx context.Context, a *actor, c *cells.Cell) (isolationProof, error) {
	pause := 100 * time.Millisecond
	for {
		proof, err := e.tryKill(ctx, c)
		if err == nil {
			return proof, nil
		}
		a.log().Error("cell could not be stopped yet", "cell", c.ID, "error", err)
		if wait(ctx, pause) != nil {
			return isolationProof{}, ctx.Err()
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// tryKill asks the driver once. A cell whose making was cut short may leave
// nothing to prove by: then the driver removes what there is of it, and no
// session of the mission was ever started in it.
func (e *Engine) tryKill(ctx context.Context, c *cells.Cell) (isolationProof, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	got, err := e.opts.Cells.Stop(ctx, c, 0)
	if err != nil {
		return isolationProof{}, err
	}
	proof := isolationProof{Driver: c.Instance, Action: "kill", Result: proofWord(got), Detail: got.GetDetail(), At: e.now().UTC()}
	if proof.Result != unproven || !c.Unmade() {
		return proof, nil
	}
	if err := e.opts.Cells.Unmake(ctx, c); err != nil {
		return isolationProof{}, err
	}
	proof.Result, proof.At = "nothing_started", e.now().UTC()
	proof.Detail = "the cell was being made: no session was started in it, and its driver has removed what it had begun"
	if c.Worked {
		proof.Result, proof.Detail = "no_session", "the cell was being made again: no session ran, and its driver has removed what it had begun"
	}
	return proof, nil
}
