package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// callerGone is why a call over MCP is given up that waits for a human.
const callerGone = "the caller did not wait any longer"

// CellCall is a call with effect that an agent makes over MCP.
type CellCall struct {
	Tool string
	Args json.RawMessage // a JSON object, without _wc
	// ToolUseID is the id under which the agent's runtime has proposed this call
	// already, when the call says so; empty: it was not proposed.
	ToolUseID string
}

// AdmittedCall is leave for one call.
type AdmittedCall struct {
	InvocationID string
	// Joined: the call is the one that the runtime has proposed and will settle
	// (rulings 37); it is not settled here.
	Joined bool
	// Args are the arguments to run with.
	Args json.RawMessage
}

// Denied says that the gate did not let a call pass. Waits is set when a human
// still has to decide: the same call later is a new proposal.
type Denied struct {
	Outcome governance.Outcome
	Reason  string
	Waits   bool
}

func (d *Denied) Error() string { return fmt.Sprintf("%s: %s", d.Outcome, d.Reason) }

// AdmitCall passes a call over MCP through the gate, as any call of the task's
// agent, and takes its reservation. A call that came through a runtime which
// holds each of its agent's calls was proposed and admitted there; it is that
// call and gets no second proposal. Errors: *Denied, *governance.Refused,
// ErrNotFound, ErrInvalid, ErrUnavailable.
func (e *Engine) AdmitCall(ctx context.Context, taskID string, c CellCall) (AdmittedCall, error) {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return AdmittedCall{}, err
	}
	if c.ToolUseID != "" {
		if got, ok, err := e.join(a, c); ok || err != nil {
			return got, err
		}
	}
	p := Proposal{ProposalID: newUUID(), Tool: c.Tool, Args: c.Args, Provenance: governance.BoundaryMCP, Boundary: governance.BoundaryMCP}
	a.callers.Store(p.ProposalID, true)
	defer a.callers.Delete(p.ProposalID)
	j, err := e.Propose(ctx, taskID, p, e.holdOf(a))
	if err != nil {
		return AdmittedCall{}, err
	}
	if o := j.Decision.Status; !e.observes() && (o.Waits() || !o.Runs()) {
		if o.Waits() {
			e.withdraw(a, j.ProposalID, callerGone)
		}
		return AdmittedCall{}, &Denied{Outcome: o, Reason: j.Decision.Reason, Waits: o.Waits()}
	}
	args := c.Args
	if len(j.UpdatedArgs) > 0 {
		args = j.UpdatedArgs
	}
	id, err := e.Dispatch(ctx, taskID, j.DecisionID, c.Tool, args)
	if err == nil {
		a.overMCP.Store(id, true)
	}
	return AdmittedCall{InvocationID: id, Args: args}, err
}

// join finds the runtime's own proposal of a call, which must be running and be
// this very call. ok is false when there is none of that id.
func (e *Engine) join(a *actor, c CellCall) (got AdmittedCall, ok bool, err error) {
	m := a.settled()
	d, known := m.Task.Latest(c.ToolUseID)
	if !known {
		return got, false, nil
	}
	args, err := oneSpelling(c.Args, "")
	if err != nil {
		return got, true, fmt.Errorf("tool_args: %w: %w", ErrInvalid, err)
	}
	same := governance.Digest(args) == d.ArgsDigest
	if d.Rewritten { // the runtime runs it with what the gate made of it
		would, held := a.argsOf(d)
		spelt, err := oneSpelling(would, "")
		same = held && err == nil && string(args) == string(spelt)
	}
	id, runs := running(a, c.ToolUseID)
	switch {
	case toolOf(d.Tool) != c.Tool || !same:
		return got, true, &Denied{Outcome: governance.Block, Reason: "the call is not the one that was proposed under its tool use id"}
	case !runs:
		return got, true, &Denied{Outcome: governance.Block, Reason: "the call that was proposed under its tool use id is not running"}
	case !a.joined(id):
		return got, true, &Denied{Outcome: governance.Block, Reason: "the call that was proposed under its tool use id has been made already"}
	}
	return AdmittedCall{InvocationID: id, Joined: true, Args: c.Args}, true, nil
}

// joined marks a reservation as used over MCP; false: it was used before.
func (a *actor) joined(invocationID string) bool {
	_, before := a.overMCP.LoadOrStore(invocationID, true)
	return !before
}

// holdOf is how long a call waits for a human.
func (e *Engine) holdOf(a *actor) time.Duration {
	sp, err := a.spec()
	if err != nil {
		return 0
	}
	return sp.Hold
}

// EndCall records how an admitted call ended. What a runtime has proposed, it
// settles itself.
func (e *Engine) EndCall(ctx context.Context, taskID string, c AdmittedCall, outcome string, took time.Duration) {
	if c.Joined {
		return
	}
	ms := took.Milliseconds()
	err := e.Complete(ctx, taskID, governance.Settled{InvocationID: c.InvocationID, Outcome: outcome, DurationMS: &ms})
	var refused *governance.Refused
	if err != nil && !errors.As(err, &refused) {
		e.log.Warn("the end of a call was not recorded", "task", taskID, "invocation", c.InvocationID, "error", err)
	}
}
