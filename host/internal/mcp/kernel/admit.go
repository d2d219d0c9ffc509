package kernel

import (
	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// The kinds of refusals that are the kernel's own.
const (
	errNotAdmitted   = "control_sidecar_not_admitted"
	errTwoBefore     = "multiple_before_mutations"
	errNotClosing    = "control_requires_finish_coding_task"
	errControlArgs   = "invalid_control_arguments"
	errControlScope  = "control_insufficient_scope"
	errReserved      = "session_context_replay_contract_required"
	errBefore        = "control_before_failed"
	errScope         = "insufficient_scope"
	errArguments     = "invalid_arguments"
	errMainPanicked  = "main_outcome_unknown"
	errPhasePanicked = "control_outcome_unknown"
)

// admission refuses an envelope that may not be where it is; nil lets it pass.
// Both phases are looked at before either runs (R19, R20). The capability and
// the transport are asked for here although the adapter has asked for them: a
// route that forwards an envelope by mistake gets nowhere (R5).
func (k *Kernel) admission(c *Call) *Result {
	env := c.Envelope
	if env == nil {
		return nil
	}
	if c.Caller.Transport != MCP || !c.Caller.Caps.ControlSidecars || !c.Tool.takes(env) {
		return refuse(errNotAdmitted, "this caller or this tool cannot have a control envelope", workflow.FixInput)
	}
	p := env.Control
	if p == nil {
		p = &envelope.Phases{}
	}
	if p.Before != nil && env.Resolve != nil {
		return refuse(errTwoBefore, "_wc.resolve is a mutation before the main call too: only one of it and control.before is possible", workflow.FixInput)
	}
	if p.After != nil && p.After.Kind.Closing() && !c.Tool.Closeout {
		return refuse(errNotClosing, "goal_completion and session_close are possible only on finish_coding_task", workflow.FixInput)
	}
	for _, m := range []*envelope.Mutation{p.Before, p.After} {
		if m != nil && !k.byName[m.Kind.Tool()].fits(m.Request) {
			return refuse(errControlArgs, "a sidecar's payload is not the request of its canonical tool", workflow.FixInput)
		}
	}
	for _, m := range []*envelope.Mutation{p.Before, p.After} {
		if m != nil && !c.Caller.May(k.byName[m.Kind.Tool()].Scope) {
			return refuse(errControlScope, "the token's scopes do not cover a sidecar", workflow.UserAction)
		}
	}
	if env.Resolve != nil && !c.Caller.May(k.byName["resolve_session_message"].scope()) {
		return refuse(errControlScope, "the token's scopes do not cover _wc.resolve", workflow.UserAction)
	}
	if p.Before != nil && p.Before.Kind == envelope.SessionContextUpdate {
		return refuse(errReserved, "session_context_update is reserved: update_session_context has no revision and no key to replay by; call it alone", workflow.FixInput)
	}
	return nil
}

func refuse(kind, message string, recovery workflow.Recovery) *Result {
	r := Refuse(kind, message, recovery)
	return &r
}

// scope is a tool's scope; that of a tool that is not there is nobody's.
func (t *Tool) scope() string {
	if t == nil {
		return "none"
	}
	return t.Scope
}

// takes says whether the tool's envelope may have the members that one has.
func (t *Tool) takes(e *envelope.Envelope) bool {
	var f envelope.Fields
	if e.Control != nil {
		f |= envelope.Control
	}
	if e.Record != "" {
		f |= envelope.Record
	}
	if len(e.Ack) > 0 {
		f |= envelope.Ack
	}
	if e.Resolve != nil {
		f |= envelope.Resolve
	}
	if len(e.Context) > 0 {
		f |= envelope.Context
	}
	return f&^t.Fields == 0
}
