package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// policyTimeout is how long a policy plugin may think where its block says
// nothing.
const policyTimeout = 5 * time.Second

// errNoOpinion is all that a verdict says of a plugin's failure: its own text
// could hold an argument's value.
var errNoOpinion = errors.New("no answer in time, or an error; see the host's log")

// tighten asks the policy plugins side by side; they can only make a verdict
// more severe (rulings 17). A call that is blocked already is not shown to them.
func (e *Engine) tighten(ctx context.Context, rules *gate.Rules, in gate.Input, proposalID string, v *gate.Verdict) {
	list := rules.Plugins()
	if len(list) == 0 || v.Outcome == governance.Block {
		return
	}
	found := make([][]governance.Finding, len(list))
	errs := make([]error, len(list))
	req := evaluateRequest(in, proposalID, v)
	var wg sync.WaitGroup
	for i := range list {
		wg.Go(func() { found[i], errs[i] = e.askPolicy(ctx, &list[i], req) })
	}
	wg.Wait()
	for i := range list {
		if errs[i] != nil {
			e.log.Error("policy plugin gave no opinion", "plugin", list[i].Name, "task", in.Mission.ID, "on_failure", list[i].OnFailure, "error", errs[i])
			*v = rules.PluginFailed(*v, list[i], errNoOpinion)
			continue
		}
		*v = rules.Tighten(*v, found[i])
	}
}

func (e *Engine) askPolicy(ctx context.Context, p *config.PolicyPlugin, req *pluginv1.EvaluateRequest) ([]governance.Finding, error) {
	timeout := p.Timeout
	if timeout <= 0 {
		timeout = policyTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := e.opts.Plugins.Policy(p.Ref())
	if err != nil {
		return nil, err
	}
	resp, err := client.Evaluate(ctx, req)
	if err != nil {
		return nil, err
	}
	var list []governance.Finding
	for _, f := range resp.GetFindings() {
		list = append(list, governance.Finding{ID: "plugin/" + p.Name + "/" + f.GetRule(), Rule: p.Name, Outcome: outcomeOf(f.GetOutcome()), Reason: f.GetReason()})
	}
	return list, nil
}

func evaluateRequest(in gate.Input, proposalID string, v *gate.Verdict) *pluginv1.EvaluateRequest {
	req := &pluginv1.EvaluateRequest{TaskId: in.Mission.ID, Agent: in.Mission.Agent, Objective: in.Mission.Objective,
		Proposal: &pluginv1.Proposal{ProposalId: proposalID, Tool: in.Tool, Args: v.Args, Provenance: in.Provenance},
		Outcome:  wireDecision(v.Outcome), Risk: string(v.Risk)}
	if in.Intent != nil {
		req.IntentJson = in.Intent.JSON()
	}
	for _, f := range v.Findings {
		req.Findings = append(req.Findings, &pluginv1.PolicyFinding{Rule: f.ID, Outcome: wireDecision(f.Outcome), Reason: f.Reason})
	}
	for _, h := range in.History {
		req.History = append(req.History, &pluginv1.PastCall{Tool: h.Tool, Status: h.Status})
	}
	return req
}

// outcomeOf is empty, and so unknown to the gate, for an unspecified decision.
func outcomeOf(d pluginv1.Decision) governance.Outcome {
	switch d {
	case pluginv1.Decision_DECISION_ALLOW:
		return governance.Allow
	case pluginv1.Decision_DECISION_WARN:
		return governance.Warn
	case pluginv1.Decision_DECISION_CHALLENGE:
		return governance.Challenge
	case pluginv1.Decision_DECISION_REPLAN:
		return governance.Replan
	case pluginv1.Decision_DECISION_PAUSE:
		return governance.Pause
	case pluginv1.Decision_DECISION_ESCALATE:
		return governance.Escalate
	case pluginv1.Decision_DECISION_BLOCK:
		return governance.Block
	default:
		return ""
	}
}
