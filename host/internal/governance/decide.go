package governance

import (
	"encoding/json"
	"errors"
	"fmt"
)

const version = 1

// ErrEpoch says that a judgement was made under an epoch that is over; the
// caller judges again.
var ErrEpoch = errors.New("judged under an older epoch")

// The actions of an approval (A1).
const (
	ApproveOnce  = "approve_once"
	Reject       = "reject"
	ModifyIntent = "modify_intent"
	AskToReplan  = "ask_agent_to_replan"
	StopAgent    = "stop_agent"
)

// Actions lists the five in the order in which they are shown.
func Actions() []string { return []string{ApproveOnce, Reject, ModifyIntent, AskToReplan, StopAgent} }

// Known finds the decision that already answers a proposal: the same call in
// the same epoch, or one that was dispatched. Changed contents under a known
// id are refused.
func (t *Task) Known(g Guard, proposalID, tool, argsDigest string) (*Decision, error) {
	d, ok := t.Latest(proposalID)
	if !ok {
		return nil, nil
	}
	if d.Tool != tool || d.ArgsDigest != argsDigest {
		return nil, &Refused{CodeChanged, fmt.Sprintf("proposal %q was made with another tool or other arguments: give a changed call a new proposal_id", proposalID)}
	}
	if d.Consumed || d.Epoch == g.Epoch {
		return d, nil
	}
	return nil, nil
}

// Propose takes a judged proposal in. A decision on the same proposal from an
// older epoch gives way, and the new one points at it.
func (t *Task) Propose(g Guard, p Proposed, d Decided) ([]Fact, error) {
	if g.Stopped {
		return nil, stopped()
	}
	if d.Epoch != g.Epoch {
		return nil, ErrEpoch
	}
	switch known, err := t.Known(g, p.ProposalID, p.Tool, p.ArgsDigest); {
	case err != nil:
		return nil, err
	case known != nil:
		return nil, nil
	}
	if old, ok := t.Latest(p.ProposalID); ok {
		p.Again = true
		if d.Decision.CausalLink == nil {
			d.Decision.CausalLink = &old.ID
		}
	} else if n := t.usable(g.Epoch); n >= maxDecisions {
		return nil, &Refused{CodeTooMany, fmt.Sprintf("the task has %d decisions that were not dispatched: dispatch them, or have an operator pause and resume the task, which voids them", n)}
	}
	p.V, d.V = version, version
	return []Fact{p, d}, nil
}

func (t *Task) usable(epoch uint64) (n int) {
	for _, d := range t.Decisions {
		if !d.Consumed && d.Epoch == epoch && (d.Waits() || d.Outcome.Runs()) {
			n++
		}
	}
	return n
}

// Open finds a decision that a human may answer now.
func (t *Task) Open(g Guard, decisionID string) (*Decision, error) {
	d, ok := t.Decision(decisionID)
	if !ok || !d.Waits() {
		if r, was := t.ResolvedBy(decisionID); was {
			switch {
			case r.Stale && r.By != "":
				return nil, &Refused{CodeStale, fmt.Sprintf("the decision is void since the task went on under a new epoch; %s took its place", r.By)}
			case r.Stale:
				return nil, &Refused{CodeStale, "the decision is void since the task was stopped"}
			}
			return nil, &Refused{CodeResolved, "the decision was answered already, or does not wait any more"}
		}
		if ok {
			return nil, &Refused{CodeResolved, fmt.Sprintf("the decision does not wait for a human: it is %s", d.Outcome)}
		}
		return nil, fmt.Errorf("decision %q: %w", decisionID, ErrUnknown)
	}
	if g.Stopped {
		return nil, stopped()
	}
	if d.Epoch != g.Epoch {
		return nil, &Refused{CodeStale, "the decision belongs to an older epoch and is being judged again"}
	}
	return d, nil
}

// Answer resolves a decision that waits. by is the decision that takes its
// place: judged again for approve_once and modify_intent, else made from the
// action. A fingerprint that the human saw must still be the decision's.
func (t *Task) Answer(g Guard, a Approved, by Decided) ([]Fact, error) {
	d, err := t.Open(g, a.DecisionID)
	if err != nil {
		return nil, err
	}
	if a.Fingerprint != "" && a.Fingerprint != d.Fingerprint {
		return nil, &Refused{CodeFingerprint, "the call is not the one that was shown: read it again and answer again"}
	}
	a.V, by.V = version, version
	a.ResolvedID = by.DecisionID
	by.Decision.CausalLink = &d.ID
	return []Fact{a, by}, nil
}

// Admit takes the dispatch reservation: the last check before a call runs.
func (t *Task) Admit(g Guard, decisionID, fingerprint string, x Executed) ([]Fact, error) {
	switch {
	case g.Stopped:
		return nil, stopped()
	case g.Paused:
		return nil, &Refused{CodePaused, "the task is paused: nothing is dispatched until it is resumed"}
	}
	d, ok := t.Decision(decisionID)
	if !ok {
		if r, was := t.ResolvedBy(decisionID); was && r.By != "" && !r.Stale {
			return nil, &Refused{CodeNotAllowed, fmt.Sprintf("the decision waited for a human; %s resolved it", r.By)}
		} else if was {
			return nil, &Refused{CodeStale, "the decision is void"}
		}
		return nil, fmt.Errorf("decision %q: %w", decisionID, ErrUnknown)
	}
	switch {
	case d.Consumed:
		return nil, &Refused{CodeConsumed, "a decision permits one dispatch, and it was made"}
	case d.Epoch != g.Epoch:
		return nil, &Refused{CodeStale, fmt.Sprintf("the decision belongs to epoch %d, now it is %d: propose again", d.Epoch, g.Epoch)}
	case fingerprint != d.Fingerprint:
		return nil, &Refused{CodeFingerprint, "the call is not the one that was decided: tool or arguments differ"}
	case !d.Outcome.Runs() && !g.Observe:
		return nil, &Refused{CodeNotAllowed, fmt.Sprintf("the decision is %s: %s", d.Outcome, d.Reason)}
	}
	x.V, x.DecisionID, x.ProposalID, x.Tool = version, d.ID, d.ProposalID, d.Tool
	x.Epoch, x.Fingerprint, x.Boundary = d.Epoch, d.Fingerprint, d.Boundary
	return []Fact{x}, nil
}

// Settle ends a call. A stop does not refuse it: what happened is recorded.
func (t *Task) Settle(s Settled) ([]Fact, error) {
	switch s.Outcome {
	case Succeeded, Failed, Unknown, NeverStarted:
	default:
		return nil, fmt.Errorf("outcome must be succeeded, failed, outcome_unknown or definitely_not_started, it is %q", s.Outcome)
	}
	i, ok := t.Invocation(s.InvocationID)
	if !ok {
		for _, a := range t.Actions {
			if a.InvocationID == s.InvocationID {
				return nil, &Refused{CodeSettled, "the call's outcome was recorded already"}
			}
		}
		return nil, fmt.Errorf("invocation %q: %w", s.InvocationID, ErrUnknown)
	}
	s.V, s.DecisionID = version, i.DecisionID
	return []Fact{s}, nil
}

// Withdraw gives a proposal up that was never admitted; nothing if it was, or
// is not known.
func (t *Task) Withdraw(proposalID, why string) []Fact {
	d, ok := t.Latest(proposalID)
	if !ok || d.Consumed {
		return nil
	}
	return []Fact{Settled{V: version, DecisionID: d.ID, Outcome: NeverStarted, Error: why}}
}

// ResolveInvocation lets an operator say how a call ended that a crash left
// open, or whose outcome was reported as not known (X5).
func (t *Task) ResolveInvocation(invocationID, outcome, explanation, actor string) ([]Fact, error) {
	switch outcome {
	case Succeeded, Failed, Unknown, NeverStarted:
	default:
		return nil, fmt.Errorf("outcome must be succeeded, failed, outcome_unknown or definitely_not_started, it is %q", outcome)
	}
	resolved := func(decisionID string) ([]Fact, error) {
		return []Fact{Resolved{V: version, InvocationID: invocationID, DecisionID: decisionID, Outcome: outcome, Explanation: explanation, Actor: actor}}, nil
	}
	for _, i := range t.Unresolved {
		if i.ID == invocationID {
			return resolved(i.DecisionID)
		}
	}
	for _, a := range t.Actions { // it was reported as not known: an operator may know better
		if a.InvocationID == invocationID && a.Unknown {
			return resolved(a.DecisionID)
		}
	}
	for _, i := range t.Running {
		if i.ID == invocationID {
			return nil, &Refused{CodeRunning, "the call is running: its harness reports its outcome"}
		}
	}
	return nil, fmt.Errorf("invocation %q: %w", invocationID, ErrUnknown)
}

// Waive takes note that an operator does without an issuer's acknowledgement:
// what it gave to the task counts as over from then on, and never as revoked.
func (t *Task) Waive(issuer, explanation, actor string) ([]Fact, error) {
	if explanation == "" {
		return nil, errors.New("explanation must say why the issuer's access needs no revocation")
	}
	var res IssuerResult
	if t.Revocation != nil {
		res = t.Revocation.Issuers[issuer]
	}
	switch res.Result {
	case "":
		return nil, fmt.Errorf("issuer %q, which the task was not revoked at: %w", issuer, ErrUnknown)
	case Acknowledged, Waived:
		return nil, &Refused{CodeSettled, fmt.Sprintf("the issuer's access is %s already", res.Result)}
	case "in_flight":
		return nil, &Refused{CodeRevocation, "the issuer is being asked: wait for its answer"}
	}
	return []Fact{RevocationResult{V: version, StopID: t.Revocation.StopID, Issuer: issuer, Result: Waived, Detail: explanation, Attempt: res.Attempts, Actor: actor}}, nil
}

// SetIntent puts another envelope in force; every verdict before is void.
func (t *Task) SetIntent(g Guard, e *Envelope, actor string) ([]Fact, error) {
	if err := e.Valid(); err != nil {
		return nil, err
	}
	return []Fact{IntentChanged{V: version, Epoch: g.Epoch + 1, Actor: actor, Intent: e, Digest: e.Digest()}}, nil
}

// SetPlan replaces the plan that status shows.
func (t *Task) SetPlan(g Guard, plan json.RawMessage, actor string) ([]Fact, error) {
	var steps []json.RawMessage
	if err := json.Unmarshal(plan, &steps); err != nil {
		return nil, fmt.Errorf("plan must be an array of steps: %w", err)
	}
	return []Fact{IntentChanged{V: version, Epoch: g.Epoch, Actor: actor, Plan: plan}}, nil
}

// MayRestart says what still stands in the way of a restart (C7, C8, X2, X3).
func (t *Task) MayRestart() error {
	switch {
	case len(t.Running) > 0:
		return &Refused{CodeRunning, fmt.Sprintf("%d calls are still running", len(t.Running))}
	case len(t.Unresolved) > 0:
		return &Refused{CodeUnresolved, fmt.Sprintf("the outcome of %d calls is not known (%s): resolve them first", len(t.Unresolved), t.Unresolved[0].ID)}
	case t.Revocation != nil && t.Revocation.State != "done":
		return &Refused{CodeRevocation, fmt.Sprintf("access is not revoked everywhere yet (%s): stop the task again to ask once more, or waive an issuer that cannot answer", t.Revocation.State)}
	}
	return nil
}

func stopped() error {
	return &Refused{CodeStopped, "the task is stopped: nothing is proposed or dispatched any more"}
}
