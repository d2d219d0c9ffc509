package config

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config/condition"
	"github.com/airlock-host/airlock/config/glob"
	"github.com/airlock-host/airlock/config/pointer"
)

// KindPolicy is the kind of policy plugins; their blocks are in
// governance.policy and not at the top level.
const KindPolicy = "policy"

// PolicyRule is a rule of governance.policy, or of governance.approve, where
// Effect is "pause".
type PolicyRule struct {
	Name   string
	Tool   *glob.Pattern
	When   *condition.Condition // nil: always
	Effect string               // "allow" | "deny" | "warn" | "challenge" | "replan" | "pause" | "escalate"
	Reason string
	// Rewrite is merged into the arguments: an object of JSON-ready values with
	// numbers as json.Number. nil: nothing.
	Rewrite map[string]any
	Range   hcl.Range // of the block's header
}

// PolicyPlugin is a policy plugin: executable airlock-policy-DRIVER. It may only
// tighten a decision.
type PolicyPlugin struct {
	Instance  // Kind KindPolicy; Driver and Name are the block's label
	Timeout   time.Duration
	OnFailure string // "fail_closed" | "fail_open"; the host's where the block says nothing
}

// Risk is governance.risk.
type Risk struct {
	BlockAt string // "LOW" | "MEDIUM" | "HIGH"
	Rules   []RiskRule
	Range   hcl.Range
}

// RiskRule rates a call; the first that matches does.
type RiskRule struct {
	Name   string
	Tool   *glob.Pattern
	When   *condition.Condition // nil: always
	Risk   string               // "LOW" | "MEDIUM" | "HIGH"
	Reason string
	Range  hcl.Range
}

// Binding holds an argument against a constraint of the intent: violated when
// not (argument op constraint).
type Binding struct {
	Name       string
	Tool       *glob.Pattern
	Argument   pointer.Pointer
	Op         string // "eq" | "ne" | "gt" | "gte" | "lt" | "lte" | "in" | "contains"
	Constraint string
	Severity   string // "BLOCK" | "ESCALATE" | "PAUSE" | "REPLAN" | "CHALLENGE" | "WARN"
	OnMissing  string // "allow" | "warn" | "block"
	Reason     string
	Range      hcl.Range
}

// Redaction keeps an argument out of what is recorded.
type Redaction struct {
	Name    string
	Tool    *glob.Pattern
	Pointer pointer.Pointer
	Range   hcl.Range
}

// RulesJSON is what the gate goes by, by stage, as canonical JSON: the same
// bytes however the rules are written, other bytes whenever they mean something
// else. Names and reasons count, places in files do not. The stages are
// "policy" (with its plugins), "risk", "intent", "approve", "redact".
func (g Governance) RulesJSON() map[string]json.RawMessage {
	plugins := []any{}
	for _, p := range g.PolicyPlugins {
		plugins = append(plugins, map[string]any{"name": p.Name, "timeout": p.Timeout.String(), "on_failure": p.OnFailure, "config": p.ConfigDigest()})
	}
	out := map[string]any{
		"policy":  map[string]any{"default": g.PolicyDefault, "on_failure": g.OnFailure, "rules": policyContent(g.Policy), "plugins": plugins},
		"approve": policyContent(g.Approve),
		"risk":    nil,
	}
	if g.Risk != nil {
		rules := []any{}
		for _, r := range g.Risk.Rules {
			rules = append(rules, content{"name": r.Name, "tool": r.Tool.String(), "risk": r.Risk}.when(r.When).reason(r.Reason))
		}
		out["risk"] = map[string]any{"block_at": g.Risk.BlockAt, "rules": rules}
	}
	bindings := []any{}
	for _, b := range g.Bindings {
		bindings = append(bindings, content{"name": b.Name, "tool": b.Tool.String(), "argument": b.Argument.String(), "op": b.Op,
			"constraint": b.Constraint, "severity": b.Severity, "on_missing": b.OnMissing}.reason(b.Reason))
	}
	redact := []any{}
	for _, r := range g.Redact {
		redact = append(redact, content{"name": r.Name, "tool": r.Tool.String(), "pointer": r.Pointer.String()})
	}
	out["intent"], out["redact"] = bindings, redact
	raw := make(map[string]json.RawMessage, len(out))
	for stage, v := range out {
		b, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("config: rules: %v", err)) // every value is JSON-ready
		}
		raw[stage] = b
	}
	return raw
}

func policyContent(rules []PolicyRule) []any {
	out := []any{}
	for _, r := range rules {
		c := content{"name": r.Name, "tool": r.Tool.String(), "effect": r.Effect}.when(r.When).reason(r.Reason)
		if r.Rewrite != nil {
			c["rewrite"] = r.Rewrite
		}
		out = append(out, c)
	}
	return out
}

// content is a rule with only what it says; json.Marshal orders its keys.
type content map[string]any

func (c content) when(w *condition.Condition) content {
	if w != nil {
		c["when"] = w.Text()
	}
	return c
}

func (c content) reason(r string) content {
	if r != "" {
		c["reason"] = r
	}
	return c
}
