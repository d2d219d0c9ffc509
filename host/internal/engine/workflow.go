package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Workflow is what the agent-facing tools work on. Every mission has its goal,
// session, task and attempt there from the moment at which its session is
// about to be started.
func (e *Engine) Workflow() *workflow.Keeper { return e.flow }

func newFlow(e *Engine) *workflow.Keeper {
	key := e.opts.WorkflowKey
	if key == nil {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // never fails
	}
	return workflow.New(workflow.Options{Store: flowStore{e}, Key: key, Now: e.now, Governed: e.governedCalls, Alive: e.mayWork})
}

// recoverFlow settles what the host's earlier life has left half done, before
// anything new begins.
func (e *Engine) recoverFlow(ctx context.Context) error {
	err := e.opts.Store.Commit(ctx, store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error { return e.flow.Recover(tx) }})
	if err != nil {
		return fmt.Errorf("settle the composite calls of before: %w", err)
	}
	return nil
}

// mayWork says why nothing of a mission's workflow may change.
func (e *Engine) mayWork(owner workflow.Owner) error {
	a := e.actor(string(owner))
	if a == nil || a.quarantined.Load() != nil || a.latch.Load() || a.state().Terminal() {
		return ErrConflict
	}
	return nil
}

// governedCalls gives the calls of a mission whose end is not known, but for the
// launch of its session.
func (e *Engine) governedCalls(ctx context.Context, owner workflow.Owner) (out workflow.GovernedCalls, err error) {
	m, err := e.find(ctx, string(owner))
	if err != nil {
		return out, err
	}
	for _, i := range m.Task.Running {
		if i.Boundary != mission.Launch {
			out.Running = append(out.Running, workflow.GovernedCall{InvocationID: i.ID, Tool: i.Tool})
		}
	}
	for _, i := range m.Task.Unresolved {
		if i.Boundary != mission.Launch {
			out.Unresolved = append(out.Unresolved, workflow.GovernedCall{InvocationID: i.ID, Tool: i.Tool})
		}
	}
	return out, nil
}

// observe lets the workflow follow the facts of a batch, in its transaction. A
// workflow whose rows cannot be read keeps no fact of the mission from being
// written: it is left as it is.
func (e *Engine) observe(a *actor, facts []mission.Fact, next *mission.Mission, b *store.Batch) {
	ev, of := eventOf(facts, next)
	var resolved []governance.Resolved
	for _, f := range facts {
		if r, ok := f.(governance.Resolved); ok {
			resolved = append(resolved, r)
		}
	}
	if ev == "" && len(resolved) == 0 {
		return
	}
	owner := workflow.Owner(a.id)
	b.Work = func(tx workflow.Tx, _ *store.Batch) error {
		var err error
		if ev != "" {
			err = e.flow.Observe(tx, owner, ev, of)
		}
		for _, r := range resolved {
			err = errors.Join(err, e.flow.Resolved(tx, owner, r.InvocationID, workflow.ExecutionState(r.Outcome)))
		}
		if workflow.Unreadable(err) {
			e.log.Error("the workflow of a mission cannot be read; it does not follow the mission any more", "mission", a.id, "error", err)
			return nil
		}
		return err
	}
}

// eventOf finds the fact that a workflow follows: of several in one batch the
// one that says the most.
func eventOf(facts []mission.Fact, next *mission.Mission) (ev workflow.MissionEvent, of workflow.Mission) {
	of = workflow.Mission{Agent: next.Agent, Objective: next.Objective, Completion: next.Completion, Plan: next.Task.Plan,
		Generation: next.Generation, Running: next.Harness, Reason: strings.TrimSpace(next.Reason + " " + next.Error)}
	if of.Agent == "" {
		of.Agent = next.RuntimeName
	}
	for _, f := range facts {
		switch f := f.(type) {
		case mission.Opened:
			if f.Harness {
				ev = workflow.MissionStarting
			}
		case mission.Starting:
			ev = workflow.MissionStarting
		case mission.Started:
			ev = workflow.MissionStarted
		case mission.Reconnected:
			if !next.Harness {
				ev = workflow.MissionReconnected
			}
		case mission.Resumed:
			if next.Phase == mission.PhaseLive && f.From == "paused" && ev != workflow.MissionReconnected {
				ev = workflow.MissionResumed
			}
		case mission.Restarted:
			ev = workflow.MissionResumed
		case mission.Ended:
			ev = workflow.MissionFailed
			if f.State == mission.StateDone {
				ev = workflow.MissionDone
			}
			return ev, of
		}
	}
	return ev, of
}

// flowStore keeps the workflow's rows in the host's store, and what they say of
// a mission in its journal.
type flowStore struct{ e *Engine }

// Update implements workflow.Store.
func (s flowStore) Update(ctx context.Context, _ workflow.Owner, work func(workflow.Tx) error) error {
	return s.e.opts.Store.Commit(ctx, store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error { return work(tx) }})
}

// View implements workflow.Store.
func (s flowStore) View(ctx context.Context, f func(workflow.Reader) error) error {
	return s.e.opts.Store.ViewWork(ctx, f)
}

// Uncertain implements workflow.Store.
func (s flowStore) Uncertain(err error) bool { return errors.Is(err, store.ErrUncertain) }

// Progress implements workflow.Store: work and the mission's facts that follow
// from it are one commit.
func (s flowStore) Progress(ctx context.Context, owner workflow.Owner, work func(workflow.Tx) (*workflow.Progress, error)) error {
	a := s.e.actor(string(owner))
	if a == nil {
		return fmt.Errorf("mission %q: %w", string(owner), ErrConflict)
	}
	if err := a.awaitAdopted(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quarantined.Load() != nil {
		return quarantinedError(a)
	}
	next, head := a.m, a.head
	var facts []mission.Fact
	b := store.Batch{Task: a.id, JournalUUID: a.head.JournalUUID, Work: func(tx workflow.Tx, b *store.Batch) error {
		next, head, facts = a.m, a.head, nil
		p, err := work(tx)
		if err != nil || p == nil {
			return err
		}
		if facts, err = next.GoalProgress(reported(p), p.Plan); err != nil {
			return err
		}
		return a.chain(facts, nil, &next, &head, b)
	}}
	if err := s.e.opts.Store.Commit(ctx, b); err != nil {
		return err
	}
	if live := a.sess.Load(); live != nil {
		live.touch()
	}
	if len(facts) > 0 {
		a.took(next, head, facts, true) // such facts always write the row
		if told := s.e.opts.Committed; told != nil {
			told(&next, facts, next.UpdatedAt)
		}
		a.publish()
	}
	return nil
}

// reported is a goal's progress in a mission's words.
func reported(p *workflow.Progress) *mission.Progress {
	if !p.Reported {
		return nil
	}
	out := &mission.Progress{Phase: p.Phase, Summary: p.Summary, PctDone: p.Pct}
	if p.Pct != nil {
		out.Iteration = &p.Steps
	}
	return out
}

// Project is the workspace id of a mission, as the tools name it; ErrNotFound
// when there is no such mission.
func (e *Engine) Project(ctx context.Context, missionID string) (string, error) {
	if _, err := e.find(ctx, missionID); err != nil {
		return "", err
	}
	return workflow.Project(workflow.Owner(missionID)), nil
}
