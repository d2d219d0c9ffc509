package gate

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/config/glob"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// Rules is a compiled rule set. It is immutable and may be used by many
// goroutines at once.
type Rules struct {
	g       config.Governance
	salt    []byte
	policy  []policyRule // policy rules, then approve rules
	byTool  index
	risk    index
	binding index
	redact  index
	texts   map[string]json.RawMessage
	digests map[string]string
	digest  string
}

// policyRule is a policy or approve rule with its rewrite as JSON.
type policyRule struct {
	config.PolicyRule
	stage   string
	outcome governance.Outcome
	rewrite *value
}

// Option changes how a rule set is compiled.
type Option func(*Rules)

// WithSalt sets the salt of redacted values' digests; the same salt gives the
// same digest for the same value, so that records can be compared. Without it
// every rule set has a random one.
func WithSalt(salt []byte) Option {
	return func(r *Rules) { r.salt = slices.Clone(salt) }
}

// Compile makes the rule set of a governance block. The budget of the block
// counts where an Input has no limits of its own. Diagnostics are errors only,
// and come only from a Governance that was not loaded but made.
func Compile(g config.Governance, opts ...Option) (*Rules, hcl.Diagnostics) {
	r := &Rules{g: g}
	for _, o := range opts {
		o(r)
	}
	if r.salt == nil {
		r.salt = make([]byte, 32)
		if _, err := rand.Read(r.salt); err != nil {
			return nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No salt", Detail: fmt.Sprintf("Redaction has no salt: %v.", err)}}
		}
	}
	var diags hcl.Diagnostics
	fail := func(at hcl.Range, format string, args ...any) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Bad rules", Detail: fmt.Sprintf(format, args...), Subject: &at})
	}
	if !slices.Contains([]string{"govern", "observe"}, g.Mode) || !slices.Contains([]string{"fail_closed", "fail_open"}, g.OnFailure) ||
		!slices.Contains([]string{"allow", "deny"}, g.PolicyDefault) {
		fail(hcl.Range{}, "mode, on_failure and the policy's default have no default: they are %q, %q and %q.", g.Mode, g.OnFailure, g.PolicyDefault)
	}
	for _, rule := range g.Policy {
		r.addPolicy(rule, "policy", fail)
	}
	for _, rule := range g.Approve {
		r.addPolicy(rule, "approve", fail)
	}
	if g.Risk != nil {
		if governance.Risk(g.Risk.BlockAt).Level() == 0 {
			fail(g.Risk.Range, "block_at is %q.", g.Risk.BlockAt)
		}
		for i, rule := range g.Risk.Rules {
			if governance.Risk(rule.Risk).Level() == 0 || rule.Tool == nil {
				fail(rule.Range, "The risk rule %q has the risk %q, or no tool.", rule.Name, rule.Risk)
				continue
			}
			r.risk.add(rule.Tool, i)
		}
	}
	for i, b := range g.Bindings {
		if sev := governance.Outcome(b.Severity); b.Tool == nil || len(b.Argument.Tokens()) == 0 || !sev.Known() || sev == governance.Allow {
			fail(b.Range, "The binding %q has no tool, no argument, or the severity %q.", b.Name, b.Severity)
			continue
		}
		r.binding.add(b.Tool, i)
	}
	for i, red := range g.Redact {
		if red.Tool == nil || len(red.Pointer.Tokens()) == 0 {
			fail(red.Range, "The redaction %q has no tool, or no pointer.", red.Name)
			continue
		}
		r.redact.add(red.Tool, i)
	}
	if diags.HasErrors() {
		return nil, diags
	}
	r.describe()
	return r, nil
}

func (r *Rules) addPolicy(rule config.PolicyRule, stage string, fail func(hcl.Range, string, ...any)) {
	p := policyRule{PolicyRule: rule, stage: stage, outcome: outcomeOf(rule.Effect)}
	if p.outcome == "" || rule.Tool == nil {
		fail(rule.Range, "The rule %q has the effect %q, or no tool.", rule.Name, rule.Effect)
		return
	}
	if len(rule.Rewrite) > 0 {
		v, err := patch(rule.Rewrite)
		if err != nil {
			fail(rule.Range, "The rewrite of the rule %q: %v.", rule.Name, err)
			return
		}
		p.rewrite = &v
	}
	r.byTool.add(rule.Tool, len(r.policy))
	r.policy = append(r.policy, p)
}

// patch is a rewrite as JSON, without the escapes that encoding/json adds for
// HTML.
func patch(rewrite map[string]any) (value, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(rewrite); err != nil {
		return value{}, err
	}
	return parseArgs(b.Bytes())
}

func outcomeOf(effect string) governance.Outcome {
	switch effect {
	case "allow":
		return governance.Allow
	case "deny":
		return governance.Block
	case "warn":
		return governance.Warn
	case "challenge":
		return governance.Challenge
	case "replan":
		return governance.Replan
	case "pause":
		return governance.Pause
	case "escalate":
		return governance.Escalate
	}
	return ""
}

// index finds the rules for a tool: those with a plain name by a map, the rest
// by trying their patterns.
type index struct {
	exact map[string][]int
	globs []globRule
}

type globRule struct {
	pattern *glob.Pattern
	rule    int
}

// add adds a rule; they must come in ascending order.
func (x *index) add(p *glob.Pattern, rule int) {
	if !p.Literal() {
		x.globs = append(x.globs, globRule{p, rule})
		return
	}
	if x.exact == nil {
		x.exact = map[string][]int{}
	}
	x.exact[p.String()] = append(x.exact[p.String()], rule)
}

// rules are the rules for a tool, in ascending order.
func (x *index) rules(tool string) []int {
	exact := x.exact[tool]
	var out []int
	for _, g := range x.globs {
		if !g.pattern.Match(tool) {
			continue
		}
		for len(exact) > 0 && exact[0] < g.rule {
			out, exact = append(out, exact[0]), exact[1:]
		}
		out = append(out, g.rule)
	}
	return append(out, exact...)
}
