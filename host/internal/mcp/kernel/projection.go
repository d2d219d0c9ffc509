package kernel

import (
	"encoding/json"
	"strings"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Skip codes: why a phase was not run.
const (
	skipRejected     = "request_rejected"     // before was never reached
	skipNotStarted   = "main_not_started"     // after was never reached
	skipFailed       = "main_failed"          //
	skipNotCompleted = "main_not_completed"   // handed off: it has not ended yet
	skipUnknown      = "main_outcome_unknown" //
	skipBlocking     = "closeout_blocking"    //
)

// Control is output.control: what came of the main call and of its sidecars. It
// is made of names, words from closed lists and numbers, never of what a tool
// has answered.
type Control struct {
	Main   MainView   `json:"main"`
	Before *PhaseView `json:"before,omitempty"`
	After  *PhaseView `json:"after_success,omitempty"`
}

// MainView is the main call in a projection. A nil StateChanged is not known.
type MainView struct {
	Success      bool                    `json:"success"`
	State        workflow.ExecutionState `json:"execution_state"`
	StateChanged *bool                   `json:"state_changed"`
}

// PhaseView is a phase in a projection.
type PhaseView struct {
	Kind         envelope.Kind           `json:"kind"`
	Success      bool                    `json:"success"`
	State        workflow.ExecutionState `json:"execution_state"`
	StateChanged *bool                   `json:"state_changed"`
	Replayed     bool                    `json:"replayed"`
	Revision     int64                   `json:"revision,omitempty"`
	ErrorKind    string                  `json:"error_kind,omitempty"`
}

func mainView(r Result) MainView {
	return MainView{Success: r.Success(), State: r.State, StateChanged: r.Change.wire()}
}

// phaseView shows what came of a mutation.
func phaseView(k envelope.Kind, r Result) *PhaseView {
	p := &PhaseView{Kind: k, Success: r.Success(), State: r.State, StateChanged: r.Change.wire(), Replayed: r.Success() && r.Replayed}
	if k.Goal() {
		p.Revision = r.Revision
	}
	if r.Fault != nil {
		p.ErrorKind = code(r.Fault.Kind)
	}
	return p
}

// skipped shows a phase that was not run, and why.
func skipped(m *envelope.Mutation, why string) *PhaseView {
	if m == nil {
		return nil
	}
	return phaseView(m.Kind, Refuse(why, "", workflow.NoAction))
}

// outcome is a phase as its journal row has it.
func (p *PhaseView) outcome() *workflow.PhaseOutcome {
	if p == nil {
		return nil
	}
	return &workflow.PhaseOutcome{Kind: string(p.Kind), State: p.State, StateChanged: p.StateChanged, Replayed: p.Replayed,
		Revision: p.Revision, ErrorKind: p.ErrorKind}
}

// code lets only what can be an error kind through.
func code(kind string) string {
	if kind == "" || len(kind) > 96 || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return "control_mutation_failed"
	}
	return kind
}

// Answer is what a call is answered with.
type Answer struct {
	Success bool
	// Error begins with the error kind; empty on success.
	Error  string
	Output json.RawMessage // an object
	// Note says in one line what failed in which phase; empty on success.
	Note string
	// Control is what Output has under that name; nil: nothing.
	Control *Control
	State   workflow.ExecutionState // of the main call
}
