package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
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
	a, err := e.living(ctx, id)
	if err != nil {
		return err
	}
	a.ops.Lock()
	defer a.ops.Unlock()
	if _, err := a.state().Pause(actor, reason); err != nil {
		return operated(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezeTimeout)
	defer cancel()
	// In every other phase nothing of the mission runs, and its start looks at
	// the pause before it starts anything.
	c := a.cell()
	freeze := c != nil && a.state().Phase == mission.PhaseLive
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
	return operated(err)
}

// Resume thaws the cell and lifts the pause; a mission that is not paused is
// left as it is.
func (e *Engine) Resume(ctx context.Context, id, actor, reason string) error {
	return e.goOn(ctx, id, func(m *mission.Mission) ([]mission.Fact, error) { return m.Resume(actor) })
}

// Restart lets a mission go on that came back latched after a restart of the
// host; ErrConflict for any other.
func (e *Engine) Restart(ctx context.Context, id, actor string) error {
	return e.goOn(ctx, id, func(m *mission.Mission) ([]mission.Fact, error) { return m.Restart(actor) })
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
// mission.aborted. by is "operator" or "system". An error of kind
// ErrUnavailable says that the latch holds but could not be journalled yet.
func (e *Engine) Abort(ctx context.Context, id, actor, by, reason string) error {
	a, err := e.living(ctx, id)
	if err != nil {
		return err
	}
	return operated(e.stop(a, mission.Stop{Actor: actor, By: by, Reason: reason}))
}

// stop latches first and writes then (seed 003).
func (e *Engine) stop(a *actor, s mission.Stop) error {
	if m := a.state(); m.Terminal() {
		return fmt.Errorf("stop: the mission is %s: %w", m.State, mission.ErrIllegal)
	}
	a.setLatch()
	s.ID = newUUID()
	return a.commit(func(m *mission.Mission) ([]mission.Fact, error) { return m.StopNow(s) }, nil)
}

// receipt is the stop receipt (governance 3G).
type receipt struct {
	TaskID       string         `json:"task_id"`
	StopID       string         `json:"stop_id"`
	Epoch        uint64         `json:"epoch"`
	EffectiveAt  time.Time      `json:"effective_at"`
	Running      []string       `json:"running"`
	Cancellation []string       `json:"cancellation_requests"`
	Issuers      map[string]any `json:"issuers"`
	Access       string         `json:"access_revocation"`
	Isolation    isolationProof `json:"isolation"`
	AuditError   *string        `json:"audit_error"`
}

type isolationProof struct {
	Driver string    `json:"driver"`
	Action string    `json:"action"`
	Result string    `json:"result"`
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at"`
}

// ladder ends a stopped mission: latch and kill in the cell, then the driver's
// kill with its proof. It insists until nothing of the mission runs; what
// cannot be proven is said in the receipt and never claimed.
func (e *Engine) ladder(ctx context.Context, a *actor) {
	effective := e.now().UTC()
	proof := isolationProof{Action: "none", Result: "nothing_started", Detail: "no cell was asked for", At: effective}
	if c := a.cell(); c != nil {
		e.killInside(ctx, a)
		got, err := e.killCell(ctx, a, c)
		if err != nil {
			return // the engine closes; the latch is in the journal
		}
		proof = isolationProof{Driver: c.Instance, Action: "stop", Result: proofWord(got), Detail: got.GetDetail(), At: e.now().UTC()}
	}
	err := a.insist(func(m *mission.Mission) ([]mission.Fact, error) {
		if m.Terminal() {
			return nil, nil
		}
		var facts []mission.Fact
		after := *m
		if !m.Latched() { // the latch held but could not be written before
			first, err := m.StopNow(mission.Stop{ID: newUUID(), Actor: "airlock", By: "system", Reason: "stopped while the journal was not available"})
			if err != nil {
				return nil, err
			}
			facts = first
			after.Apply(first[0], effective)
		}
		r := receipt{TaskID: a.id, StopID: after.Stop.ID, Epoch: after.Epoch, EffectiveAt: effective, Running: []string{},
			Cancellation: []string{}, Issuers: map[string]any{}, Access: "not_configured", Isolation: proof}
		text, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		done, err := after.StopDone(text)
		return append(facts, done...), err
	}, nil)
	if err != nil && ctx.Err() == nil {
		e.log.Error("stopped mission could not be ended", "mission", a.id, "error", err)
	}
}

func proofWord(p *pluginv1.Proof) string {
	switch p.GetMethod() {
	case pluginv1.ProofMethod_PROOF_METHOD_CGROUP_EMPTY:
		return "cgroup_empty"
	case pluginv1.ProofMethod_PROOF_METHOD_PID_NAMESPACE_GONE:
		return "pid_namespace_gone"
	case pluginv1.ProofMethod_PROOF_METHOD_ENGINE_EXITED:
		return "engine_exited"
	case pluginv1.ProofMethod_PROOF_METHOD_VM_GONE:
		return "vm_gone"
	case pluginv1.ProofMethod_PROOF_METHOD_SUBREAPER_SWEEP:
		return "subreaper_sweep"
	default:
		return "unproven"
	}
}

// killInside latches the cell agent and has it kill the session; a frozen or
// silent agent is passed over, since the driver's kill comes next.
func (e *Engine) killInside(ctx context.Context, a *actor) {
	s, m := a.sess.Load(), a.state()
	if s == nil || m.Paused {
		return
	}
	conn := s.conn.Load()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := conn.Latch(ctx, m.Epoch); err != nil {
		return
	}
	_ = conn.Kill(ctx, "", 0, 0)
}

// killCell asks the driver until it answers.
func (e *Engine) killCell(ctx context.Context, a *actor, c *cells.Cell) (*pluginv1.Proof, error) {
	pause := 100 * time.Millisecond
	for {
		stopCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		proof, err := e.opts.Cells.Stop(stopCtx, c, 0)
		cancel()
		if err == nil {
			return proof, nil
		}
		e.log.Error("cell could not be stopped yet", "mission", a.id, "cell", c.ID, "error", err)
		if wait(ctx, pause) != nil {
			return nil, ctx.Err()
		}
		pause = min(2*pause, 2*time.Second)
	}
}
