package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// Approval is a human's answer to a decision that waits.
type Approval struct {
	DecisionID  string
	Action      string               // one of governance.Actions
	Intent      *governance.Envelope // modify_intent: the whole envelope
	Explanation string
	Fingerprint string // what the human saw; empty: not checked
	Actor       string
}

// Reply answers an approval (surface, "JSON that others read").
type Reply struct {
	Accepted   bool               `json:"accepted"`
	DecisionID string             `json:"decision_id"`
	ResolvedID string             `json:"resolved_decision_id"` // empty for stop_agent
	Status     governance.Outcome `json:"status"`               // of the decision that took its place
	Epoch      uint64             `json:"epoch"`
	Sequence   uint64             `json:"sequence"` // of the last event that it led to
}

// Approve carries a human's answer out. Each answer is taken once: a second one
// is *governance.Refused with code resolved or stale_epoch. An envelope that is
// not whole is governance.ErrEnvelope.
func (e *Engine) Approve(ctx context.Context, taskID string, ap Approval) (Reply, error) {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return Reply{}, err
	}
	record := governance.Approved{DecisionID: ap.DecisionID, Action: ap.Action, Actor: ap.Actor, Explanation: ap.Explanation, Fingerprint: ap.Fingerprint}
	switch ap.Action {
	case governance.StopAgent:
		return e.approveStop(a, record)
	case governance.ModifyIntent:
		if ap.Intent == nil {
			return Reply{}, fmt.Errorf("%w: modify_intent needs modified_intent, a complete envelope", governance.ErrEnvelope)
		}
		if err := ap.Intent.Valid(); err != nil {
			return Reply{}, err
		}
	case governance.ApproveOnce, governance.Reject, governance.AskToReplan:
	default:
		return Reply{}, fmt.Errorf("action must be approve_once, reject, modify_intent, ask_agent_to_replan or stop_agent, not %q: %w", ap.Action, ErrInvalid)
	}
	for {
		reply, err := e.approveOnce(ctx, a, ap, record)
		if !errors.Is(err, governance.ErrEpoch) {
			return reply, unknown(err)
		}
	}
}

// approveOnce is one attempt; ErrEpoch when the task went on meanwhile.
func (e *Engine) approveOnce(ctx context.Context, a *actor, ap Approval, record governance.Approved) (Reply, error) {
	m := a.settled()
	d, err := m.Task.Open(e.guard(a, &m), ap.DecisionID)
	if err != nil {
		return Reply{}, err
	}
	old := *d
	j, c, err := e.resolution(ctx, a, &m, &old, ap)
	if err != nil {
		return Reply{}, err
	}
	var seq uint64
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		g := e.guard(a, m)
		if g.Epoch != old.Epoch {
			return nil, governance.ErrEpoch
		}
		var facts []mission.Fact
		var err error
		if ap.Action == governance.ModifyIntent {
			facts, err = m.ModifyIntent(g, record, ap.Intent, j.decided, e.question(j.decided, c))
		} else {
			facts, err = m.AnswerApproval(g, record, j.decided, e.question(j.decided, c))
		}
		seq = a.head.Sequence + uint64(len(facts))
		return facts, err
	}, nil)
	switch {
	case errors.Is(err, ErrUnavailable):
		return Reply{}, noJournal(err)
	case err != nil:
		return Reply{}, err
	}
	a.keepArgs(j)
	if ap.Action == governance.ModifyIntent {
		e.rejudge(ctx, a) // whatever else waited is void by the new envelope
	}
	return Reply{Accepted: true, DecisionID: ap.DecisionID, ResolvedID: j.decided.DecisionID,
		Status: j.decided.Decision.Status, Epoch: j.decided.Epoch, Sequence: seq}, nil
}

// resolution makes the decision that takes the place of one that waited.
func (e *Engine) resolution(ctx context.Context, a *actor, m *mission.Mission, d *governance.Decision, ap Approval) (judgement, call, error) {
	c, err := e.again(a, d)
	if err != nil {
		return judgement{}, c, err
	}
	var j judgement
	switch ap.Action {
	case governance.ApproveOnce:
		for _, f := range d.Findings {
			c.waived = append(c.waived, f.ID)
		}
		j = e.judge(ctx, a, m, c)
	case governance.ModifyIntent:
		// The human has seen and answered what asked for one; everything else is
		// judged under the new envelope and may well block the call.
		for _, f := range d.Findings {
			if f.Outcome.Waits() {
				c.waived = append(c.waived, f.ID)
			}
		}
		c.intent, c.epoch = ap.Intent, m.Epoch+1
		j = e.judge(ctx, a, m, c)
	case governance.Reject:
		j = e.verdict(a, m, c, governance.Block, said("rejected by "+ap.Actor, ap.Explanation))
	case governance.AskToReplan:
		j = e.verdict(a, m, c, governance.Replan, said(ap.Actor+" asks for another plan", ap.Explanation))
	}
	j.decided.ArgsDigest = d.ArgsDigest
	if v := &j.decided.Decision; v.Status == governance.Allow { // what the agent reads
		v.Reason = said("approved by "+ap.Actor, ap.Explanation)
	}
	return j, c, nil
}

// verdict is a decision that no rule made.
func (e *Engine) verdict(a *actor, m *mission.Mission, c call, o governance.Outcome, reason string) judgement {
	sp, _ := a.spec() // only its time-outs are used, for decisions that wait
	v := gate.Verdict{Outcome: o, Reason: reason, Args: c.args, Findings: []governance.Finding{{ID: "approval", Stage: "approval", Outcome: o, Reason: reason}}}
	return e.record(m, c, v, m.Task.Intent, m.Epoch, e.rules(), sp)
}

func said(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// approveStop is stop_agent: the same path as any stop, the latch before the
// record.
func (e *Engine) approveStop(a *actor, record governance.Approved) (Reply, error) {
	m := a.settled()
	if _, err := m.Task.Open(e.guard(a, &m), record.DecisionID); err != nil {
		return Reply{}, unknown(err)
	}
	record.V = 1
	err := e.stopWith(a, mission.Stop{Actor: record.Actor, By: "operator", Reason: said("stop_agent", record.Explanation)}, record)
	m = a.settled()
	return Reply{Accepted: true, DecisionID: record.DecisionID, Status: governance.Block, Epoch: m.Epoch, Sequence: a.sequence()}, err
}

// unknown makes a decision or call that the task does not have a plain not
// found.
func unknown(err error) error {
	if errors.Is(err, governance.ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// expire ends the waiting of a decision: REPLAN, also under fail_open.
func (e *Engine) expire(a *actor, decisionID string) {
	err := a.insist(func(m *mission.Mission) ([]mission.Fact, error) {
		g := e.guard(a, m)
		d, err := m.Task.Open(g, decisionID)
		if err != nil {
			return nil, err
		}
		c := call{Proposal: Proposal{ProposalID: d.ProposalID, Tool: d.Tool, Provenance: d.Provenance, Boundary: d.Boundary}, digest: d.ArgsDigest}
		if c.args, _ = a.argsOf(d); c.args == nil {
			c.args = json.RawMessage("{}")
		}
		j := e.verdict(a, m, c, governance.Replan, "nobody answered in time (approval_timeout)")
		return m.Expire(g, decisionID, j.decided)
	}, nil)
	var refused *governance.Refused
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, governance.ErrUnknown) {
		a.log().Warn("an approval that ran out could not be closed", "decision", decisionID, "error", err)
	}
}

// watchExpiry keeps a timer for every decision that waits. It is called with
// each committed state, in order.
func (a *actor) watchExpiry(m *mission.Mission) {
	if len(m.Task.Decisions) == 0 && len(a.timers) == 0 {
		return
	}
	waits := map[string]bool{}
	for _, d := range m.Task.Pending() {
		waits[d.ID] = true
		if _, on := a.timers[d.ID]; on || d.ExpiresAt == nil {
			continue
		}
		if a.timers == nil {
			a.timers = map[string]*time.Timer{}
		}
		id := d.ID
		a.timers[id] = time.AfterFunc(d.ExpiresAt.Sub(a.eng.now()), func() {
			a.eng.goRun(func(context.Context) { a.eng.expire(a, id) })
		})
	}
	for id, t := range a.timers {
		if !waits[id] {
			t.Stop()
			delete(a.timers, id)
		}
	}
	a.secretArgs.Range(func(id, _ any) bool {
		if d, ok := m.Task.Decision(id.(string)); !ok || d.Consumed {
			a.dropArgs(id.(string))
		}
		return true
	})
}
