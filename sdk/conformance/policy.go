package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Judge is the other side of a policy plugin: what it asks, as far as a test
// has that in its hands. A check whose hook is nil is not declared.
type Judge struct {
	// Object is a call that the plugin must object to, at least as severely as
	// Severity.
	Object   *pluginv1.Proposal
	Severity pluginv1.Decision
	// Pass is a call that the plugin has nothing to say about.
	Pass *pluginv1.Proposal
	// Away takes the judge away. back brings it back.
	Away func(context.Context) (back func() error, err error)
	// Stall makes the judge take requests and leave them unanswered.
	Stall func(context.Context) (back func() error, err error)
	// Garbage makes the judge answer what is no opinion.
	Garbage func(context.Context) (back func() error, err error)
}

// PolicyOptions says what to check a policy plugin with.
type PolicyOptions struct {
	// Judge is what stands behind the plugin.
	Judge Judge
	// Restart kills the plugin with SIGKILL and starts it again with the same
	// configuration. nil = checks that need it are not declared.
	Restart func(context.Context) (pluginv1.PolicyClient, error)
	// Logs is all that the plugin has written so far; nil = not looked at.
	Logs func() string
	// Timeout bounds one check; 0 = a minute.
	Timeout time.Duration
	// Only names the checks to run; none = all.
	Only []string
}

// policyCheck is one check of a policy plugin.
type policyCheck struct {
	name string
	run  func(context.Context, *policyKit) error
}

// Policy runs every check of a policy plugin, one after the other. The plugin
// must be configured. A check whose hook is missing is shown as such.
func Policy(ctx context.Context, client pluginv1.PolicyClient, opts PolicyOptions) []Check {
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	k := &policyKit{opts: opts, client: client}
	var out []Check
	for _, c := range slices.Concat(policyAnswerChecks(), policyInputChecks(), policyJudgeChecks(), policyProcessChecks()) {
		if len(opts.Only) > 0 && !slices.Contains(opts.Only, c.name) {
			continue
		}
		got := Check{Name: c.name, Result: Pass}
		begun := time.Now()
		checkCtx, cancel := context.WithTimeout(ctx, opts.Timeout)
		got.settle(c.run(checkCtx, k))
		cancel()
		got.Took = time.Since(begun)
		out = append(out, got)
	}
	return out
}

func policyAnswerChecks() []policyCheck {
	return []policyCheck{
		{"evaluate-answers", evaluateAnswers},
		{"evaluate-rules-stable", evaluateStable},
		{"evaluate-under-any-outcome", evaluateAnyOutcome},
		{"evaluate-little-known", evaluateLittle},
		{"evaluate-full-history", evaluateHistory},
		{"evaluate-concurrent", evaluateConcurrent},
	}
}

// evaluateAnswers: an ordinary call gets an answer that a host can use.
func evaluateAnswers(ctx context.Context, k *policyKit) error {
	_, err := k.evaluate(ctx, k.request())
	return err
}

// evaluateStable: the host may ask again; an approval covers findings by their
// names.
func evaluateStable(ctx context.Context, k *policyKit) error {
	req := k.request()
	first, err := k.evaluate(ctx, req)
	if err != nil {
		return err
	}
	again, err := k.evaluate(ctx, req)
	if err != nil {
		return err
	}
	return sameRules("the same call again", first, again)
}

// evaluateAnyOutcome: whatever the host's rules have found, an opinion is
// given.
func evaluateAnyOutcome(ctx context.Context, k *policyKit) error {
	for _, d := range severities {
		req := k.request()
		req.Outcome = d
		req.Findings = []*pluginv1.PolicyFinding{{Rule: "policy/x", Outcome: d, Reason: "conformance"}}
		if _, err := k.evaluate(ctx, req); err != nil {
			return err
		}
	}
	return nil
}

// evaluateLittle: a task outside of a cell has no agent, and none has to have
// an objective, an intent or a history.
func evaluateLittle(ctx context.Context, k *policyKit) error {
	p := k.request().GetProposal()
	_, err := k.evaluate(ctx, &pluginv1.EvaluateRequest{
		TaskId: "conformance", Outcome: pluginv1.Decision_DECISION_ALLOW,
		Proposal: &pluginv1.Proposal{ProposalId: p.GetProposalId(), Tool: p.GetTool(), Args: p.GetArgs()},
	})
	return err
}

func evaluateHistory(ctx context.Context, k *policyKit) error {
	req := k.request()
	for range 50 {
		req.History = append(req.History, &pluginv1.PastCall{Tool: "Bash", Status: "ALLOW"})
	}
	req.Risk = "HIGH"
	_, err := k.evaluate(ctx, req)
	return err
}

// evaluateConcurrent: calls side by side do not get each other's answers.
func evaluateConcurrent(ctx context.Context, k *policyKit) error {
	const n = 16
	kinds := []*pluginv1.Proposal{k.opts.Judge.Object, k.opts.Judge.Pass, k.request().GetProposal()}
	alone := make([]*pluginv1.EvaluateResponse, len(kinds))
	for i, p := range kinds {
		if p == nil {
			kinds[i] = k.request().GetProposal()
		}
		var err error
		if alone[i], err = k.evaluate(ctx, k.ask(kinds[i])); err != nil {
			return err
		}
	}
	errs := make(chan error, n)
	for i := range n {
		go func() {
			got, err := k.evaluate(ctx, k.ask(kinds[i%len(kinds)]))
			if err == nil {
				err = sameRules("one of calls side by side", alone[i%len(kinds)], got)
			}
			errs <- err
		}()
	}
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}

func policyInputChecks() []policyCheck {
	return []policyCheck{
		{"evaluate-odd-arguments", evaluateOdd},
		{"evaluate-no-proposal", evaluateNothing},
		{"evaluate-large-arguments", evaluateLarge},
	}
}

// evaluateOdd: arguments are JSON of any shape.
func evaluateOdd(ctx context.Context, k *policyKit) error {
	for _, args := range []string{
		`{}`, `{"":""}`, `{"n":12345678901234567890.123456789e400}`, `{"a":[[[[[[[[[[null]]]]]]]]]]}`,
		`{"text":"\u0000\ud83d\ude00 \u2028 \"}"}`, `{"a":1,"a":2}`, `{"url":"https://127.0.0.1/?a=b&c=<d>"}`,
	} {
		req := k.request()
		req.Proposal.Args = json.RawMessage(args)
		if err := k.opinionOrError(ctx, req); err != nil {
			return err
		}
	}
	return k.stillAnswers(ctx, "after odd arguments")
}

// evaluateNothing: a request without a call is no call without a fault.
func evaluateNothing(ctx context.Context, k *policyKit) error {
	for what, req := range map[string]*pluginv1.EvaluateRequest{
		"without a proposal":             {TaskId: "conformance"},
		"with a proposal without a tool": {TaskId: "conformance", Proposal: &pluginv1.Proposal{ProposalId: newID()}},
		"with arguments that are no JSON": {TaskId: "conformance",
			Proposal: &pluginv1.Proposal{ProposalId: newID(), Tool: "Bash", Args: []byte("{")}},
	} {
		if err := k.noConsent(ctx, req, "a request "+what); err != nil {
			return err
		}
	}
	return k.stillAnswers(ctx, "after requests without a call")
}

// evaluateLarge: a mebibyte of arguments is answered or refused, and the
// plugin lives on.
func evaluateLarge(ctx context.Context, k *policyKit) error {
	text := make([]byte, 1<<20)
	for i := range text {
		text[i] = 'a'
	}
	req := k.request()
	req.Proposal.Args = slices.Concat([]byte(`{"content":"`), text, []byte(`"}`))
	if err := k.opinionOrError(ctx, req); err != nil {
		return err
	}
	return k.stillAnswers(ctx, "after large arguments")
}
