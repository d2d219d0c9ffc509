package governance

import (
	"slices"
	"strings"
	"time"
)

// Apply changes the task by one of its facts; it says whether the fact was one.
// It never fails: whether a fact may happen was decided before.
func (t *Task) Apply(f any, at time.Time) bool {
	switch f := f.(type) {
	case Proposed:
		if !f.Again {
			t.Counters.Proposed++
			t.act(Action{ProposalID: f.ProposalID, Tool: f.Tool, Lifecycle: "proposed", At: at})
		}
	case Decided:
		t.decided(f, at)
	case Approved:
		t.resolve(Resolution{DecisionID: f.DecisionID, By: f.ResolvedID}) // stop_agent: nothing takes its place
	case Executed:
		t.executed(f, at)
	case Settled:
		t.settled(f, at)
	case CancelRequested:
		t.Running = slices.Clone(t.Running)
		for i := range t.Running {
			if t.Running[i].ID == f.InvocationID {
				t.Running[i].CancelAt = &at
			}
		}
	case IntentChanged:
		if f.Intent != nil {
			t.Intent = f.Intent
		}
		if f.Plan != nil {
			t.Plan = f.Plan
		}
	case RulesChanged:
		t.Rules = f.Digest
	case Resolved:
		t.Unresolved = slices.DeleteFunc(slices.Clone(t.Unresolved), func(i Invocation) bool { return i.ID == f.InvocationID })
		t.end(f.InvocationID, f.Outcome, at)
	case Granted:
		t.granted(f)
	case RevocationStarted:
		t.revoking(f, at)
	case RevocationResult:
		t.revoked(f, at)
	default:
		return false
	}
	return true
}

func (t *Task) decided(f Decided, at time.Time) {
	d := f.Shown()
	d.DecidedAt, d.Args = at, f.keep
	t.Decisions = slices.Clone(t.Decisions)
	_, answered := t.ResolvedBy(d.CausalLink)
	if old, ok := t.Decision(d.CausalLink); ok && old.Waits() && !answered {
		t.resolve(Resolution{DecisionID: old.ID, By: d.ID, Stale: old.Epoch != d.Epoch})
	}
	// A proposal has one decision that counts: the last.
	t.Decisions = append(slices.DeleteFunc(t.Decisions, func(o Decision) bool {
		return o.ProposalID == d.ProposalID && !o.Consumed
	}), d)
	t.trim()
	t.Risk, t.Findings = d.Risk, f.Decision.Findings
	switch d.Outcome {
	case Allow:
		t.Counters.Allowed++
	case Warn:
		t.Counters.Warned++
	case Block:
		t.Counters.Blocked++
	case Challenge:
		t.Counters.Challenged++
	case Pause, Escalate:
		t.Counters.Paused++
	case Replan:
		t.Counters.Suspended++
	}
	t.act(Action{ProposalID: d.ProposalID, DecisionID: d.ID, Tool: d.Tool, Status: d.Outcome, Risk: d.Risk, Lifecycle: lifecycle(d.Outcome), At: at})
}

// Shown is the decision that the fact makes, without its arguments and its time.
func (d Decided) Shown() Decision {
	out := Decision{ID: d.DecisionID, ProposalID: d.ProposalID, Tool: d.Tool, Provenance: d.Provenance, Epoch: d.Epoch,
		Fingerprint: d.Fingerprint, ArgsDigest: d.ArgsDigest, Outcome: d.Decision.Status, Reason: d.Decision.Reason,
		Escalation: d.Decision.EscalationRequired, ExpiresAt: d.ExpiresAt, Boundary: d.Boundary,
		Findings: d.Decision.Findings, Rewritten: d.UpdatedArgs != nil, Waived: d.Context.Waived}
	if d.Decision.Risk != nil {
		out.Risk = *d.Decision.Risk
	}
	if d.Decision.CausalLink != nil {
		out.CausalLink = *d.Decision.CausalLink
	}
	return out
}

func lifecycle(o Outcome) string {
	switch o {
	case Allow, Warn:
		return "proposed"
	case Pause, Escalate:
		return "paused"
	case Challenge, Replan:
		return "suspended"
	default:
		return "blocked"
	}
}

func (t *Task) executed(f Executed, at time.Time) {
	t.Decisions = slices.Clone(t.Decisions)
	if d, ok := t.Decision(f.DecisionID); ok {
		d.Consumed, d.Args, d.Findings = true, nil, nil
	}
	t.Running = append(slices.Clone(t.Running), Invocation{ID: f.InvocationID, DecisionID: f.DecisionID,
		ProposalID: f.ProposalID, Tool: f.Tool, StartedAt: at, Boundary: f.Boundary})
	t.Counters.Executed++
	t.act(Action{ProposalID: f.ProposalID, InvocationID: f.InvocationID, Lifecycle: "executed", At: at})
}

func (t *Task) settled(f Settled, at time.Time) {
	if f.InvocationID == "" { // withdrawn before it was admitted
		t.Decisions = slices.DeleteFunc(slices.Clone(t.Decisions), func(d Decision) bool { return d.ID == f.DecisionID })
		t.resolve(Resolution{DecisionID: f.DecisionID})
		return
	}
	var call Invocation
	if i, open := t.Invocation(f.InvocationID); open {
		call = *i
	}
	t.Running = slices.DeleteFunc(slices.Clone(t.Running), func(i Invocation) bool { return i.ID == f.InvocationID })
	t.Unresolved = slices.DeleteFunc(slices.Clone(t.Unresolved), func(i Invocation) bool { return i.ID == f.InvocationID })
	if f.Outcome == Unknown && call.Boundary == BoundaryMCP {
		t.Unresolved = append(t.Unresolved, call) // nobody but an operator can still say how it ended
		return
	}
	t.end(f.InvocationID, f.Outcome, at)
}

// end counts the end of a call.
func (t *Task) end(invocationID, outcome string, at time.Time) {
	i := slices.IndexFunc(t.Actions, func(a Action) bool { return a.InvocationID == invocationID })
	if i >= 0 && t.Actions[i].Unknown {
		t.Counters.Failed-- // an operator's word takes its place
	}
	word := "failed"
	if outcome == Succeeded {
		word = "completed"
		t.Counters.Completed++
	} else {
		t.Counters.Failed++
	}
	if i >= 0 {
		t.act(Action{ProposalID: t.Actions[i].ProposalID, InvocationID: invocationID, Lifecycle: word, Unknown: outcome == Unknown, At: at})
	}
}

// act notes how far a call is; empty fields stay as they were.
func (t *Task) act(a Action) {
	t.Actions = slices.Clone(t.Actions)
	for i := len(t.Actions) - 1; i >= 0; i-- {
		old := &t.Actions[i]
		if old.ProposalID != a.ProposalID {
			continue
		}
		old.Lifecycle, old.Unknown, old.At = a.Lifecycle, a.Unknown, a.At
		if a.DecisionID != "" {
			old.DecisionID, old.Status, old.Risk = a.DecisionID, a.Status, a.Risk
		}
		if a.InvocationID != "" {
			old.InvocationID = a.InvocationID
		}
		return
	}
	if a.Tool == "" {
		return // of a call so long ago that it is not shown any more
	}
	t.Actions = append(t.Actions[max(0, len(t.Actions)-maxActions+1):], a)
}

func (t *Task) resolve(r Resolution) {
	t.Resolved = append(slices.Clone(t.Resolved[max(0, len(t.Resolved)-maxResolved+1):]), r)
	if r.By == "" {
		t.Decisions = slices.DeleteFunc(slices.Clone(t.Decisions), func(d Decision) bool { return d.ID == r.DecisionID })
	}
}

// trim forgets the oldest decisions that nobody can use any more.
func (t *Task) trim() {
	for len(t.Decisions) > maxDecisions {
		i := slices.IndexFunc(t.Decisions, func(d Decision) bool { return !d.Waits() })
		t.Decisions = slices.Delete(t.Decisions, max(i, 0), max(i, 0)+1)
	}
	spent := 0
	for i := len(t.Decisions) - 1; i >= 0; i-- {
		if t.Decisions[i].Waits() || t.Decisions[i].Outcome.Runs() && !t.Decisions[i].Consumed {
			continue
		}
		if spent++; spent > maxSpent {
			t.Decisions = slices.Delete(t.Decisions, i, i+1)
		}
	}
}

// Void makes everything stale that waits, since a stop has come.
func (t *Task) Void() {
	t.Decisions = slices.Clone(t.Decisions)
	for _, d := range t.Pending() {
		t.resolve(Resolution{DecisionID: d.ID, Stale: true})
	}
}

// LeaveOpen is what a crash or the end of the process does to running calls:
// nobody knows how they ended.
func (t *Task) LeaveOpen() {
	t.Unresolved = append(slices.Clone(t.Unresolved), t.Running...)
	t.Running = nil
}

func (t *Task) granted(f Granted) {
	if f.Token != nil {
		t.Token = f.Token
		return
	}
	if f.Access != nil {
		if !slices.Contains(t.Access, *f.Access) {
			t.Access = append(slices.Clone(t.Access), *f.Access)
		}
		return
	}
	t.Grants = slices.Clone(t.Grants)
	for i := range t.Grants {
		if t.Grants[i].ID == f.GrantID {
			t.Grants[i].State = f.State
			return
		}
	}
	t.Grants = append(t.Grants, Grant{ID: f.GrantID, Issuer: f.Issuer, Generation: f.Generation, State: f.State})
}

func (t *Task) revoking(f RevocationStarted, at time.Time) {
	r := &Revocation{StopID: f.StopID, State: "in_flight", Issuers: map[string]IssuerResult{}}
	if t.Revocation != nil {
		for name, res := range t.Revocation.Issuers {
			// What failed and is not asked any more went by another name.
			if res.Result == Acknowledged || slices.Contains(f.Issuers, name) {
				r.Issuers[name] = res
			}
		}
	}
	for _, name := range f.Issuers {
		r.Issuers[name] = IssuerResult{Result: "in_flight", Attempts: r.Issuers[name].Attempts, At: at}
	}
	t.Revocation = r
	t.Revocation.State = t.Revocation.sum()
}

func (t *Task) revoked(f RevocationResult, at time.Time) {
	r := &Revocation{StopID: f.StopID, Issuers: map[string]IssuerResult{}}
	if t.Revocation != nil {
		for name, res := range t.Revocation.Issuers {
			r.Issuers[name] = res
		}
	}
	r.Issuers[f.Issuer] = IssuerResult{Result: f.Result, Detail: f.Detail, Evidence: f.Evidence, Attempts: f.Attempt, Retryable: f.Retryable, At: at}
	r.State = r.sum()
	t.Revocation = r
	state := "revoked"
	switch f.Result {
	case Acknowledged:
	case Waived:
		state = Waived // an operator takes it on; nothing was revoked
	default:
		return
	}
	t.Grants = slices.Clone(t.Grants)
	for i := range t.Grants {
		if t.Grants[i].Issuer == f.Issuer && !t.Grants[i].Over() {
			t.Grants[i].State = state
		}
	}
	t.Access = slices.DeleteFunc(slices.Clone(t.Access), func(a Access) bool { return SameIssuer(f.Issuer, a.Issuer) })
}

// SameIssuer says whether a harness's name for an issuer means the revoker
// instance of a ref like "revoker.webhook.bank": the ref, the plugin's name or
// the instance's.
func SameIssuer(ref, name string) bool {
	if ref == name {
		return true
	}
	parts := strings.SplitN(ref, ".", 3)
	return len(parts) == 3 && (parts[1] == name || parts[2] == name)
}

// sum is in_flight, partial or done.
func (r *Revocation) sum() string {
	state := "done"
	for _, res := range r.Issuers {
		switch res.Result {
		case "in_flight":
			return "in_flight"
		case Acknowledged, Waived:
		default:
			state = "partial"
		}
	}
	return state
}
