package governance

import (
	"encoding/json"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// Fact is one thing that happened to a task.
type Fact interface{ Kind() journal.Kind }

// The facts of a task. Each is the payload of one event.
type (
	// Proposed: an agent wants to make a call.
	Proposed struct {
		V          int             `json:"v"`
		ProposalID string          `json:"proposal_id"`
		Tool       string          `json:"tool_name"`
		Args       json.RawMessage `json:"tool_args"` // redacted where a rule says so
		ArgsDigest string          `json:"args_digest"`
		Provenance string          `json:"provenance,omitempty"`
		Parent     string          `json:"parent_proposal_id,omitempty"`
		Metadata   json.RawMessage `json:"metadata,omitempty"`
		Again      bool            `json:"again,omitempty"` // judged again under a new epoch
	}
	// Decided: the verdict on it (J14).
	Decided struct {
		V              int             `json:"v"`
		DecisionID     string          `json:"decision_id"`
		ProposalID     string          `json:"proposal_id"`
		Epoch          uint64          `json:"epoch"`
		Fingerprint    string          `json:"fingerprint"`
		Decision       Record          `json:"decision"`
		Context        Context         `json:"context"`
		PolicyHash     string          `json:"policy_hash"`
		RulesDigest    string          `json:"rules_digest"`
		ParentDecision string          `json:"parent_decision_id,omitempty"`
		ParentPlanStep *int            `json:"parent_plan_step,omitempty"`
		UpdatedArgs    json.RawMessage `json:"updated_args,omitempty"` // redacted
		ExpiresAt      *time.Time      `json:"expires_at,omitempty"`
		Boundary       string          `json:"boundary,omitempty"`
		Tool           string          `json:"tool_name"`
		Provenance     string          `json:"provenance,omitempty"`
		ArgsDigest     string          `json:"args_digest"`

		// keep are the arguments for the Task; they are not part of the event.
		keep json.RawMessage
	}
	// Record is the frozen decision; others read exactly these six names beside
	// the trigger and the findings.
	Record struct {
		Status             Outcome   `json:"status"`
		Risk               *Risk     `json:"risk"`
		Reason             string    `json:"reason"`
		DecisionPoint      string    `json:"decision_point"` // always tool_call
		Trigger            *Trigger  `json:"trigger_details,omitempty"`
		EscalationRequired bool      `json:"escalation_required"`
		CausalLink         *string   `json:"causal_link"`
		Findings           []Finding `json:"findings"`
	}
	// Trigger is the call that was judged.
	Trigger struct {
		Tool string          `json:"tool_name"`
		Args json.RawMessage `json:"arguments"`
	}
	// Context is what was injected into the judgement.
	Context struct {
		Intent       *Envelope `json:"intent"`
		HistoryFrom  int       `json:"history_from"`
		HistoryTo    int       `json:"history_to"`
		NotEvaluated []string  `json:"not_evaluated"`
		Waived       []string  `json:"waived,omitempty"`
	}
	// Approved: a human answered (J16).
	Approved struct {
		V           int    `json:"v"`
		DecisionID  string `json:"decision_id"`
		ResolvedID  string `json:"resolved_decision_id,omitempty"`
		Action      string `json:"action"`
		Actor       string `json:"actor"`
		Explanation string `json:"explanation,omitempty"`
		Fingerprint string `json:"fingerprint,omitempty"`
	}
	// Executed: a dispatch reservation was taken; the call may run.
	Executed struct {
		V            int    `json:"v"`
		DecisionID   string `json:"decision_id"`
		InvocationID string `json:"invocation_id"`
		ProposalID   string `json:"proposal_id"`
		Tool         string `json:"tool_name"`
		Epoch        uint64 `json:"epoch"`
		Fingerprint  string `json:"fingerprint"`
		Boundary     string `json:"boundary"`
		Generation   uint64 `json:"generation,omitempty"`
	}
	// Settled: how it ended. It is a completed or a failed event.
	Settled struct { // without an invocation: a proposal that was withdrawn
		V            int    `json:"v"`
		DecisionID   string `json:"decision_id"`
		InvocationID string `json:"invocation_id,omitempty"`
		Outcome      string `json:"outcome"` // succeeded | failed | outcome_unknown | definitely_not_started
		DurationMS   *int64 `json:"duration_ms,omitempty"`
		ResultDigest string `json:"result_digest,omitempty"`
		Error        string `json:"error,omitempty"`
	}
	// CancelRequested: a running call was asked to end; never a proof that it did.
	CancelRequested struct {
		V            int    `json:"v"`
		InvocationID string `json:"invocation_id"`
		StopID       string `json:"stop_id,omitempty"`
		Accepted     bool   `json:"accepted"`
	}
	// IntentChanged: another envelope or another plan holds from now on. Only an
	// envelope voids verdicts (rulings 28 for the plan).
	IntentChanged struct {
		V      int             `json:"v"`
		Epoch  uint64          `json:"epoch"`
		Actor  string          `json:"actor"`
		Intent *Envelope       `json:"intent,omitempty"` // nil: as it was
		Digest string          `json:"digest,omitempty"` // of the envelope
		Plan   json.RawMessage `json:"plan,omitempty"`   // nil: as it was
	}
	// RulesChanged: other rules hold from now on.
	RulesChanged struct {
		V      int      `json:"v"`
		Epoch  uint64   `json:"epoch"`
		Digest string   `json:"rules_digest"`
		Policy string   `json:"policy"` // the content, once
		Stages []string `json:"stages"`
		Mode   string   `json:"mode"`
	}
	// Resolved: an operator says how a call ended that a crash left open (X5).
	Resolved struct {
		V            int    `json:"v"`
		InvocationID string `json:"invocation_id"`
		DecisionID   string `json:"decision_id"`
		Outcome      string `json:"outcome"`
		Explanation  string `json:"explanation"`
		Actor        string `json:"actor"`
	}
	// Granted: an issuer is asked for access (state requested), or gave it; or a
	// harness recorded access that a stop must cut (Access).
	Granted struct {
		V          int     `json:"v"`
		GrantID    string  `json:"grant_id,omitempty"`
		Issuer     string  `json:"issuer"`
		Generation uint64  `json:"generation,omitempty"`
		State      string  `json:"state,omitempty"` // requested | active | revoked: taken back, a later session has another one
		Access     *Access `json:"access,omitempty"`
		// Token: a harness was given another task token; the one before is void.
		Token *TokenIssued `json:"token,omitempty"`
	}
	// TokenIssued is what is kept of a task token.
	TokenIssued struct {
		SHA256 string   `json:"token_sha256"`
		Scopes []string `json:"scopes"`
		Actor  string   `json:"actor"`
	}
	// RevocationStarted: access is being taken back.
	RevocationStarted struct {
		V       int      `json:"v"`
		StopID  string   `json:"stop_id"`
		Issuers []string `json:"issuers"`
		Reason  string   `json:"reason"`
	}
	// RevocationResult: what one issuer answered.
	RevocationResult struct {
		V         int    `json:"v"`
		StopID    string `json:"stop_id"`
		Issuer    string `json:"issuer"`
		Result    string `json:"result"` // acknowledged | failed | waived
		Detail    string `json:"detail,omitempty"`
		Evidence  string `json:"evidence,omitempty"`
		Attempt   int    `json:"attempt"`
		Retryable bool   `json:"retryable,omitempty"`
		Actor     string `json:"actor,omitempty"` // waived: who takes it on
	}
)

// Keep gives the decision arguments to hold in memory and in the task's row;
// they never become part of the event.
func (d Decided) Keep(args json.RawMessage) Decided {
	d.keep = args
	return d
}

// Kind gives the kind of event that the fact is the payload of.
func (Proposed) Kind() journal.Kind        { return journal.Proposed }
func (Decided) Kind() journal.Kind         { return journal.Decision }
func (Approved) Kind() journal.Kind        { return journal.Approval }
func (Executed) Kind() journal.Kind        { return journal.Executed }
func (CancelRequested) Kind() journal.Kind { return journal.CancelRequested }
func (IntentChanged) Kind() journal.Kind   { return journal.IntentChanged }
func (RulesChanged) Kind() journal.Kind    { return journal.RulesChanged }
func (Resolved) Kind() journal.Kind        { return journal.Resolved }
func (Granted) Kind() journal.Kind         { return journal.Granted }
func (RevocationStarted) Kind() journal.Kind {
	return journal.RevocationStarted
}
func (RevocationResult) Kind() journal.Kind { return journal.RevocationResult }

// Kind of a settled call is completed only when it succeeded (D6).
func (s Settled) Kind() journal.Kind {
	if s.Outcome == Succeeded {
		return journal.Completed
	}
	return journal.Failed
}

// How a call ended (seed 004's words).
const (
	Succeeded    = "succeeded"
	Failed       = "failed"
	Unknown      = "outcome_unknown"
	NeverStarted = "definitely_not_started"
)
