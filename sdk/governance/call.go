package governance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Proposal is a call that an agent wants to make.
type Proposal struct {
	ID             string          `json:"proposal_id,omitempty"` // empty: one is made; the same id is the same call
	Tool           string          `json:"tool_name"`
	Args           json.RawMessage `json:"tool_args"` // an object; the host keeps its bytes
	Metadata       json.RawMessage `json:"metadata,omitempty"`
	ParentDecision string          `json:"parent_decision_id,omitempty"`
	ParentPlanStep *int            `json:"parent_plan_step,omitempty"`
}

// Decision is the host's verdict on a proposal.
type Decision struct {
	ProposalID  string `json:"proposal_id"`
	ID          string `json:"decision_id"`
	Epoch       uint64 `json:"epoch"`
	Fingerprint string `json:"fingerprint"`
	Verdict     struct {
		Status     string    `json:"status"` // ALLOW | WARN | CHALLENGE | REPLAN | PAUSE | ESCALATE | BLOCK
		Risk       *string   `json:"risk"`   // nil: not evaluated
		Reason     string    `json:"reason"`
		Point      string    `json:"decision_point"`
		Escalation bool      `json:"escalation_required"`
		CausalLink *string   `json:"causal_link"` // the decision that this one resolved
		Findings   []Finding `json:"findings"`
	} `json:"decision"`
	// UpdatedArgs are the arguments to run with where a rule rewrote them.
	UpdatedArgs json.RawMessage `json:"updated_args"`
	ResolvedBy  string          `json:"resolved_by"`
}

// Finding is what one rule says of a call.
type Finding struct {
	ID      string `json:"id"`
	Stage   string `json:"stage"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

// Waits says that a human has not decided yet.
func (d *Decision) Waits() bool { return d.Verdict.Status == "PAUSE" || d.Verdict.Status == "ESCALATE" }

// Runs says that the call may be dispatched.
func (d *Decision) Runs() bool { return d.Verdict.Status == "ALLOW" || d.Verdict.Status == "WARN" }

// Propose asks for a call and waits, until ctx ends, for a human who must
// decide; a host that goes away meanwhile is asked again.
func (c *Client) Propose(ctx context.Context, p Proposal) (Decision, error) {
	if p.ID == "" {
		p.ID = newID()
	}
	body := struct {
		Proposal
		Wait float64 `json:"wait_s"`
	}{p, c.opts.Hold.Seconds()}
	for {
		var d Decision
		if _, err := c.insist(ctx, http.MethodPost, "/proposals", body, &d); err != nil {
			return d, err
		}
		if !d.Waits() {
			return d, nil
		}
		select { // held as long as it may be, or the host is about to stop
		case <-ctx.Done():
			return d, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Dispatch takes the reservation for one call: only once it has answered without
// an error may the call run. It is not tried again: when the answer is lost
// nobody knows whether it was given, and the call does not run.
func (c *Client) Dispatch(ctx context.Context, decisionID, tool string, args json.RawMessage) (invocationID string, err error) {
	var got struct {
		ID string `json:"invocation_id"`
	}
	err = c.try(ctx, http.MethodPost, "/dispatches", map[string]any{"decision_id": decisionID, "tool_name": tool, "tool_args": args}, &got)
	if err == nil && got.ID == "" {
		err = errors.New("the host's answer to a dispatch has no invocation_id")
	}
	return got.ID, err
}

// The ends of a call.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Unknown   = "outcome_unknown"
)

// Completion is how a call ended. Of the result the host keeps a digest.
type Completion struct {
	Outcome  string
	Result   json.RawMessage
	Err      string
	Duration time.Duration
}

// Complete says how a call ended; it is tried again until the host has it.
func (c *Client) Complete(ctx context.Context, invocationID string, done Completion) error {
	body := map[string]any{"outcome": done.Outcome, "duration_ms": done.Duration.Milliseconds()}
	if done.Err != "" {
		body["error"] = done.Err
	}
	if done.Result != nil {
		body["result"] = done.Result
	}
	tries, err := c.insist(ctx, http.MethodPost, "/dispatches/"+url.PathEscape(invocationID)+"/completion", body, nil)
	var refused *Error
	if tries > 1 && errors.As(err, &refused) && refused.Code == "settled" {
		return nil // the answer to an earlier try was lost
	}
	return err
}

// Invocation is how far a call is.
type Invocation struct {
	State           string     `json:"state"` // started | succeeded | failed | …
	CancelRequested *time.Time `json:"cancel_requested_at"`
}

// Invocation asks how far a call is; with a wait it answers when the call should
// be cancelled or is over, or the time is.
func (c *Client) Invocation(ctx context.Context, invocationID string, wait time.Duration) (Invocation, error) {
	var i Invocation
	path := fmt.Sprintf("/dispatches/%s?wait_s=%g", url.PathEscape(invocationID), min(wait, time.Hour).Seconds())
	_, err := c.insist(ctx, http.MethodGet, path, nil, &i)
	return i, err
}

// Access is access that a harness got from an issuer and that a stop must cut.
type Access struct {
	Kind   string `json:"kind"` // session | delegation
	Issuer string `json:"issuer"`
	Ref    string `json:"ref"`
	Parent string `json:"parent,omitempty"`
}

// RecordAccess tells the host of access, before it is used.
func (c *Client) RecordAccess(ctx context.Context, a Access) error {
	_, err := c.insist(ctx, http.MethodPost, "/access", a, nil)
	return err
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
