package governance

import (
	"encoding/json"
	"time"
)

// Status is a task as GET /tasks/{id}/status shows it (governance 3F).
type Status struct {
	TaskID      string          `json:"task_id"`
	Mode        string          `json:"mode"`
	State       string          `json:"state"` // RUNNING | PAUSED | STOPPED | the mission's end
	StateReason string          `json:"state_reason"`
	Epoch       uint64          `json:"epoch"`
	Boundary    string          `json:"boundary"` // none: the runtime's calls are not governed one by one
	Objective   string          `json:"objective"`
	Intent      *Envelope       `json:"intent"`
	Plan        json.RawMessage `json:"plan"`
	Findings    []Finding       `json:"findings"`
	Risk        *Risk           `json:"risk"`
	// NotEvaluated names the stages that nothing configures: their absence is
	// said, not filled in (O11).
	NotEvaluated []string    `json:"not_evaluated"`
	Budget       BudgetState `json:"budget"`
	Actions      []Action    `json:"actions"`
	Pending      []Approval  `json:"pending_approvals"`
	Running      []Call      `json:"running"`
	Unresolved   []Call      `json:"unresolved"`
	Counters     Counters    `json:"counters"`
	Revocation   AccessState `json:"revocation"`
	AuditErrors  []string    `json:"audit_errors"`
	Head         HeadState   `json:"head"`
}

// BudgetState is what was spent of what may be; null limits are not set.
type BudgetState struct {
	MaxCost       *float64 `json:"max_cost"`
	CurrentCost   float64  `json:"current_cost"`
	MaxTokens     *int64   `json:"max_tokens"`
	CurrentTokens int64    `json:"current_tokens"`
	Reserved      float64  `json:"reserved"`
}

// Approval is a decision that waits for a human (an EscalationRequest, 3E).
type Approval struct {
	DecisionID  string          `json:"decision_id"`
	ProposalID  string          `json:"proposal_id"`
	Tool        string          `json:"tool_name"`
	Args        json.RawMessage `json:"tool_args"` // redacted; null when they are not kept
	Status      Outcome         `json:"status"`
	Risk        *Risk           `json:"risk"`
	Reason      string          `json:"reason"`
	Findings    []Finding       `json:"findings"`
	Fingerprint string          `json:"fingerprint"`
	Epoch       uint64          `json:"epoch"`
	Since       time.Time       `json:"since"`
	ExpiresAt   *time.Time      `json:"expires_at"`
	Actions     []string        `json:"available_actions"`
}

// Call is a running or unresolved call.
type Call struct {
	InvocationID string     `json:"invocation_id"`
	DecisionID   string     `json:"decision_id"`
	Tool         string     `json:"tool_name"`
	StartedAt    time.Time  `json:"started_at"`
	Cancel       *time.Time `json:"cancel_requested"`
}

// AccessState is the state of what issuers gave.
type AccessState struct {
	State   string                  `json:"state"` // none | granted | in_flight | partial | done
	StopID  string                  `json:"stop_id"`
	Issuers map[string]IssuerResult `json:"issuers"`
	Grants  []Grant                 `json:"grants"`
	Access  []Access                `json:"access"`
}

// HeadState is the journal's last event.
type HeadState struct {
	Sequence uint64 `json:"sequence"`
	Digest   string `json:"digest"`
}

// Fill writes the task's part of a status.
func (t *Task) Fill(s *Status) {
	s.Intent, s.Plan, s.Counters = t.Intent, t.Plan, t.Counters
	s.Findings = append([]Finding{}, t.Findings...)
	s.Actions = append([]Action{}, t.Actions...)
	s.Risk = riskOrNull(t.Risk)
	s.Pending = []Approval{}
	for _, d := range t.Pending() {
		s.Pending = append(s.Pending, Approval{DecisionID: d.ID, ProposalID: d.ProposalID, Tool: d.Tool, Args: d.Args,
			Status: d.Outcome, Risk: riskOrNull(d.Risk), Reason: d.Reason, Findings: append([]Finding{}, d.Findings...),
			Fingerprint: d.Fingerprint, Epoch: d.Epoch, Since: d.DecidedAt, ExpiresAt: d.ExpiresAt, Actions: Actions()})
	}
	s.Running, s.Unresolved = calls(t.Running), calls(t.Unresolved)
	s.Revocation = t.accessState()
}

func calls(list []Invocation) []Call {
	out := []Call{}
	for _, i := range list {
		out = append(out, Call{InvocationID: i.ID, DecisionID: i.DecisionID, Tool: i.Tool, StartedAt: i.StartedAt, Cancel: i.CancelAt})
	}
	return out
}

func (t *Task) accessState() AccessState {
	a := AccessState{State: "none", Issuers: map[string]IssuerResult{}, Grants: append([]Grant{}, t.Grants...), Access: append([]Access{}, t.Access...)}
	if len(t.Access) > 0 {
		a.State = "granted"
	}
	for _, g := range t.Grants {
		if !g.Over() {
			a.State = "granted"
		}
	}
	if r := t.Revocation; r != nil {
		a.State, a.StopID, a.Issuers = r.State, r.StopID, r.Issuers
	}
	return a
}

func riskOrNull(r Risk) *Risk {
	if r == "" {
		return nil
	}
	return &r
}
