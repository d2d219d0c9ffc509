package config

import (
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config/condition"
	"github.com/airlock-host/airlock/config/glob"
	"github.com/airlock-host/airlock/config/pointer"
)

// gate fills in what judges tool calls. A rule with an error in it is left out;
// the configuration is refused then anyway.
func (b *builder) gate(n *node, g *Governance) {
	if policy := n.one("policy"); policy != nil {
		g.PolicyDefault = get[string](policy, "default")
		b.eachRule(policy, "rule", func(r *node) {
			g.Policy = append(g.Policy, b.policyRule(r, get[string](r, "effect")))
		})
		b.policyPlugins(policy, g)
	}
	if risk := n.one("risk"); risk != nil {
		g.Risk = &Risk{BlockAt: get[string](risk, "block_at"), Range: risk.rng}
		b.eachRule(risk, "rule", func(r *node) {
			g.Risk.Rules = append(g.Risk.Rules, RiskRule{Name: r.labels[0], Tool: get[*glob.Pattern](r, "tool"), When: get[*condition.Condition](r, "when"),
				Risk: get[string](r, "risk"), Reason: get[string](r, "reason"), Range: r.rng})
		})
		b.notEmpty(risk, "rule", "a risk of nothing would be LOW always")
	}
	if intent := n.one("intent"); intent != nil {
		b.eachRule(intent, "binding", func(r *node) {
			g.Bindings = append(g.Bindings, Binding{Name: r.labels[0], Tool: get[*glob.Pattern](r, "tool"), Argument: get[pointer.Pointer](r, "argument"),
				Op: get[string](r, "op"), Constraint: get[string](r, "constraint"), Severity: get[string](r, "severity"),
				OnMissing: get[string](r, "on_missing"), Reason: get[string](r, "reason"), Range: r.rng})
		})
		b.notEmpty(intent, "binding", "no argument would be held against any constraint")
	}
	if approve := n.one("approve"); approve != nil {
		b.eachRule(approve, "rule", func(r *node) { g.Approve = append(g.Approve, b.policyRule(r, "pause")) })
		b.notEmpty(approve, "rule", "no call would wait for an approval")
	}
	b.eachRule(n, "redact", func(r *node) {
		g.Redact = append(g.Redact, Redaction{Name: r.labels[0], Tool: get[*glob.Pattern](r, "tool"), Pointer: get[pointer.Pointer](r, "pointer"), Range: r.rng})
	})
}

func (b *builder) policyRule(r *node, effect string) PolicyRule {
	rule := PolicyRule{Name: r.labels[0], Tool: get[*glob.Pattern](r, "tool"), When: get[*condition.Condition](r, "when"), Effect: effect,
		Reason: get[string](r, "reason"), Range: r.rng}
	if r.isSet("rewrite") {
		rule.Rewrite = get[map[string]any](r, "rewrite")
		if effect == "deny" {
			b.error(errorAt(r.at("rewrite"), "Contradiction", "A rule that denies a call cannot rewrite it: nothing will run."))
		}
		if len(rule.Rewrite) == 0 {
			b.error(errorAt(r.at("rewrite"), "Bad value", "The attribute \"rewrite\" changes nothing: it has no values."))
		}
	}
	return rule
}

// eachRule visits the rules of a kind that are whole, and refuses a name that
// comes twice: findings and waivers go by it.
func (b *builder) eachRule(parent *node, kind string, visit func(*node)) {
	seen := map[string]*node{}
	for _, r := range parent.all(kind) {
		if first := seen[r.labels[0]]; first != nil {
			b.error(errorAt(r.rng, "Block given twice", "There is a block %s at %s already. Findings are known by this name: give it another one.", r.title(), place(first.rng)))
			continue
		}
		seen[r.labels[0]] = r
		if !r.diags.HasErrors() {
			visit(r)
		}
	}
}

// notEmpty refuses a stage that is configured and does nothing (governance 7:
// configured but not enabled).
func (b *builder) notEmpty(n *node, kind, why string) {
	if len(n.all(kind)) == 0 && !n.diags.HasErrors() {
		b.error(errorAt(n.rng, "Configured but not enabled", "%s has no %s: %s. Add one, or remove the block.", n.path, kind, why))
	}
}

func (b *builder) policyPlugins(policy *node, g *Governance) {
	b.eachRule(policy, "plugin", func(n *node) {
		inst := Instance{Kind: KindPolicy, Driver: n.labels[0], Name: n.labels[0], Range: n.rng, Body: emptyBody(n.rng), state: &instanceState{eval: b.eval}}
		if c := n.one("config"); c != nil {
			inst.Body = c.body
			b.diags = append(b.diags, checkPluginBody(c.body)...)
		}
		p := PolicyPlugin{Instance: inst, Timeout: get[time.Duration](n, "timeout"), OnFailure: g.OnFailure}
		if n.isSet("on_failure") {
			p.OnFailure = get[string](n, "on_failure")
		}
		g.PolicyPlugins = append(g.PolicyPlugins, p)
	})
}

// unbound warns about constraints of an agent's intent that nothing looks at:
// no binding names them, and no condition reads the intent.
func (b *builder) unbound(agent *node) hcl.Diagnostics {
	intent, g := agent.one("intent"), b.cfg.Governance
	if intent == nil {
		return nil
	}
	bound := map[string]bool{}
	for _, x := range g.Bindings {
		bound[x.Constraint] = true
	}
	conditions := []*condition.Condition{}
	for _, r := range slices.Concat(g.Policy, g.Approve) {
		conditions = append(conditions, r.When)
	}
	if g.Risk != nil {
		for _, r := range g.Risk.Rules {
			conditions = append(conditions, r.When)
		}
	}
	if slices.ContainsFunc(conditions, func(c *condition.Condition) bool { return c != nil && c.Uses("intent") }) || len(g.PolicyPlugins) > 0 {
		return nil
	}
	var diags hcl.Diagnostics
	for _, name := range sortedKeys(get[map[string]any](intent, "constraints")) {
		if !bound[name] {
			diags = append(diags, warningAt(intent.at("constraints"), "Constraint without a binding",
				"No call is held to the constraint %q: governance.intent has no binding for it, and no condition reads the intent.", name))
		}
	}
	return diags
}
