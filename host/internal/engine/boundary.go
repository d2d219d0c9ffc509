package engine

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// boundary holds the calls of one stream to a runtime whose agent asks before
// each call (boundary = protocol). A stream that ends takes its waiting calls
// with it; their decisions stay, and the plugin proposes again on the next one.
type boundary struct {
	s        *liveSession
	send     func(*pluginv1.RunRequest) error
	caughtUp chan struct{} // closed once the replay is over
}

// retryJournal is how often a call is tried again that cannot be journalled.
const retryJournal = time.Second

// handle takes a message about a call; false: it is about something else. Calls
// are decided side by side; what a plugin says of one call stays in order, since
// it waits for the answer.
func (b *boundary) handle(ctx context.Context, msg *pluginv1.RunResponse, calls *sync.WaitGroup) bool {
	var do func()
	switch m := msg.GetMessage().(type) {
	case *pluginv1.RunResponse_Proposal:
		do = func() { b.proposal(ctx, m.Proposal) }
	case *pluginv1.RunResponse_Admit:
		do = func() { b.admit(m.Admit) }
	case *pluginv1.RunResponse_Settled:
		// At once: the session's end, which may follow, closes what is still open.
		b.settled(ctx, m.Settled)
		do = func() {}
	case *pluginv1.RunResponse_Withdrawn:
		do = func() {
			b.s.eng.withdraw(b.s.a, m.Withdrawn.GetProposalId(), "withdrawn by the agent")
			b.s.closeQuestion(b.s.questionID(mission.SourceRuntime, m.Withdrawn.GetProposalId()), "withdrawn")
		}
	case *pluginv1.RunResponse_Deferred:
		do = func() {} // the decision goes on waiting
	default:
		return false
	}
	b.s.touch()
	calls.Go(do)
	return true
}

// proposal has one call judged and answers with the verdict. Nothing is decided
// during a replay: the call may have been given up later in it.
func (b *boundary) proposal(ctx context.Context, p *pluginv1.Proposal) {
	select {
	case <-b.caughtUp:
	case <-ctx.Done():
		return
	}
	if b.s.past() {
		return
	}
	e, a := b.s.eng, b.s.a
	var d governance.Decision
	for {
		var err error
		d, err = e.propose(ctx, a, Proposal{ProposalID: p.GetProposalId(), Tool: p.GetTool(), Args: p.GetArgs(),
			Provenance: p.GetProvenance(), Parent: p.GetParent(), ParentDecision: a.decisionOf(p.GetParent()), Boundary: "protocol"})
		var refused *governance.Refused
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.Code == governance.CodeJournal:
			// Held, not refused: it is decided when the journal is back.
			if wait(ctx, retryJournal) != nil {
				return
			}
			continue
		default:
			b.verdict(p, governance.Decision{Outcome: governance.Block, Reason: err.Error()})
			return
		}
		break
	}
	if d.Waits() && !e.observes() {
		holdCtx, cancel := context.WithTimeout(ctx, max(b.s.spec.Hold, time.Millisecond))
		got, err := a.untilAnswered(holdCtx, d)
		cancel()
		if ctx.Err() != nil {
			return
		}
		var refused *governance.Refused
		if errors.As(err, &refused) {
			got.Outcome, got.Reason = governance.Block, refused.Detail
		}
		d = got // still waiting: the verdict says pause, and the agent defers the call
	}
	b.verdict(p, d)
}

// verdict answers a proposal.
func (b *boundary) verdict(p *pluginv1.Proposal, d governance.Decision) {
	v := &pluginv1.Verdict{ProposalId: p.GetProposalId(), Decision: wireDecision(d.Outcome), Reason: d.Reason}
	if b.s.eng.observes() && d.ID != "" {
		v.Decision = pluginv1.Decision_DECISION_ALLOW // recorded as it is, and not held
	}
	if fp, err := hex.DecodeString(d.Fingerprint); err == nil {
		v.Fingerprint = fp
	}
	if d.Rewritten {
		updated, _ := b.s.a.argsOf(&d)
		v.UpdatedArgs = withEnvelope(p.GetTool(), updated, p.GetArgs())
	}
	b.answer(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Verdict{Verdict: v}})
}

func (b *boundary) answer(m *pluginv1.RunRequest) {
	if err := b.send(m); err != nil {
		b.s.eng.log.Debug("an answer did not reach the runtime; it asks again", "mission", b.s.a.id, "error", err)
	}
}

// admit takes the reservation just before the call runs.
func (b *boundary) admit(ad *pluginv1.Admit) {
	if b.s.past() {
		b.refuse(ad.GetProposalId(), governance.CodeStopped)
		return
	}
	e, a := b.s.eng, b.s.a
	m := a.settled()
	d, ok := m.Task.Latest(ad.GetProposalId())
	if !ok {
		b.refuse(ad.GetProposalId(), governance.CodeNotAllowed)
		return
	}
	print := hex.EncodeToString(ad.GetFingerprint())
	id, err := e.admit(a, d.ID, func(*mission.Mission, *governance.Decision) string { return print })
	var refused *governance.Refused
	switch {
	case err == nil:
		b.admitted(ad.GetProposalId(), id)
	case errors.As(err, &refused):
		// A plugin that lost its state asks again for a call that runs.
		if id, runs := running(a, ad.GetProposalId()); runs && refused.Code == governance.CodeConsumed {
			b.admitted(ad.GetProposalId(), id)
			return
		}
		b.refuse(ad.GetProposalId(), refused.Code)
	default:
		b.refuse(ad.GetProposalId(), governance.CodeNotAllowed)
	}
}

func (b *boundary) admitted(proposalID, invocationID string) {
	b.answer(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Admitted{Admitted: &pluginv1.Admitted{ProposalId: proposalID, InvocationId: invocationID}}})
}

// running finds the call of a proposal that was admitted and has not ended.
func running(a *actor, proposalID string) (string, bool) {
	m := a.settled()
	for _, i := range m.Task.Running {
		if i.ProposalID == proposalID {
			return i.ID, true
		}
	}
	return "", false
}

func (b *boundary) refuse(proposalID, code string) {
	b.answer(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Refused{Refused: &pluginv1.Refused{ProposalId: proposalID, Why: code}}})
}

// settled records how a call ended. A repeated one, after a replay, is nothing
// new.
func (b *boundary) settled(ctx context.Context, st *pluginv1.Settled) {
	s := governance.Settled{InvocationID: st.GetInvocationId(), Outcome: governance.Unknown}
	switch st.GetOutcome() {
	case pluginv1.Outcome_OUTCOME_SUCCEEDED:
		s.Outcome = governance.Succeeded
	case pluginv1.Outcome_OUTCOME_FAILED:
		s.Outcome = governance.Failed
	case pluginv1.Outcome_OUTCOME_DEFINITELY_NOT_STARTED:
		s.Outcome = governance.NeverStarted
	}
	if d := st.GetDuration(); d != nil {
		ms := d.AsDuration().Milliseconds()
		s.DurationMS = &ms
	}
	if len(st.GetResultDigest()) > 0 {
		s.ResultDigest = hex.EncodeToString(st.GetResultDigest())
	}
	for {
		err := b.s.eng.settle(b.s.a, s)
		var refused *governance.Refused
		if errors.As(err, &refused) && refused.Code == governance.CodeJournal && wait(ctx, retryJournal) == nil {
			continue
		}
		if err != nil && !errors.As(err, &refused) {
			b.s.eng.log.Warn("the end of a call was not recorded", "mission", b.s.a.id, "invocation", s.InvocationID, "error", err)
		}
		return
	}
}

// decisionOf is the decision on a proposal of which another one is a part.
func (a *actor) decisionOf(proposalID string) string {
	if proposalID == "" {
		return ""
	}
	if d, ok := a.state().Task.Latest(proposalID); ok {
		return d.ID
	}
	return ""
}

func (e *Engine) observes() bool { return e.rules().Mode() == "observe" }

func wireDecision(o governance.Outcome) pluginv1.Decision {
	switch o {
	case governance.Allow:
		return pluginv1.Decision_DECISION_ALLOW
	case governance.Warn:
		return pluginv1.Decision_DECISION_WARN
	case governance.Challenge:
		return pluginv1.Decision_DECISION_CHALLENGE
	case governance.Replan:
		return pluginv1.Decision_DECISION_REPLAN
	case governance.Pause:
		return pluginv1.Decision_DECISION_PAUSE
	case governance.Escalate:
		return pluginv1.Decision_DECISION_ESCALATE
	default:
		return pluginv1.Decision_DECISION_BLOCK
	}
}
