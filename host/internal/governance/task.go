package governance

import (
	"encoding/json"
	"errors"
	"time"
)

// Limits of what a Task keeps; the journal keeps everything.
const (
	maxDecisions = 256 // decisions that can still be used or asked for
	maxActions   = 50
	maxResolved  = 64
	maxSpent     = 16 // decisions that were used, or that nobody can use
)

// ErrUnknown says that a task has no such decision or invocation.
var ErrUnknown = errors.New("unknown to this task")

// Refused is why a command was refused, as a code that callers act on.
type Refused struct {
	Code   string // one of the Code constants
	Detail string
}

func (r *Refused) Error() string { return r.Code + ": " + r.Detail }

// The codes of a refusal (surface, harness API).
const (
	CodeStopped     = "stopped"
	CodePaused      = "paused"
	CodeStale       = "stale_epoch"
	CodeConsumed    = "consumed"
	CodeFingerprint = "fingerprint_mismatch"
	CodeNotAllowed  = "not_allowed"
	CodeJournal     = "journal_unavailable"
	CodeResolved    = "resolved"       // an approval that was answered already
	CodeChanged     = "changed"        // a known proposal id with other contents
	CodeSettled     = "settled"        // a completion that came already
	CodeUnresolved  = "unresolved"     // restart: a dispatch's outcome is not known
	CodeRunning     = "running"        // restart: a call is still running
	CodeRevocation  = "revocation"     // restart: access is not revoked yet
	CodeNotStopped  = "not_stopped"    // restart of a task that runs
	CodeTerminal    = "terminal"       // the mission has ended
	CodeTooMany     = "too_many_calls" // more open decisions than a task may have
)

// Guard is what of the mission decides beside the task.
type Guard struct {
	Epoch   uint64
	Stopped bool // the latch is set, or the mission has ended
	Paused  bool
	Observe bool // mode = "observe": a verdict does not hold a call
}

// Task is the governed side of a mission: a value that is stored with it.
type Task struct {
	Intent *Envelope       `json:"intent,omitempty"`
	Plan   json.RawMessage `json:"plan,omitempty"` // array of steps, as supplied
	Rules  string          `json:"rules,omitempty"`

	Decisions  []Decision   `json:"decisions,omitempty"`  // usable or waiting ones, oldest first
	Running    []Invocation `json:"running,omitempty"`    // dispatched, not settled
	Unresolved []Invocation `json:"unresolved,omitempty"` // left open by a crash, or cut off over MCP
	Actions    []Action     `json:"actions,omitempty"`    // the last ones, for people
	// Resolved maps decisions that an approval resolved to what came of them; the
	// newest last.
	Resolved []Resolution `json:"resolved,omitempty"`

	Counters Counters  `json:"counters"`
	Risk     Risk      `json:"risk,omitempty"`     // of the last decision
	Findings []Finding `json:"findings,omitempty"` // of the last decision

	Grants     []Grant     `json:"grants,omitempty"`
	Access     []Access    `json:"access,omitempty"`
	Revocation *Revocation `json:"revocation,omitempty"`

	Token *TokenIssued `json:"token,omitempty"` // in the place of the one that the task was opened with
}

// Decision is a verdict on a proposal, as long as it matters.
type Decision struct {
	ID          string  `json:"decision_id"`
	ProposalID  string  `json:"proposal_id"`
	Tool        string  `json:"tool_name"`
	Provenance  string  `json:"provenance,omitempty"`
	Epoch       uint64  `json:"epoch"`
	Fingerprint string  `json:"fingerprint"`
	ArgsDigest  string  `json:"args_digest"` // of the arguments as proposed
	Outcome     Outcome `json:"status"`
	Risk        Risk    `json:"risk,omitempty"`
	Reason      string  `json:"reason"`
	Escalation  bool    `json:"escalation_required,omitempty"`
	CausalLink  string  `json:"causal_link,omitempty"`
	// Findings are kept until the decision is used.
	Findings []Finding `json:"findings,omitempty"`
	// Args are the arguments that would run. They are not kept where a rule
	// redacts them; the process that waits must then propose again after a
	// restart.
	Args      json.RawMessage `json:"args,omitempty"`
	Rewritten bool            `json:"rewritten,omitempty"` // the arguments that would run are not those proposed
	Consumed  bool            `json:"consumed,omitempty"`
	// Waived are ids of findings that a human's approval covers.
	Waived    []string   `json:"waived,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // of an approval
	Boundary  string     `json:"boundary,omitempty"`   // protocol | harness | launch | mcp
	DecidedAt time.Time  `json:"decided_at"`
}

// Waits says whether a human is asked about it.
func (d *Decision) Waits() bool { return d.Outcome.Waits() && !d.Consumed }

// Record is the decision as others read it.
func (d *Decision) Record() Record {
	r := Record{Status: d.Outcome, Risk: riskOrNull(d.Risk), Reason: d.Reason, DecisionPoint: "tool_call",
		EscalationRequired: d.Escalation, Findings: append([]Finding{}, d.Findings...)}
	if d.CausalLink != "" {
		r.CausalLink = &d.CausalLink
	}
	return r
}

// BoundaryMCP holds a call that the host makes for an agent, over MCP.
const BoundaryMCP = "mcp"

// Invocation is a call that was admitted.
type Invocation struct {
	ID         string     `json:"invocation_id"`
	DecisionID string     `json:"decision_id"`
	ProposalID string     `json:"proposal_id"`
	Tool       string     `json:"tool_name"`
	StartedAt  time.Time  `json:"started_at"`
	CancelAt   *time.Time `json:"cancel_requested,omitempty"`
	Boundary   string     `json:"boundary,omitempty"`
}

// Action is one call's life for people: proposed → decided → running → ended.
type Action struct {
	ProposalID   string  `json:"proposal_id"`
	DecisionID   string  `json:"decision_id"`
	InvocationID string  `json:"invocation_id,omitempty"`
	Tool         string  `json:"tool_name"`
	Status       Outcome `json:"status"`
	Risk         Risk    `json:"risk"`
	// Lifecycle is one of the seed's words: proposed, blocked, paused, suspended,
	// executed, completed, failed.
	Lifecycle string    `json:"lifecycle"`
	Unknown   bool      `json:"outcome_unknown,omitempty"` // failed, as far as anybody knows
	At        time.Time `json:"at"`
}

// Resolution is what became of a decision that waited for a human.
type Resolution struct {
	DecisionID string `json:"decision_id"`
	By         string `json:"resolved_by"` // the decision that took its place; empty: withdrawn
	Stale      bool   `json:"stale,omitempty"`
}

// Counters count what happened, never what was only evaluated.
type Counters struct {
	Proposed   int `json:"proposed"`
	Allowed    int `json:"allowed"`
	Warned     int `json:"warned"`
	Blocked    int `json:"blocked"`
	Challenged int `json:"challenged"`
	Paused     int `json:"paused"`
	Suspended  int `json:"suspended"`
	Executed   int `json:"executed"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
}

// Grant is access that an issuer gave to the task.
type Grant struct {
	ID         string `json:"grant_id"`
	Issuer     string `json:"issuer"`
	Generation uint64 `json:"generation"`
	State      string `json:"state"` // requested | active | revoked | waived
}

// Over says that nobody is asked any more to take it back.
func (g *Grant) Over() bool { return g.State == "revoked" || g.State == Waived }

// Access is access that a harness recorded.
type Access struct {
	Kind   string `json:"kind"` // session | delegation
	Issuer string `json:"issuer"`
	Ref    string `json:"ref"`
	Parent string `json:"parent,omitempty"`
}

// Revocation is how far taking the access back is.
type Revocation struct {
	StopID  string                  `json:"stop_id"`
	State   string                  `json:"state"` // in_flight | done | partial
	Issuers map[string]IssuerResult `json:"issuers"`
}

// IssuerResult is what an issuer said.
type IssuerResult struct {
	Result    string    `json:"result"` // in_flight | acknowledged | failed | waived
	Detail    string    `json:"detail,omitempty"`
	Evidence  string    `json:"evidence,omitempty"`
	Attempts  int       `json:"attempts"`
	Retryable bool      `json:"retryable,omitempty"`
	At        time.Time `json:"at"`
}

// What ends the asking of an issuer: its acknowledgement, or an operator who
// takes it on that it never will.
const (
	Acknowledged = "acknowledged"
	Waived       = "waived"
)

// Decision finds a decision that still matters.
func (t *Task) Decision(id string) (*Decision, bool) {
	for i := range t.Decisions {
		if t.Decisions[i].ID == id {
			return &t.Decisions[i], true
		}
	}
	return nil, false
}

// Latest is the newest decision on a proposal.
func (t *Task) Latest(proposalID string) (*Decision, bool) {
	for i := len(t.Decisions) - 1; i >= 0; i-- {
		if t.Decisions[i].ProposalID == proposalID {
			return &t.Decisions[i], true
		}
	}
	return nil, false
}

// ResolvedBy gives what became of a decision that waited.
func (t *Task) ResolvedBy(id string) (Resolution, bool) {
	for i := len(t.Resolved) - 1; i >= 0; i-- {
		if t.Resolved[i].DecisionID == id {
			return t.Resolved[i], true
		}
	}
	return Resolution{}, false
}

// Pending lists the decisions that wait for a human, oldest first.
func (t *Task) Pending() []Decision {
	var list []Decision
	for _, d := range t.Decisions {
		if d.Waits() {
			list = append(list, d)
		}
	}
	return list
}

// Invocation finds a call that runs or was left open.
func (t *Task) Invocation(id string) (*Invocation, bool) {
	for _, list := range [][]Invocation{t.Running, t.Unresolved} {
		for i := range list {
			if list[i].ID == id {
				return &list[i], true
			}
		}
	}
	return nil, false
}
