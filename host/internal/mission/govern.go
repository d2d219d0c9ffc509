package mission

import (
	"fmt"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// Guard is what the mission's own state says to the gate.
func (m *Mission) Guard(observe bool) governance.Guard {
	return governance.Guard{Epoch: m.Epoch, Stopped: m.Latched() || m.Terminal(), Paused: m.Paused, Observe: observe}
}

// Propose takes a judged proposal in and asks a human where the decision says
// so. It gives nothing for a proposal that is known.
func (m *Mission) Propose(g governance.Guard, p governance.Proposed, d governance.Decided, ask Question) ([]Fact, error) {
	facts, err := m.Task.Propose(g, p, d)
	if err != nil || len(facts) == 0 {
		return nil, err
	}
	decided := facts[1].(governance.Decided)
	return append(lift(facts), m.waiting(decided, ask, "withdrawn", "")...), nil
}

// AnswerApproval resolves a decision that waits for a human; by takes its place.
func (m *Mission) AnswerApproval(g governance.Guard, a governance.Approved, by governance.Decided, ask Question) ([]Fact, error) {
	facts, err := m.Task.Answer(g, a, by)
	if err != nil {
		return nil, err
	}
	return append(lift(facts), m.waiting(facts[1].(governance.Decided), ask, "answered", a.Actor)...), nil
}

// ModifyIntent is AnswerApproval with another envelope: the envelope voids every
// earlier verdict first, then the proposal is judged under it (A4).
func (m *Mission) ModifyIntent(g governance.Guard, a governance.Approved, e *governance.Envelope, by governance.Decided, ask Question) ([]Fact, error) {
	if _, err := m.Task.Open(g, a.DecisionID); err != nil {
		return nil, err
	}
	changed, err := m.Task.SetIntent(g, e, a.Actor)
	if err != nil {
		return nil, err
	}
	rest, err := m.AnswerApproval(g, a, by, ask)
	if err != nil {
		return nil, err
	}
	// The record of the answer comes first, then what it changed, then the verdict.
	return append(append([]Fact{rest[0]}, lift(changed)...), rest[1:]...), nil
}

// Expire ends the waiting of a decision that nobody answered in time: REPLAN,
// whatever the failure policy says (F5).
func (m *Mission) Expire(g governance.Guard, decisionID string, by governance.Decided) ([]Fact, error) {
	d, err := m.Task.Open(g, decisionID)
	if err != nil {
		return nil, err
	}
	by.V, by.Decision.CausalLink = version, &d.ID
	return append([]Fact{by}, m.waiting(by, Question{}, "expired", "")...), nil
}

// waiting gives the questions that a new decision closes and opens.
func (m *Mission) waiting(d governance.Decided, ask Question, outcome, actor string) []Fact {
	var facts []Fact
	if link := d.Decision.CausalLink; link != nil {
		if q, open := m.Question(*link); open {
			facts = append(facts, Answered{V: version, HITLID: q.HITLID, Outcome: outcome, Actor: actor})
		}
	}
	if !d.Decision.Status.Waits() {
		return append(facts, m.others(d)...)
	}
	ask.HITLID, ask.MissionID, ask.Source, ask.SourceID = d.DecisionID, m.ID, SourceApproval, d.DecisionID
	ask.ExpiresAt = d.ExpiresAt
	facts = append(facts, Asked{V: version, Question: ask})
	if m.Paused {
		facts = append(facts, Paused{V: version, Epoch: m.Epoch, Reason: m.PausedReason, Again: true})
	}
	return facts
}

// others restates the questions that stay open when one was closed.
func (m *Mission) others(d governance.Decided) []Fact {
	var facts []Fact
	if d.Decision.CausalLink == nil {
		return nil
	}
	if _, open := m.Question(*d.Decision.CausalLink); !open {
		return nil
	}
	for _, q := range m.Questions {
		if q.HITLID != *d.Decision.CausalLink {
			facts = append(facts, Asked{V: version, Question: q, Again: true})
		}
	}
	return facts
}

// Withdraw gives up a proposal that was never admitted, and closes the question
// that stands for it: nobody waits for the answer.
func (m *Mission) Withdraw(proposalID, why string) ([]Fact, error) {
	d, _ := m.Task.Latest(proposalID)
	facts, err := Govern(m.Task.Withdraw(proposalID, why), nil)
	if err != nil || len(facts) == 0 {
		return facts, err
	}
	if _, open := m.Question(d.ID); !open {
		return facts, nil
	}
	closed, err := m.Close(d.ID, "withdrawn", "")
	return append(facts, closed...), err
}

// ChangeRules puts other rules in force: every verdict before is void. A mission
// that goes by them already, or that is over or stopped for good, is left alone.
func (m *Mission) ChangeRules(c governance.RulesChanged) []Fact {
	if m.Terminal() || m.Latched() && !m.Harness || m.Task.Rules == c.Digest {
		return nil
	}
	c.V, c.Epoch = version, m.Epoch+1
	return []Fact{c}
}

// Replan holds the task until an explicit resume (C6).
func (m *Mission) Replan(actor, reason string) ([]Fact, error) {
	if err := m.alive("replan"); err != nil {
		return nil, err
	}
	if m.Latched() {
		return nil, fmt.Errorf("replan: the task is stopped: %w", ErrIllegal)
	}
	if m.Paused {
		return nil, fmt.Errorf("replan: the task is paused (%s): %w", m.PausedReason, ErrIllegal)
	}
	return []Fact{ReplanAsked{V: version, Epoch: m.Epoch + 1, Actor: actor, Reason: reason}}, nil
}

// restartHarness opens a stopped task again; it renews no access (C7).
func (m *Mission) restartHarness(actor string) ([]Fact, error) {
	if !m.Latched() {
		return nil, &governance.Refused{Code: governance.CodeNotStopped, Detail: "only a stopped task can be restarted"}
	}
	if !m.Stop.Done {
		return nil, &governance.Refused{Code: governance.CodeRevocation, Detail: "the stop is not through yet"}
	}
	if err := m.Task.MayRestart(); err != nil {
		return nil, err
	}
	return []Fact{Restarted{V: version, Epoch: m.Epoch + 1, Actor: actor}}, nil
}

// EndHarness ends a harness task that is stopped already.
func (m *Mission) EndHarness() ([]Fact, error) {
	if err := m.alive("abort"); err != nil {
		return nil, err
	}
	if !m.Harness || !m.Latched() || !m.Stop.Done {
		return nil, fmt.Errorf("abort: the task is not stopped: %w", ErrIllegal)
	}
	return append(m.settleCalls(Ended{}), Ended{V: version, State: StateAborted, Reason: m.Stop.Reason, AbortedBy: m.Stop.By, Tokens: m.Tokens}), nil
}

// RestoreHarness is what a restart of the host does to a task without a cell:
// it comes back stopped (X1), and what ran is left open (X2).
func (m *Mission) RestoreHarness(stopID string) ([]Fact, error) {
	switch {
	case m.Terminal():
		return nil, nil
	case m.Latched() && len(m.Task.Running) > 0: // its calls' outcomes are not known any more
		return []Fact{Reconnected{V: version, Planned: true, Resumes: m.Resumes, Epoch: m.Epoch + 1}}, nil
	case m.Latched():
		return nil, nil
	}
	return []Fact{Stopped{V: version, Epoch: m.Epoch + 1, Stop: Stop{ID: stopID, Actor: "airlock", By: "system", Reason: "restored", Restored: true, Done: true}}}, nil
}

func (f Progressed) used() bool { return f.Tokens != 0 || f.CostMicro != 0 }

// Spend adds to what the mission has used.
func (m *Mission) Spend(tokens, costMicro int64) ([]Fact, error) {
	if err := m.alive("usage"); err != nil {
		return nil, err
	}
	return []Fact{Progressed{V: version, Tokens: m.Tokens + tokens, CostMicro: m.CostMicro + costMicro}}, nil
}

// Launch is the boundary of the proposal that starts a session (rulings 18).
const Launch = "launch"

// settleCalls ends the calls that still run when the mission does. The launch
// ends as the session did; of the others nobody knows.
func (m *Mission) settleCalls(e Ended) []Fact {
	var facts []Fact
	for _, i := range m.Task.Running {
		s := governance.Settled{V: version, DecisionID: i.DecisionID, InvocationID: i.ID, Outcome: governance.Unknown,
			Error: "the mission ended while the call ran"}
		if i.Boundary == Launch {
			s.Outcome, s.Error = governance.Failed, e.Reason
			if e.State == StateDone {
				s.Outcome, s.Error = governance.Succeeded, ""
			}
		}
		facts = append(facts, s)
	}
	return facts
}

// Owes says that access was given, or is being taken back, and nobody has
// acknowledged yet that it is gone.
func (m *Mission) Owes() bool {
	if r := m.Task.Revocation; r != nil && r.State != "done" {
		return true
	}
	for _, g := range m.Task.Grants {
		if !g.Over() {
			return true
		}
	}
	return false
}

// Govern lifts facts of the task, as they come from its own functions.
func Govern(facts []governance.Fact, err error) ([]Fact, error) { return lift(facts), err }

func lift(facts []governance.Fact) []Fact {
	out := make([]Fact, len(facts))
	for i, f := range facts {
		out[i] = f
	}
	return out
}
