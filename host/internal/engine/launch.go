package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// launchTool is the tool of the proposal that starts a session (rulings 18).
const launchTool = "airlock.launch"

// errBlocked ends a start that the gate did not allow.
var errBlocked = errors.New("the gate does not allow the launch")

// admitLaunch has the start of the session judged like any call, and writes the
// reservation together with the cell's row: after it the session may exist. It
// returns with the lock over operations held; on an error it is not.
func (e *Engine) admitLaunch(ctx context.Context, a *actor, c *cells.Cell, plan *pluginv1.LaunchPlan) error {
	call, err := e.launchCall(a, c, plan)
	if err != nil {
		return err
	}
	for {
		// From here until the session's handle is there, a pause has to wait:
		// before, nothing runs; after, it can freeze what does.
		if err := a.lockRunning(ctx); err != nil {
			return err
		}
		d, err := e.tryLaunch(ctx, a, c, call)
		switch {
		case errors.Is(err, governance.ErrEpoch):
			a.ops.Unlock()
			continue
		case err != nil:
			a.ops.Unlock()
			return err
		case d.Consumed:
			return nil
		}
		a.ops.Unlock()
		if !d.Waits() {
			return fmt.Errorf("%w: %s: %s", errBlocked, d.Outcome, d.Reason)
		}
		if _, err := a.untilAnswered(ctx, d); err != nil {
			return err
		}
	}
}

func (e *Engine) launchCall(a *actor, c *cells.Cell, plan *pluginv1.LaunchPlan) (call, error) {
	sp, err := a.spec()
	if err != nil {
		return call{}, err
	}
	cwd := plan.GetCwd()
	if cwd == "" {
		cwd = c.CellFacts().GetWorkspace()
	}
	args, err := json.Marshal(map[string]any{"runtime": runtimeName(sp.Runtime), "argv": plan.GetArgv(), "cwd": cwd})
	if err != nil {
		return call{}, err
	}
	return e.prepare(Proposal{ProposalID: fmt.Sprintf("launch-%d", a.state().Generation), Tool: launchTool, Args: args,
		Provenance: "host", Boundary: mission.Launch})
}

// tryLaunch judges, and where the verdict allows it takes the reservation in the
// same commit. A decision that is consumed says that the launch is admitted.
func (e *Engine) tryLaunch(ctx context.Context, a *actor, c *cells.Cell, cl call) (governance.Decision, error) {
	m := a.settled()
	guard := e.guard(a, &m)
	known, err := m.Task.Known(guard, cl.ProposalID, cl.Tool, cl.digest)
	if err != nil {
		return governance.Decision{}, err
	}
	var j judgement
	if known == nil {
		j = e.judge(ctx, a, &m, cl)
	}
	x := governance.Executed{InvocationID: newUUID(), Generation: m.Generation}
	bound := false
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		g := e.guard(a, m)
		if a.latch.Load() {
			return nil, errStopped
		}
		var facts []mission.Fact
		after := *m
		if known == nil {
			var err error
			if facts, err = m.Propose(g, j.proposed, j.decided, e.question(j.decided, cl)); err != nil {
				return nil, err
			}
			for _, f := range facts {
				after.Apply(f, e.now())
			}
		}
		d, ok := after.Task.Latest(cl.ProposalID)
		if !ok || d.Consumed || d.Waits() && !g.Observe {
			bound = ok && d.Consumed
			return facts, nil
		}
		admitted, err := mission.Govern(after.Task.Admit(g, d.ID, d.Fingerprint, x))
		var refused *governance.Refused
		if errors.As(err, &refused) && refused.Code == governance.CodeNotAllowed {
			return facts, nil
		}
		bound = err == nil
		return append(facts, admitted...), err
	}, func(_ *mission.Mission, b *store.Batch) error {
		if !bound {
			return nil
		}
		// Durable before the session can exist: a start that did not get here may
		// be begun anew after a crash, for nothing of it has run.
		c.State = cells.StateBound
		return putCell(b, c)
	})
	if err != nil {
		return governance.Decision{}, err
	}
	m = a.settled()
	d, ok := m.Task.Latest(cl.ProposalID)
	if !ok {
		return governance.Decision{}, fmt.Errorf("launch: %w", ErrConflict)
	}
	return *d, nil
}
