package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// Proposal is a tool call that an agent wants to make.
type Proposal struct {
	ProposalID     string // empty: one is made
	Tool           string
	Args           json.RawMessage // a JSON object
	Provenance     string          // where the tool comes from; empty: harness
	Parent         string          // proposal of which it is a part
	Metadata       json.RawMessage
	ParentDecision string
	ParentPlanStep *int
	Boundary       string // protocol | harness | launch | mcp: what holds the call
}

// Judged is the decision on a proposal, as others read it.
type Judged struct {
	ProposalID  string            `json:"proposal_id"`
	DecisionID  string            `json:"decision_id"`
	Epoch       uint64            `json:"epoch"`
	Fingerprint string            `json:"fingerprint"`
	Decision    governance.Record `json:"decision"`
	// UpdatedArgs are the arguments to run with when a rule rewrote them.
	UpdatedArgs json.RawMessage `json:"updated_args,omitempty"`
	// ResolvedBy is the decision that took its place.
	ResolvedBy string `json:"resolved_by,omitempty"`
}

// Propose has a call judged. With a wait, a decision that a human must make is
// waited for; the answer then is the decision that resolved it. Errors:
// ErrNotFound, *governance.Refused, ErrUnavailable, ErrInvalid.
func (e *Engine) Propose(ctx context.Context, taskID string, p Proposal, wait time.Duration) (Judged, error) {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return Judged{}, err
	}
	if a.quarantined.Load() != nil {
		return Judged{}, &governance.Refused{Code: governance.CodeStopped, Detail: "the task is quarantined: its journal does not verify"}
	}
	d, err := e.propose(ctx, a, p)
	if err != nil || !d.Waits() || wait <= 0 || e.observes() {
		return e.judged(a, d, err)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	got, err := a.untilAnswered(ctx, d)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = nil // still waiting: the decision as it is
	}
	return e.judged(a, got, err)
}

// untilAnswered waits until a human, the clock or a new epoch has put another
// decision in the place of one that waits. It gives the newest decision on the
// proposal with the context's error when that ends first.
func (a *actor) untilAnswered(ctx context.Context, d governance.Decision) (governance.Decision, error) {
	for {
		changed := a.next()
		m := a.state()
		now, ok := m.Task.Latest(d.ProposalID)
		if a.latch.Load() || m.Terminal() || !ok {
			return d, &governance.Refused{Code: governance.CodeStopped, Detail: "the task was stopped while the decision waited"}
		}
		d = *now
		if !d.Waits() {
			return d, nil
		}
		select {
		case <-changed:
		case <-a.launchCtx().Done():
			return d, &governance.Refused{Code: governance.CodeStopped, Detail: "the task was stopped while the decision waited"}
		case <-ctx.Done():
			return d, ctx.Err()
		}
	}
}

// propose judges and commits; the same proposal again gives the decision that
// it has.
func (e *Engine) propose(ctx context.Context, a *actor, p Proposal) (governance.Decision, error) {
	if p.ProposalID == "" {
		p.ProposalID = newUUID()
	}
	c, err := e.prepare(p)
	if err != nil {
		return governance.Decision{}, err
	}
	for {
		m := a.settled()
		guard := e.guard(a, &m)
		switch known, err := m.Task.Known(guard, p.ProposalID, p.Tool, c.digest); {
		case err != nil:
			return governance.Decision{}, err
		case known != nil:
			return *known, nil
		case guard.Stopped:
			return governance.Decision{}, &governance.Refused{Code: governance.CodeStopped, Detail: "the task is stopped: nothing is proposed or dispatched any more"}
		}
		was := false
		if _, recent := m.Task.Latest(p.ProposalID); !recent {
			switch old, err := e.dispatched(ctx, a, &m, &c); {
			case err != nil:
				return governance.Decision{}, err
			case old != nil:
				return *old, nil
			}
			was = a.used.has(p.ProposalID) // another id of the same hash
		}
		j := e.judge(ctx, a, &m, c)
		err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
			if _, recent := m.Task.Latest(p.ProposalID); !recent && a.used.has(p.ProposalID) != was {
				return nil, governance.ErrEpoch // dispatched meanwhile, and so much more that it is forgotten already
			}
			return m.Propose(e.guard(a, m), j.proposed, j.decided, e.question(j.decided, c))
		}, nil)
		switch {
		case errors.Is(err, governance.ErrEpoch):
			continue // the task went on meanwhile: judge again
		case errors.Is(err, ErrUnavailable):
			return governance.Decision{}, noJournal(err)
		case err != nil:
			return governance.Decision{}, err
		}
		a.keepArgs(j)
		if s := a.sess.Load(); s != nil {
			s.touch()
		}
		m = a.settled()
		if d, ok := m.Task.Latest(p.ProposalID); ok {
			return *d, nil
		}
		return governance.Decision{}, fmt.Errorf("proposal %q: %w", p.ProposalID, ErrConflict)
	}
}

// guard is what the gate must know of the task's state; the latch counts from
// the moment it is set, journalled or not.
func (e *Engine) guard(a *actor, m *mission.Mission) governance.Guard {
	g := m.Guard(e.rules().Mode() == "observe")
	g.Stopped = g.Stopped || a.latch.Load()
	g.Paused = g.Paused || a.holding.Load()
	return g
}

func noJournal(err error) error {
	return &governance.Refused{Code: governance.CodeJournal, Detail: "nothing is dispatched without its record (on_failure = \"fail_closed\"): " + err.Error()}
}

// Dispatch takes the reservation for one call: once it answers, the call may
// run. tool and args must be what was decided.
func (e *Engine) Dispatch(ctx context.Context, taskID, decisionID, tool string, args json.RawMessage) (string, error) {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return "", err
	}
	c, err := e.prepare(Proposal{Tool: tool, Args: args})
	if err != nil {
		return "", err
	}
	return e.admit(a, decisionID, func(m *mission.Mission, d *governance.Decision) string {
		return e.fingerprint(m, d.Epoch, d.ProposalID, tool, d.Provenance, c.args)
	})
}

// admit commits a reservation. print gives the fingerprint of what is about to
// run.
func (e *Engine) admit(a *actor, decisionID string, print func(*mission.Mission, *governance.Decision) string) (string, error) {
	if a.quarantined.Load() != nil {
		return "", &governance.Refused{Code: governance.CodeStopped, Detail: "the task is quarantined: its journal does not verify"}
	}
	x := governance.Executed{InvocationID: newUUID()}
	err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		var fp string
		if d, ok := m.Task.Decision(decisionID); ok {
			fp = print(m, d)
		}
		x.Generation = m.Generation
		return mission.Govern(m.Task.Admit(e.guard(a, m), decisionID, fp, x))
	}, nil)
	switch {
	case errors.Is(err, ErrUnavailable):
		return "", noJournal(err)
	case errors.Is(err, governance.ErrUnknown):
		return "", fmt.Errorf("%w: %w", ErrNotFound, err)
	case err != nil:
		return "", err
	}
	if a.latch.Load() { // set while the reservation was written: it did not start
		_ = e.settle(a, governance.Settled{InvocationID: x.InvocationID, Outcome: governance.NeverStarted, Error: "stopped before it was admitted"})
		return "", &governance.Refused{Code: governance.CodeStopped, Detail: "the task was stopped"}
	}
	return x.InvocationID, nil
}

// Complete records how a call ended.
func (e *Engine) Complete(ctx context.Context, taskID string, s governance.Settled) error {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return err
	}
	return e.settle(a, s)
}

func (e *Engine) settle(a *actor, s governance.Settled) error {
	err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) { return mission.Govern(m.Task.Settle(s)) }, nil)
	switch {
	case errors.Is(err, ErrUnavailable):
		// The call is over whether it can be written or not (F6).
		if _, again := a.gone.LoadOrStore(s.InvocationID, s); !again {
			a.audit(fmt.Sprintf("the end of call %s (%s) could not be journalled yet: %v", s.InvocationID, s.Outcome, err))
			e.goRun(func(context.Context) { e.settleLater(a, s) })
		}
		return noJournal(err)
	case errors.Is(err, governance.ErrUnknown):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// settleLater writes the end of a call once the journal is back, whether or not
// the harness says it again; a host that goes away before leaves the call open,
// for an operator to resolve.
func (e *Engine) settleLater(a *actor, s governance.Settled) {
	err := a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return mission.Govern(m.Task.Settle(s)) }, nil)
	var refused *governance.Refused
	if err == nil || errors.As(err, &refused) || errors.Is(err, governance.ErrUnknown) {
		a.gone.Delete(s.InvocationID)
	}
}

// over says that a call has ended although the journal does not know it yet.
func (a *actor) over(invocationID string) (governance.Settled, bool) {
	s, over := a.gone.Load(invocationID)
	if !over {
		return governance.Settled{}, false
	}
	return s.(governance.Settled), true
}

// Withdraw gives up a proposal that was not admitted.
func (e *Engine) withdraw(a *actor, proposalID, why string) {
	_ = a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Withdraw(proposalID, why) }, nil)
}

// InvocationState is how far a call is.
type InvocationState struct {
	State    string     `json:"state"` // started | succeeded | failed | outcome_unknown | definitely_not_started
	CancelAt *time.Time `json:"cancel_requested_at"`
}

// Invocation tells how far a call is; with a wait it answers early only when it
// should be cancelled or is over.
func (e *Engine) Invocation(ctx context.Context, taskID, invocationID string, wait time.Duration) (InvocationState, error) {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return InvocationState{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(wait, time.Millisecond))
	defer cancel()
	for {
		changed := a.next()
		m := a.settled()
		if s, over := a.over(invocationID); over {
			return InvocationState{State: s.Outcome}, nil
		}
		i, open := m.Task.Invocation(invocationID)
		if !open {
			return ended(&m, invocationID)
		}
		if i.CancelAt != nil || wait <= 0 {
			return InvocationState{State: "started", CancelAt: i.CancelAt}, nil
		}
		if a.latch.Load() { // asked to end, journalled or not
			at := e.now().UTC()
			return InvocationState{State: "started", CancelAt: &at}, nil
		}
		select {
		case <-changed:
		case <-a.launchCtx().Done():
		case <-ctx.Done():
			return InvocationState{State: "started"}, nil
		}
	}
}

func ended(m *mission.Mission, invocationID string) (InvocationState, error) {
	for _, act := range m.Task.Actions {
		if act.InvocationID == invocationID {
			if act.Lifecycle == "completed" {
				return InvocationState{State: governance.Succeeded}, nil
			}
			return InvocationState{State: governance.Failed}, nil
		}
	}
	return InvocationState{}, fmt.Errorf("invocation %q: %w", invocationID, ErrNotFound)
}

// Limits of recorded access, so that what a stop must name always fits into one
// request to an issuer.
const (
	maxAccess     = 1000
	maxAccessText = 1 << 10
)

// RecordAccess records access that a stop must cut.
func (e *Engine) RecordAccess(ctx context.Context, taskID string, acc governance.Access) error {
	for name, text := range map[string]string{"issuer": acc.Issuer, "ref": acc.Ref, "parent": acc.Parent} {
		if len(text) > maxAccessText {
			return fmt.Errorf("%s must have at most %d bytes, it has %d: %w", name, maxAccessText, len(text), ErrInvalid)
		}
	}
	a, err := e.task(ctx, taskID)
	if err != nil {
		return err
	}
	return a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		if g := e.guard(a, m); g.Stopped {
			return nil, &governance.Refused{Code: governance.CodeStopped, Detail: "the task is stopped"}
		}
		if len(m.Task.Access) >= maxAccess {
			return nil, &governance.Refused{Code: governance.CodeTooMany, Detail: fmt.Sprintf("a task can hold %d sessions and delegations, which a stop must be able to cut", maxAccess)}
		}
		return []mission.Fact{governance.Granted{V: 1, Issuer: acc.Issuer, Access: &acc}}, nil
	}, nil)
}

// Resolve lets an operator say how a call ended that a crash left open.
func (e *Engine) Resolve(ctx context.Context, taskID, invocationID, outcome, explanation, actor string) error {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return err
	}
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		return mission.Govern(m.Task.ResolveInvocation(invocationID, outcome, explanation, actor))
	}, nil)
	if errors.Is(err, governance.ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
