package evidence

import (
	"encoding/json"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// Told is one fact that a bundle tells once more, in the open. Which members are
// set follows from Evidence. Everything in it is the event's own.
type Told struct {
	Evidence string    `json:"evidence"` // mission | policy | plugins | approval | revocation | receipt | outcome
	Sequence uint64    `json:"sequence"` // of the event that it follows from
	At       time.Time `json:"at"`

	// mission, of task_opened
	Agent     string `json:"agent,omitempty"`
	Isolation string `json:"isolation,omitempty"`
	Runtime   string `json:"runtime,omitempty"`
	Objective string `json:"objective,omitempty"`
	// policy, of task_opened and rules_changed: the version and its content
	Mode        string   `json:"mode,omitempty"`
	RulesDigest string   `json:"rules_digest,omitempty"`
	Policy      string   `json:"policy,omitempty"`
	Stages      []string `json:"stages,omitempty"`
	// plugins, of starting: what ran
	Generation uint64   `json:"generation,omitempty"`
	Plugins    []Plugin `json:"plugins,omitempty"`
	// approval
	DecisionID  string `json:"decision_id,omitempty"`
	ResolvedID  string `json:"resolved_decision_id,omitempty"`
	Action      string `json:"action,omitempty"`
	Actor       string `json:"actor,omitempty"`
	Explanation string `json:"explanation,omitempty"`
	// revocation and receipt
	StopID  string          `json:"stop_id,omitempty"`
	Issuer  string          `json:"issuer,omitempty"`
	Result  string          `json:"result,omitempty"`
	Detail  string          `json:"detail,omitempty"`
	Proof   string          `json:"proof,omitempty"` // the issuer's own words
	Receipt json.RawMessage `json:"receipt,omitempty"`
	// outcome, of ended
	State    string `json:"state,omitempty"`
	Reason   string `json:"reason,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`

	// Unreadable: the event's payload is none that this version knows.
	Unreadable bool `json:"unreadable,omitempty"`
}

// Plugin is one program that a mission was run with.
type Plugin struct {
	Ref     string `json:"ref"`
	Version string `json:"version,omitempty"`
	SHA256  string `json:"sha256"`
}

// payload is what of the payloads is told once more.
type payload struct {
	Agent       string          `json:"agent"`
	Isolation   string          `json:"isolation"`
	Runtime     string          `json:"runtime"`
	Objective   string          `json:"objective"`
	Mode        string          `json:"mode"`
	RulesDigest string          `json:"rules_digest"`
	Policy      string          `json:"policy"`
	Stages      []string        `json:"stages"`
	Generation  uint64          `json:"generation"`
	Plugins     []Plugin        `json:"plugins"`
	DecisionID  string          `json:"decision_id"`
	ResolvedID  string          `json:"resolved_decision_id"`
	Action      string          `json:"action"`
	Actor       string          `json:"actor"`
	Explanation string          `json:"explanation"`
	StopID      string          `json:"stop_id"`
	Issuer      string          `json:"issuer"`
	Result      string          `json:"result"`
	Detail      string          `json:"detail"`
	Evidence    string          `json:"evidence"`
	Receipt     json.RawMessage `json:"receipt"`
	State       string          `json:"state"`
	Reason      string          `json:"reason"`
	ExitCode    *int            `json:"exit_code"`
}

// tell gives what an event is told as once more; nothing for most of them.
func tell(ev *journal.Event) []Told {
	names := map[journal.Kind]string{
		journal.TaskOpened: "mission", journal.RulesChanged: "policy", journal.Starting: "plugins", journal.Approval: "approval",
		journal.RevocationResult: "revocation", journal.StopAcknowledged: "receipt", journal.Ended: "outcome",
	}
	name, ok := names[ev.Kind]
	if !ok {
		return nil
	}
	t := Told{Evidence: name, Sequence: ev.Sequence, At: ev.Timestamp}
	var p payload
	if json.Unmarshal([]byte(ev.Payload), &p) != nil {
		t.Unreadable = true
		return []Told{t}
	}
	policy := t
	policy.Evidence, policy.Mode, policy.RulesDigest, policy.Policy, policy.Stages = "policy", p.Mode, p.RulesDigest, p.Policy, p.Stages
	switch ev.Kind {
	case journal.TaskOpened:
		t.Agent, t.Isolation, t.Runtime, t.Objective = p.Agent, p.Isolation, p.Runtime, p.Objective
		return []Told{t, policy}
	case journal.RulesChanged:
		return []Told{policy}
	case journal.Starting:
		t.Generation, t.Plugins = p.Generation, p.Plugins
	case journal.Approval:
		t.DecisionID, t.ResolvedID, t.Action, t.Actor, t.Explanation = p.DecisionID, p.ResolvedID, p.Action, p.Actor, p.Explanation
	case journal.RevocationResult:
		t.StopID, t.Issuer, t.Result, t.Detail, t.Proof, t.Actor = p.StopID, p.Issuer, p.Result, p.Detail, p.Evidence, p.Actor
	case journal.StopAcknowledged:
		t.StopID, t.Receipt = p.StopID, p.Receipt
	default:
		t.State, t.Reason, t.ExitCode = p.State, p.Reason, p.ExitCode
	}
	return []Told{t}
}
