package gate

import (
	"encoding/json"
	"fmt"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// describe fills in texts and digests: of the compiled content in a canonical
// form, so that layout, comments and places in files do not count.
func (r *Rules) describe() {
	r.texts = r.g.RulesJSON()
	r.texts["budget"] = encode(map[string]int64{"max_cost_micro_usd": r.g.Budget.MaxCostMicroUSD, "max_tokens": r.g.Budget.MaxTokens})
	r.texts["policy"] = encode(map[string]json.RawMessage{"policy": r.texts["policy"], "approve": r.texts["approve"]})
	delete(r.texts, "approve")
	r.digests = map[string]string{}
	for name, t := range r.texts {
		r.digests[name] = governance.Digest(t)
	}
	r.digest = governance.Digest(encode(map[string]any{"v": 1, "mode": r.g.Mode, "on_failure": r.g.OnFailure, "parts": r.digests}))
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gate: %v", err)) // maps of JSON-ready values
	}
	return b
}

// Digest is the SHA-256 in hex of the whole rule set: mode, failure policy,
// every rule, and the block's budget.
func (r *Rules) Digest() string { return r.digest }

// PolicyDigest is the SHA-256 in hex of PolicyText: the policy hash of a
// decision's record (seed 003, J14).
func (r *Rules) PolicyDigest() string { return r.digests["policy"] }

// PolicyText is the policy, with its approve rules and plugins, as canonical
// JSON.
func (r *Rules) PolicyText() string { return string(r.texts["policy"]) }

// Digests are the digests of the parts: "policy", "risk", "intent", "redact",
// "budget".
func (r *Rules) Digests() map[string]string {
	out := make(map[string]string, len(r.digests))
	for k, v := range r.digests {
		out[k] = v
	}
	return out
}

// Text is all of the rules as JSON, by part, for the record of a rule set.
func (r *Rules) Text() json.RawMessage { return encode(r.texts) }

// Mode is "govern" or "observe".
func (r *Rules) Mode() string { return r.g.Mode }

// OnFailure is "fail_closed" or "fail_open".
func (r *Rules) OnFailure() string { return r.g.OnFailure }

// Plugins are the policy plugins, in config order. Whoever evaluates asks them
// and hands their answers to Tighten.
func (r *Rules) Plugins() []config.PolicyPlugin { return r.g.PolicyPlugins }

// Names of the stages.
const (
	StagePolicy  = "policy"
	StageRisk    = "risk"
	StageIntent  = "intent"
	StageBudget  = "budget"
	StageApprove = "approve"
	StagePlugin  = "plugin"
	StageFailure = "failure" // of findings about what could not be evaluated
)

// Stages are the stages that the configuration turns on, in order. An envelope
// or limits that come with an Input turn on intent and budget for that call.
func (r *Rules) Stages() []string { return r.stages(false, r.budget()) }

// NotEvaluated are the stages that the configuration does not turn on.
func (r *Rules) NotEvaluated() []string { return notEvaluated(r.Stages()) }

func (r *Rules) stages(envelope bool, limits Amount) []string {
	out := []string{StagePolicy}
	add := func(stage string, on bool) {
		if on {
			out = append(out, stage)
		}
	}
	add(StageRisk, r.g.Risk != nil)
	add(StageIntent, envelope || len(r.g.Bindings) > 0)
	add(StageBudget, limits != Amount{})
	add(StageApprove, len(r.g.Approve) > 0)
	add(StagePlugin, len(r.g.PolicyPlugins) > 0)
	return out
}

func (r *Rules) budget() Amount {
	return Amount{CostMicroUSD: r.g.Budget.MaxCostMicroUSD, Tokens: r.g.Budget.MaxTokens}
}

// notEvaluated are the stages that are not among the active ones.
func notEvaluated(active []string) []string {
	out := []string{}
	for _, s := range []string{StagePolicy, StageRisk, StageIntent, StageBudget, StageApprove, StagePlugin} {
		found := false
		for _, a := range active {
			found = found || a == s
		}
		if !found {
			out = append(out, s)
		}
	}
	return out
}
