package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// freezeTimeout bounds one freeze or thaw.
const freezeTimeout = 10 * time.Second

// living finds a mission that can still be operated.
func (e *Engine) living(ctx context.Context, id string) (*actor, error) {
	if a := e.actor(id); a != nil && a.state().JournalUUID != "" {
		return a, nil
	}
	r, err := e.opts.Store.Mission(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("mission %q: %w", id, ErrNotFound)
	case err != nil:
		return nil, unavailable(err)
	}
	return nil, fmt.Errorf("mission %q has ended (%s): %w", id, r.State, ErrConflict)
}

// task is living for those who speak for a task: one that has ended is refused
// with a code.
func (e *Engine) task(ctx context.Context, id string) (*actor, error) {
	a, err := e.living(ctx, id)
	if errors.Is(err, ErrConflict) {
		return nil, &governance.Refused{Code: governance.CodeTerminal, Detail: "the mission has ended"}
	}
	if err == nil && a.state().Terminal() {
		return nil, &governance.Refused{Code: governance.CodeTerminal, Detail: "the mission has ended"}
	}
	return a, err
}

// operated maps a refusal of the domain to the API's error.
func operated(err error) error {
	if errors.Is(err, mission.ErrIllegal) || errors.Is(err, mission.ErrStale) {
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// Pause freezes a mission's cell and then says so. A paused mission stays
// paused; the cell is thawed again when the pause cannot be journalled.
func (e *Engine) Pause(ctx context.Context, id, actor, reason string) error {
	return e.pause(ctx, id, actor, reason, false)
}

// PauseGate is Pause without the freeze: the agent goes on thinking, and no call
// of it is dispatched.
func (e *Engine) PauseGate(ctx context.Context, id, actor, reason string) error {
	return e.pause(ctx, id, actor, reason, true)
}

func (e *Engine) pause(ctx context.Context, id, actor, reason string, keepRunning bool) error {
	a, err := e.living(ctx, id)
	if err != nil {
		return err
	}
	a.ops.Lock()
	defer a.ops.Unlock()
	if _, err := a.state().Pause(actor, reason); err != nil {
		return operated(err)
	}
	a.holding.Store(true) // the gate closes first (rulings 12)
	defer a.holding.Store(false)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezeTimeout)
	defer cancel()
	// In every other phase nothing of the mission runs, and its start looks at
	// the pause before it starts anything.
	c := a.cell()
	freeze := !keepRunning && c != nil && a.state().Phase == mission.PhaseLive
	if freeze {
		if err := e.opts.Cells.Freeze(ctx, c); err != nil {
			return unavailable(fmt.Errorf("the cell could not be frozen: %w", err))
		}
	}
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) { return m.Pause(actor, reason) }, nil)
	if err != nil && freeze {
		if terr := e.opts.Cells.Thaw(ctx, c); terr != nil {
			e.log.Error("cell could not be thawed after a failed pause", "mission", id, "error", terr)
		}
	}
	if err == nil {
		e.rejudge(ctx, a)
	}
	return operated(err)
}

// Replan holds the task until an explicit resume, without freezing it: the
// agent is to make another plan (C6).
func (e *Engine) Replan(ctx context.Context, id, actor, reason string) error {
	a, err := e.living(ctx, id)
	if err != nil {
		return err
	}
	a.ops.Lock()
	defer a.ops.Unlock()
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) { return m.Replan(actor, reason) }, nil)
	if err == nil {
		e.rejudge(ctx, a)
	}
	return operated(err)
}

// Resume thaws the cell and lifts the pause; a mission that is not paused is
// left as it is.
func (e *Engine) Resume(ctx context.Context, id, actor, reason string) error {
	return e.goOn(ctx, id, func(m *mission.Mission) ([]mission.Fact, error) { return m.Resume(actor) })
}

// Restart lets a mission go on that came back latched after a restart of the
// host, or opens a stopped harness task again; ErrConflict for any other.
func (e *Engine) Restart(ctx context.Context, id, actor string) error {
	a, err := e.living(ctx, id)
	if err != nil {
		return err
	}
	if !a.state().Harness {
		return e.goOn(ctx, id, func(m *mission.Mission) ([]mission.Fact, error) { return m.Restart(actor) })
	}
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) { return m.Restart(actor) }, nil)
	if err != nil {
		return operated(err)
	}
	a.clearLatch()
	return nil
}

// goOn thaws the cell and then says so.
func (e *Engine) goOn(ctx context.Context, id string, decide decision) error {
	a, err := e.living(ctx, id)
	if err != nil {
		return err
	}
	a.ops.Lock()
	defer a.ops.Unlock()
	if _, err := decide(a.state()); err != nil {
		return operated(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezeTimeout)
	defer cancel()
	if c := a.cell(); c != nil && len(c.Ref) > 0 && a.state().Paused {
		if err := e.opts.Cells.Thaw(ctx, c); err != nil {
			return unavailable(fmt.Errorf("the cell could not be thawed: %w", err))
		}
	}
	if s := a.sess.Load(); s != nil {
		s.touch()
	}
	return operated(a.commit(decide, nil))
}

// Abort sets the stop latch and gives control back; the ladder ends in
// mission.aborted (or, for a harness task, in a stopped task). by is "operator"
// or "system". It returns when the stop is journalled, or when ctx ends: the
// latch holds all the same, and the journal entry follows.
func (e *Engine) Abort(ctx context.Context, id, actor, by, reason string) error {
	a, err := e.living(ctx, id)
	if err != nil {
		return err
	}
	stop := mission.Stop{Actor: actor, By: by, Reason: reason}
	do := func(context.Context) error { return e.stopWith(a, stop) }
	if a.quarantined.Load() != nil { // latched already
		do = func(ctx context.Context) error { return e.endQuarantined(ctx, a, stop) }
	} else if _, err := e.latch(a, stop); err != nil { // before anything that may wait
		return operated(err)
	}
	done := make(chan error, 1)
	e.goRun(func(ctx context.Context) { done <- do(ctx) })
	select {
	case err := <-done:
		return operated(err)
	case <-ctx.Done():
		return nil
	}
}

// AbortForGood is Abort after which a harness task cannot be restarted either:
// it has ended. For a mission with a cell it is Abort.
func (e *Engine) AbortForGood(ctx context.Context, id, actor, by, reason string) error {
	a, err := e.living(ctx, id)
	if err != nil {
		return err
	}
	if !a.state().Harness || a.quarantined.Load() != nil {
		return e.Abort(ctx, id, actor, by, reason)
	}
	if err := e.stopWith(a, mission.Stop{Actor: actor, By: by, Reason: reason, Final: true}); err != nil {
		return operated(err)
	}
	e.goRun(func(ctx context.Context) {
		a.ladderMu.Lock() // a ladder that is under way may end it by itself
		defer a.ladderMu.Unlock()
		if !a.state().Terminal() {
			_ = a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.EndHarness() }, nil)
		}
		if a.state().Terminal() {
			e.settleAccess(ctx, a)
			if ctx.Err() == nil {
				e.forget(a)
			}
		}
	})
	return nil
}
