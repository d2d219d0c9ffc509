package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// severities are the outcomes, mildest first.
var severities = []pluginv1.Decision{
	pluginv1.Decision_DECISION_ALLOW, pluginv1.Decision_DECISION_WARN, pluginv1.Decision_DECISION_CHALLENGE, pluginv1.Decision_DECISION_REPLAN,
	pluginv1.Decision_DECISION_PAUSE, pluginv1.Decision_DECISION_ESCALATE, pluginv1.Decision_DECISION_BLOCK,
}

// canary is in the arguments of every call of the kit that is its own.
const canary = "c4n4ry-s3cr3t-of-an-argument"

// policyKit is what the checks of a policy plugin share.
type policyKit struct {
	opts PolicyOptions

	mu     sync.Mutex
	client pluginv1.PolicyClient
	said   []string // errors that the plugin has given
}

func (k *policyKit) policy() pluginv1.PolicyClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.client
}

// request is an ordinary call with all that a host may know of it.
func (k *policyKit) request() *pluginv1.EvaluateRequest {
	return k.ask(&pluginv1.Proposal{
		ProposalId: newID(), Tool: "Bash", Args: []byte(`{"command":"ls -l","note":"` + canary + `"}`),
	})
}

func (k *policyKit) ask(p *pluginv1.Proposal) *pluginv1.EvaluateRequest {
	return &pluginv1.EvaluateRequest{
		TaskId: "conformance", Proposal: p, Agent: "agent-01", Objective: "list the files", IntentJson: []byte(`{"objective":"list the files"}`),
		Outcome: pluginv1.Decision_DECISION_ALLOW, Risk: "LOW", History: []*pluginv1.PastCall{{Tool: "Read", Status: "ALLOW"}},
	}
}

// call asks, and checks what an answer must be like.
func (k *policyKit) call(ctx context.Context, req *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
	r, err := k.policy().Evaluate(ctx, req)
	if err != nil {
		k.mu.Lock()
		k.said = append(k.said, status.Convert(err).Message())
		k.mu.Unlock()
		return nil, err
	}
	for _, f := range r.GetFindings() {
		switch {
		case strings.TrimSpace(f.GetRule()) == "":
			return nil, errMalformed("a finding names no rule: no approval could cover it")
		case len(f.GetRule()) > 200 || strings.ContainsAny(f.GetRule(), "\r\n"):
			return nil, errMalformed(fmt.Sprintf("%.40q is no name of a rule", f.GetRule()))
		case !slices.Contains(severities, f.GetOutcome()):
			return nil, errMalformed(fmt.Sprintf("the finding %q has the outcome %v", f.GetRule(), f.GetOutcome()))
		case strings.TrimSpace(f.GetReason()) == "":
			return nil, errMalformed(fmt.Sprintf("the finding %q has no reason", f.GetRule()))
		}
	}
	return r, nil
}

// errMalformed is an answer that a host cannot use.
type errMalformed string

func (e errMalformed) Error() string { return string(e) }

// evaluate wants an answer.
func (k *policyKit) evaluate(ctx context.Context, req *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
	r, err := k.call(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	return r, nil
}

// opinionOrError wants an answer that can be used, or an error in time.
func (k *policyKit) opinionOrError(ctx context.Context, req *pluginv1.EvaluateRequest) error {
	_, err := k.call(ctx, req)
	var malformed errMalformed
	if errors.As(err, &malformed) {
		return err
	}
	return inTime(ctx, err)
}

// noConsent wants anything but an answer that objects to nothing.
func (k *policyKit) noConsent(ctx context.Context, req *pluginv1.EvaluateRequest, what string) error {
	r, err := k.call(ctx, req)
	var malformed errMalformed
	if errors.As(err, &malformed) {
		return err
	}
	if err == nil && worst(r) <= pluginv1.Decision_DECISION_ALLOW {
		return fmt.Errorf("%s is answered as if there were nothing to object", what)
	}
	return inTime(ctx, err)
}

func inTime(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("evaluate did not end in time: %w", ctx.Err())
	case status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("evaluate: %w", err)
	}
	return nil
}

func (k *policyKit) stillAnswers(ctx context.Context, when string) error {
	if _, err := k.evaluate(ctx, k.request()); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	return nil
}

// worst is the most severe outcome of an answer; unspecified where it objects
// to nothing.
func worst(r *pluginv1.EvaluateResponse) pluginv1.Decision {
	at := -1
	for _, f := range r.GetFindings() {
		at = max(at, slices.Index(severities, f.GetOutcome()))
	}
	if at < 0 {
		return pluginv1.Decision_DECISION_UNSPECIFIED
	}
	return severities[at]
}

func sameRules(what string, a, b *pluginv1.EvaluateResponse) error {
	if x, y := rulesOf(a), rulesOf(b); !slices.Equal(x, y) {
		return fmt.Errorf("%s: the rules of the findings are %q, and were %q", what, y, x)
	}
	return nil
}

func rulesOf(r *pluginv1.EvaluateResponse) (out []string) {
	for _, f := range r.GetFindings() {
		out = append(out, f.GetRule())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
