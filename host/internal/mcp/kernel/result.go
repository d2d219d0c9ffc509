package kernel

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Change says whether a call changed anything. The zero Change is none: a result
// without one is not believed (Result.valid).
type Change uint8

// The changes.
const (
	Changed Change = iota + 1
	Unchanged
	ChangeUnknown
)

// ChangedIf is Changed or Unchanged.
func ChangedIf(yes bool) Change {
	if yes {
		return Changed
	}
	return Unchanged
}

// wire is the change as JSON has it: true, false, or null for not known.
func (c Change) wire() *bool {
	if c == ChangeUnknown {
		return nil
	}
	yes := c == Changed
	return &yes
}

// Fault is why a call did not succeed. Kind is of [a-z0-9_]; Message holds
// nothing that came from the caller.
type Fault struct {
	Kind     string
	Message  string
	Recovery workflow.Recovery
	Revision int64 // of the goal, as it is now; 0: none
}

// Result is what a tool gives. State and Change must be said; a result in which
// one is missing counts as an outcome that nobody knows.
type Result struct {
	State  workflow.ExecutionState
	Change Change
	Fault  *Fault // nil: success
	Output any    // marshals to a JSON object; nil: an empty one

	// Of a mutation that can be a phase.
	Replayed bool
	Revision int64 // of the goal
}

// Success says whether the call did what it was asked, or is on its way to.
func (r Result) Success() bool { return r.Fault == nil }

// Done is a call that succeeded.
func Done(output any, change Change) Result {
	return Result{State: workflow.Succeeded, Change: change, Output: output}
}

// Refuse is a call that was refused before it did anything.
func Refuse(kind, message string, recovery workflow.Recovery) Result {
	return Result{State: workflow.NeverStarted, Change: Unchanged, Fault: &Fault{Kind: kind, Message: message, Recovery: recovery}}
}

// Unsure is a call of which nobody knows what became.
func Unsure(kind, message string) Result {
	return Result{State: workflow.Unknown, Change: ChangeUnknown, Fault: &Fault{Kind: kind, Message: message, Recovery: workflow.Reconcile}}
}

// FromError is the result that an error of the domain stands for. An error that
// is none of the domain's says nothing of what happened.
func FromError(err error) Result {
	var e *workflow.Error
	if !errors.As(err, &e) {
		return Unsure("internal_error", "the host failed; whether anything was changed is not known")
	}
	r := Result{State: workflow.Failed, Change: Unchanged, Revision: e.Revision,
		Fault: &Fault{Kind: e.Kind, Message: e.Message, Recovery: e.Recovery, Revision: e.Revision}}
	if e.Unknown {
		r.State, r.Change = workflow.Unknown, ChangeUnknown
	}
	if e.Assignment != nil {
		r.Output = struct {
			Assignment *workflow.Assignment `json:"assignment"`
		}{e.Assignment}
	}
	return r
}

// valid replaces a result that does not say what it must.
func (r Result) valid() Result {
	switch r.State {
	case workflow.Succeeded, workflow.Started:
		if r.Fault == nil && r.Change != 0 {
			return r
		}
	case workflow.Failed, workflow.Unknown, workflow.NeverStarted:
		if r.Fault != nil && r.Change != 0 {
			return r
		}
	}
	return Unsure("outcome_unknown", "the tool did not say how it ended")
}

// blocking reads task_outcome.blocking of a closing tool's output. Only the
// literal false is not blocking.
func blocking(output json.RawMessage) bool {
	var o struct {
		TaskOutcome struct {
			Blocking json.RawMessage `json:"blocking"`
		} `json:"task_outcome"`
	}
	return json.Unmarshal(output, &o) != nil || string(o.TaskOutcome.Blocking) != "false"
}

// body is the output of a result: what the tool gave, and of a failure what it
// is. Members of extra are set after them.
func (r Result) body(extra map[string]any) (json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	if r.Output != nil {
		text, err := json.Marshal(r.Output)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &out); err != nil {
			return nil, fmt.Errorf("output is no object: %w", err)
		}
		if r.Fault == nil && len(extra) == 0 {
			return text, nil
		}
	}
	if f := r.Fault; f != nil {
		set(out, "error_kind", f.Kind)
		set(out, "message", f.Message)
		set(out, "state_changed", r.Change.wire())
		set(out, "recovery_kind", f.Recovery)
		if f.Revision > 0 {
			set(out, "current_revision", f.Revision)
		}
	}
	for name, v := range extra {
		set(out, name, v)
	}
	return json.Marshal(out)
}

func set(out map[string]json.RawMessage, name string, v any) {
	if text, err := json.Marshal(v); err == nil {
		out[name] = text
	}
}
