package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// ErrInvalid says that a proposal is not well formed; the text names the place.
var ErrInvalid = errors.New("invalid")

// maxName is the longest tool name, in bytes.
const maxName = 512

// maxKept are the largest arguments that are stored with a decision, in bytes;
// larger ones are held in memory only.
const maxKept = 16 << 10

// maxHistory is how many calls a condition can look back on.
const maxHistory = 50

// call is a proposal that was read and made canonical.
type call struct {
	Proposal
	args   json.RawMessage // canonical
	digest string          // of args
	waived []string        // ids of findings that an approval covers
	link   string          // the decision that this one follows from
	intent *governance.Envelope
	epoch  uint64 // under which it is judged; 0: the task's
}

// judgement is the verdict on a call, ready to be journalled.
type judgement struct {
	proposed governance.Proposed
	decided  governance.Decided
	args     json.RawMessage // what would run
	kept     bool            // args are part of the decision: nothing in them is redacted
}

func (e *Engine) rules() *gate.Rules { return e.gateRules.Load() }

// prepare checks a proposal's form.
func (e *Engine) prepare(p Proposal) (call, error) {
	switch {
	case p.Tool == "":
		return call{}, fmt.Errorf("tool_name must not be empty: %w", ErrInvalid)
	case len(p.Tool) > maxName || len(p.ProposalID) > 4*maxID:
		return call{}, fmt.Errorf("tool_name may have %d bytes and proposal_id %d: %w", maxName, 4*maxID, ErrInvalid)
	}
	args, err := gate.Canonical(p.Args)
	if err != nil {
		return call{}, fmt.Errorf("tool_args: %w: %w", ErrInvalid, err)
	}
	if args, err = cutEnvelope(p.Tool, args); err != nil {
		return call{}, fmt.Errorf("tool_args: %w: %w", ErrInvalid, err)
	}
	return call{Proposal: p, args: args, digest: governance.Digest(args)}, nil
}

// judge runs every stage of the gate over a call, as the task is now.
func (e *Engine) judge(ctx context.Context, a *actor, m *mission.Mission, c call) judgement {
	rules := e.rules()
	intent := m.Task.Intent
	if c.intent != nil {
		intent = c.intent
	}
	epoch := m.Epoch
	if c.epoch > 0 {
		epoch = c.epoch
	}
	in := gate.Input{Tool: c.Tool, Provenance: c.Provenance, Args: c.args, Intent: intent, Waived: c.waived, Now: e.now()}
	in.Mission.ID, in.Mission.Agent, in.Mission.Runtime, in.Mission.Objective = m.ID, m.Agent, m.RuntimeName, m.Objective
	in.Spent.CostMicroUSD, in.Spent.Tokens = m.CostMicro, m.Tokens
	sp, err := a.spec()
	if err == nil {
		in.Limits.CostMicroUSD, in.Limits.Tokens = sp.MaxCostMicro, sp.MaxTokens
	}
	for _, act := range m.Task.Actions[max(0, len(m.Task.Actions)-maxHistory):] {
		in.History = append(in.History, gate.HistoryEntry{Tool: act.Tool, Status: string(act.Status)})
	}
	v := rules.Evaluate(in)
	e.tighten(ctx, rules, in, c.ProposalID, &v)
	return e.record(m, c, v, intent, epoch, rules, sp)
}

// record turns a verdict into the facts that say it.
func (e *Engine) record(m *mission.Mission, c call, v gate.Verdict, intent *governance.Envelope, epoch uint64, rules *gate.Rules, sp spec) judgement {
	args := v.Args
	if len(args) == 0 {
		args = c.args
	}
	shown := recorded(rules, c.Tool, c.args)
	willRun := shown
	if string(args) != string(c.args) {
		willRun = recorded(rules, c.Tool, args)
	}
	j := judgement{args: args, kept: len(args) <= maxKept && string(shown) == string(c.args) && string(willRun) == string(args)}
	j.proposed = governance.Proposed{ProposalID: c.ProposalID, Tool: c.Tool, Args: shown, ArgsDigest: c.digest,
		Provenance: c.Provenance, Parent: c.Parent, Metadata: c.Metadata}
	id := newUUID()
	var risk *governance.Risk
	if v.Risk != "" {
		risk = &v.Risk
	}
	var link *string
	if c.link != "" {
		link = &c.link
	}
	n := m.Task.Counters.Proposed
	j.decided = governance.Decided{
		DecisionID: id, ProposalID: c.ProposalID, Epoch: epoch, Tool: c.Tool, Provenance: c.Provenance, ArgsDigest: c.digest,
		Fingerprint: e.print(m, intent, epoch, c.ProposalID, c.Tool, c.Provenance, args),
		Decision: governance.Record{Status: v.Outcome, Risk: risk, Reason: v.Reason, DecisionPoint: "tool_call",
			Trigger: &governance.Trigger{Tool: c.Tool, Args: shown}, EscalationRequired: v.EscalationRequired || v.Outcome.Waits(),
			CausalLink: link, Findings: append([]governance.Finding{}, v.Findings...)},
		Context: governance.Context{Intent: intent, HistoryFrom: max(0, n-maxHistory), HistoryTo: n,
			NotEvaluated: append([]string{}, v.NotEvaluated...), Waived: c.waived},
		PolicyHash: rules.PolicyDigest(), RulesDigest: rules.Digest(),
		ParentDecision: c.ParentDecision, ParentPlanStep: c.ParentPlanStep, Boundary: c.Boundary,
	}
	if v.Rewritten {
		j.decided.UpdatedArgs = willRun
	}
	if v.Outcome.Waits() && sp.QuestionTimeout > 0 {
		at := e.now().UTC().Add(sp.QuestionTimeout)
		j.decided.ExpiresAt = &at
	}
	if j.kept {
		j.decided = j.decided.Keep(args)
	}
	return j
}

// fingerprint is what a call about to run must match.
func (e *Engine) fingerprint(m *mission.Mission, epoch uint64, proposalID, tool, provenance string, args json.RawMessage) string {
	return e.print(m, m.Task.Intent, epoch, proposalID, tool, provenance, args)
}

func (e *Engine) print(m *mission.Mission, intent *governance.Envelope, epoch uint64, proposalID, tool, provenance string, args json.RawMessage) string {
	rules := e.rules()
	return governance.Judged{TaskID: m.ID, Epoch: epoch, ProposalID: proposalID, Tool: tool, Provenance: provenance, Args: args,
		Intent: intent.Digest(), Rules: rules.Digest(), Mode: rules.Mode(), CellID: m.CellID}.Fingerprint()
}

// question is what a human is asked where the decision waits.
func (e *Engine) question(d governance.Decided, c call) mission.Question {
	return mission.Question{AskedAt: e.now().UTC(),
		Prompt:  fmt.Sprintf("Tool call %s waits for an approval: %s. Answer with approve_once, reject, modify_intent {json}, ask_agent_to_replan or stop_agent.", c.Tool, d.Decision.Reason),
		Context: string(d.Decision.Trigger.Args), Options: governance.Actions()}
}

// keepArgs holds arguments in memory that must not be stored, until their
// decision is used.
// What waits for a human is sealed too, before anybody is told of it.
func (a *actor) keepArgs(j judgement) {
	waits := j.decided.Decision.Status.Waits()
	if j.kept || !waits && !j.decided.Decision.Status.Runs() {
		return
	}
	a.secretArgs.Store(j.decided.DecisionID, j.args)
	if !waits {
		return
	}
	if err := a.eng.sealed.put(a.id, j.decided.DecisionID, j.args); err != nil {
		a.eng.log.Warn("the arguments of a call that waits are not kept over a restart; the process must propose it again then", "task", a.id, "decision", j.decided.DecisionID, "error", err)
	}
}

// dropArgs forgets the arguments of a decision that is over.
func (a *actor) dropArgs(decisionID string) {
	a.secretArgs.Delete(decisionID)
	if err := a.eng.sealed.drop(a.id, decisionID); err != nil {
		a.eng.log.Warn("sealed arguments could not be removed", "task", a.id, "decision", decisionID, "error", err)
	}
}

// argsOf are the arguments that a decision was made for; false: they are not
// known any more, and the process must propose again.
func (a *actor) argsOf(d *governance.Decision) (json.RawMessage, bool) {
	if d.Args != nil {
		return d.Args, true
	}
	if v, ok := a.secretArgs.Load(d.ID); ok {
		return v.(json.RawMessage), true
	}
	if !d.Waits() {
		return nil, false
	}
	args, ok := a.eng.sealed.get(a.id, d.ID)
	if ok {
		a.secretArgs.Store(d.ID, args) // so that it is dropped with the decision
	}
	return args, ok
}

// judged shows a decision that was just made or found.
func (e *Engine) judged(a *actor, d governance.Decision, err error) (Judged, error) {
	if err != nil {
		return Judged{}, err
	}
	j := Judged{ProposalID: d.ProposalID, DecisionID: d.ID, Epoch: d.Epoch, Fingerprint: d.Fingerprint, Decision: d.Record()}
	if d.Rewritten {
		j.UpdatedArgs, _ = a.argsOf(&d)
	}
	return j, nil
}

// Decision shows a decision of a task and what resolved it.
func (e *Engine) Decision(ctx context.Context, taskID, decisionID string) (Judged, error) {
	m, err := e.find(ctx, taskID)
	if err != nil {
		return Judged{}, err
	}
	if d, ok := m.Task.Decision(decisionID); ok && !d.Consumed {
		if a := e.actor(taskID); a != nil {
			return e.judged(a, *d, nil)
		}
	}
	var found *governance.Decided
	err = e.scan(ctx, taskID, func(f governance.Fact) bool {
		if d, ok := f.(governance.Decided); ok && d.DecisionID == decisionID {
			found = &d
		}
		return found == nil
	})
	switch {
	case err != nil:
		return Judged{}, err
	case found == nil:
		return Judged{}, fmt.Errorf("decision %q: %w", decisionID, ErrNotFound)
	}
	j := Judged{ProposalID: found.ProposalID, DecisionID: found.DecisionID, Epoch: found.Epoch, Fingerprint: found.Fingerprint,
		Decision: found.Decision, UpdatedArgs: found.UpdatedArgs}
	j.Decision.Trigger = nil
	if r, ok := m.Task.ResolvedBy(decisionID); ok {
		j.ResolvedBy = r.By
	}
	return j, nil
}

// scan reads a task's facts from its journal, oldest first, until told to stop.
func (e *Engine) scan(ctx context.Context, taskID string, take func(governance.Fact) bool) error {
	for after := uint64(0); ; {
		page, err := e.opts.Store.Events(ctx, taskID, after, 100)
		if err != nil {
			return unavailable(err)
		}
		for _, ev := range page {
			f, err := governance.Decode(ev.Kind, []byte(ev.Payload))
			if err != nil {
				return err
			}
			if f != nil && !take(f) {
				return nil
			}
			after = ev.Sequence
		}
		if len(page) == 0 {
			return nil
		}
	}
}

// rejudge judges everything that waits under an older epoch again, with new
// decision ids (rulings 14). What cannot be judged without the process stays
// void until it proposes again.
func (e *Engine) rejudge(ctx context.Context, a *actor) {
	for {
		m := a.settled()
		i := slices.IndexFunc(m.Task.Decisions, func(d governance.Decision) bool {
			_, known := a.argsOf(&d)
			return d.Waits() && d.Epoch != m.Epoch && known
		})
		if i < 0 || e.guard(a, &m).Stopped {
			return
		}
		if d := &m.Task.Decisions[i]; d.Boundary == governance.BoundaryMCP {
			if _, waits := a.callers.Load(d.ProposalID); !waits { // its call ended with an earlier life of the host
				if err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) { return m.Withdraw(d.ProposalID, callerGone) }, nil); err != nil {
					return // it stays void
				}
				continue
			}
		}
		if err := e.judgeAgain(ctx, a, &m, m.Task.Decisions[i]); err != nil {
			a.log().Error("a call that waits could not be judged again; it stays void until it is proposed again", "decision", m.Task.Decisions[i].ID, "error", err)
			return
		}
	}
}

func (e *Engine) judgeAgain(ctx context.Context, a *actor, m *mission.Mission, d governance.Decision) error {
	c, err := e.again(a, &d)
	if err != nil {
		return err
	}
	j := e.judge(ctx, a, m, c)
	j.decided.ExpiresAt = earlier(j.decided.ExpiresAt, d.ExpiresAt) // the time-out runs on (rulings 15)
	return e.decideAgain(a, d, c, j)
}

// decideAgain commits a new decision on a call that was decided on before.
func (e *Engine) decideAgain(a *actor, d governance.Decision, c call, j judgement) error {
	j.proposed.ArgsDigest, j.decided.ArgsDigest = d.ArgsDigest, d.ArgsDigest
	err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		return m.Propose(e.guard(a, m), j.proposed, j.decided, e.question(j.decided, c))
	}, nil)
	if errors.Is(err, governance.ErrEpoch) {
		return nil // the loop sees the newer epoch
	}
	if err == nil {
		a.keepArgs(j)
	}
	return err
}

// again is the call of a decision that is to be judged once more.
func (e *Engine) again(a *actor, d *governance.Decision) (call, error) {
	args, ok := a.argsOf(d)
	if !ok {
		return call{}, &governance.Refused{Code: governance.CodeStale, Detail: "its arguments are not known any more (a rule redacts them): the process has to propose the call again"}
	}
	c, err := e.prepare(Proposal{ProposalID: d.ProposalID, Tool: d.Tool, Args: args, Provenance: d.Provenance, Boundary: d.Boundary})
	c.link = d.ID
	return c, err
}

// carry takes what a human has answered, and no call has used yet, over a restart
// of the host: an approval covers the same findings as before, and a refusal
// stays one. The rules of now are asked all the same.
func (e *Engine) carry(ctx context.Context, a *actor) {
	for {
		m := a.settled()
		i := slices.IndexFunc(m.Task.Decisions, func(d governance.Decision) bool {
			_, known := a.argsOf(&d)
			return d.Epoch != m.Epoch && answered(&d) && known
		})
		if i < 0 || e.guard(a, &m).Stopped {
			return
		}
		d := m.Task.Decisions[i]
		if err := e.carryOne(ctx, a, &m, &d); err != nil {
			e.log.Error("a human's answer to a call could not be taken over the restart; the human is asked again", "task", a.id, "decision", d.ID, "error", err)
			return
		}
	}
}

// answered says that a decision came from a human's answer, or from the lack of
// one, and was not used.
func answered(d *governance.Decision) bool {
	if d.Consumed || d.Outcome.Waits() {
		return false
	}
	return len(d.Waived) > 0 || saidOutright(d)
}

// saidOutright: no rule made it (see verdict).
func saidOutright(d *governance.Decision) bool {
	return slices.ContainsFunc(d.Findings, func(f governance.Finding) bool { return f.Stage == "approval" })
}

func (e *Engine) carryOne(ctx context.Context, a *actor, m *mission.Mission, d *governance.Decision) error {
	c, err := e.again(a, d)
	if err != nil {
		return err
	}
	var j judgement
	if saidOutright(d) {
		j = e.verdict(a, m, c, d.Outcome, d.Reason)
	} else {
		c.waived = d.Waived
		j = e.judge(ctx, a, m, c)
	}
	return e.decideAgain(a, *d, c, j)
}

func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}
