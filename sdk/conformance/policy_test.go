package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	sdk "github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/plugin/plugintest"
	"github.com/airlock-host/airlock/sdk/policy"
)

// opinions is a policy plugin whose judge lies in the same process.
type opinions struct {
	sdk.Defaults
	policy.Unimplemented

	wrong string // what it does wrong
	mode  atomic.Pointer[string]
	calls atomic.Int64
}

func (*opinions) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{Name: "opinions", Version: "0.1.0", Summary: "Has opinions.", Schema: sdk.Schema()}
}

func (*opinions) Configure(context.Context, *pluginv1.ConfigureRequest) error { return nil }

func (o *opinions) while(mode string) func(context.Context) (func() error, error) {
	return func(context.Context) (func() error, error) {
		o.mode.Store(&mode)
		return func() error { o.mode.Store(nil); return nil }, nil
	}
}

func (o *opinions) Evaluate(ctx context.Context, req *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
	n := o.calls.Add(1)
	tool := req.GetProposal().GetTool()
	block := pluginv1.Decision_DECISION_BLOCK
	f := &pluginv1.PolicyFinding{Rule: "danger", Outcome: block, Reason: "too dangerous"}
	if tool != "Danger" {
		f = nil
	}
	if args := req.GetProposal().GetArgs(); (tool == "" || !json.Valid(args)) && o.wrong != "takes anything" {
		return nil, sdk.InvalidArgument("there is no call")
	}
	if m := o.mode.Load(); m != nil {
		switch {
		case *m == "stall" && o.wrong != "consents when stalled":
			<-ctx.Done()
			return nil, ctx.Err()
		case o.wrong != "consents without a judge" && *m != "stall":
			return nil, sdk.Unavailable("the judge %s", *m)
		}
	}
	switch o.wrong {
	case "no rule":
		f = &pluginv1.PolicyFinding{Outcome: block, Reason: "x"}
	case "no outcome":
		f = &pluginv1.PolicyFinding{Rule: "r", Reason: "x"}
	case "no reason":
		f = &pluginv1.PolicyFinding{Rule: "r", Outcome: block}
	case "names change":
		f = &pluginv1.PolicyFinding{Rule: time.Duration(n).String(), Outcome: block, Reason: "x"}
	case "never objects":
		f = nil
	case "objects always":
		f = &pluginv1.PolicyFinding{Rule: "r", Outcome: block, Reason: "x"}
	case "needs an agent":
		if req.GetAgent() == "" {
			return nil, sdk.InvalidArgument("there is no agent")
		}
	case "fails when blocked":
		if req.GetOutcome() == block {
			return nil, errors.New("blocked already")
		}
	case "dislikes history":
		if len(req.GetHistory()) > 10 {
			return nil, errors.New("too long")
		}
	case "quotes arguments":
		if len(req.GetHistory()) > 10 {
			return nil, sdk.InvalidArgument("cannot judge %s", req.GetProposal().GetArgs())
		}
	}
	if f == nil {
		return &pluginv1.EvaluateResponse{}, nil
	}
	return &pluginv1.EvaluateResponse{Findings: []*pluginv1.PolicyFinding{f}}, nil
}

func policyKit(t *testing.T, wrong string) []conformance.Check {
	t.Helper()
	o := &opinions{wrong: wrong}
	start := func(context.Context) (pluginv1.PolicyClient, error) {
		return pluginv1.NewPolicyClient(plugintest.Connect(t, func(s grpc.ServiceRegistrar) { policy.Register(s, o) })), nil
	}
	client, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Policy(t.Context(), client, conformance.PolicyOptions{
		Judge: conformance.Judge{
			Object:   &pluginv1.Proposal{ProposalId: "p1", Tool: "Danger", Args: []byte("{}")},
			Severity: pluginv1.Decision_DECISION_BLOCK,
			Pass:     &pluginv1.Proposal{ProposalId: "p2", Tool: "Read", Args: []byte("{}")},
			Away:     o.while("is away"), Stall: o.while("stall"), Garbage: o.while("says nothing"),
		},
		Restart: start, Timeout: 20 * time.Second,
	})
}

func TestPolicyKitPassesARightOne(t *testing.T) {
	t.Parallel()
	checks := policyKit(t, "")
	if len(checks) < 10 {
		t.Errorf("there are %d checks only", len(checks))
	}
	for _, c := range checks {
		if c.Result != conformance.Pass {
			t.Errorf("%s: %s: %s", c.Name, c.Result, c.Detail)
		}
	}
}

func TestPolicyKitFindsAFault(t *testing.T) {
	t.Parallel()
	for wrong, check := range map[string]string{
		"no rule":                  "evaluate-answers",
		"no outcome":               "evaluate-answers",
		"no reason":                "evaluate-answers",
		"names change":             "evaluate-rules-stable",
		"never objects":            "judge-objects",
		"objects always":           "judge-passes",
		"needs an agent":           "evaluate-little-known",
		"fails when blocked":       "evaluate-under-any-outcome",
		"dislikes history":         "evaluate-full-history",
		"quotes arguments":         "arguments-not-in-log",
		"takes anything":           "evaluate-no-proposal",
		"consents without a judge": "judge-away",
		"consents when stalled":    "judge-stalls",
	} {
		t.Run(wrong, func(t *testing.T) {
			t.Parallel()
			if !slices.ContainsFunc(policyKit(t, wrong), func(c conformance.Check) bool { return c.Name == check && c.Result == conformance.Fail }) {
				t.Errorf("%s does not fail", check)
			}
		})
	}
}

func TestPolicyKitWithoutAJudge(t *testing.T) {
	t.Parallel()
	client := pluginv1.NewPolicyClient(plugintest.Connect(t, func(s grpc.ServiceRegistrar) { policy.Register(s, &opinions{}) }))
	undeclared := []string{"judge-objects", "judge-passes", "judge-away", "judge-garbage", "judge-stalls", "evaluate-after-restart"}
	for _, c := range conformance.Policy(t.Context(), client, conformance.PolicyOptions{}) {
		want := conformance.Pass
		if slices.Contains(undeclared, c.Name) {
			want = conformance.NotDeclared
		}
		if c.Result != want {
			t.Errorf("%s: %s, not %s: %s", c.Name, c.Result, want, c.Detail)
		}
	}
}
