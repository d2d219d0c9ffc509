package gate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// pool is a governance block with one rule of every kind for every condition.
func pool(t testing.TB) config.Governance {
	var p, approve, risk, bind strings.Builder
	conditions := []string{"", "args.n > 5", "args.n == 5", `args.s == "x"`, `matches("x", args.s)`, "args.missing == 1", "args.n > 5 || args.s == \"x\"", "length(history) > 0"}
	for i, when := range conditions {
		if when != "" {
			when = "when = " + when
		}
		for j, effect := range []string{"allow", "deny", "warn", "challenge", "replan", "pause", "escalate"} {
			fmt.Fprintf(&p, "rule \"r%d-%d\" {\n tool = \"%s\"\n effect = %q\n %s\n}\n", i, j, []string{"*", "t", "u"}[j%3], effect, when)
		}
		fmt.Fprintf(&approve, "rule \"r%d\" {\n tool = \"?\"\n %s\n}\n", i, when)
		fmt.Fprintf(&risk, "rule \"r%d\" {\n tool = \"t\"\n risk = %q\n %s\n}\n", i, []string{"LOW", "MEDIUM", "HIGH"}[i%3], when)
	}
	for i, op := range []string{"eq", "lte", "gt", "in", "contains"} {
		for j, missing := range []string{"allow", "warn", "block"} {
			fmt.Fprintf(&bind, "binding \"b%d-%d\" {\n tool = \"[t-u]\"\n argument = \"/n\"\n constraint = \"c%d\"\n op = %q\n on_missing = %q\n severity = %q\n}\n",
				i, j, j, op, missing, []string{"WARN", "PAUSE", "BLOCK", "ESCALATE", "REPLAN"}[i])
		}
	}
	return load(t, "policy {\n default = \"allow\"\n"+p.String()+"}\napprove {\n"+approve.String()+"}\nrisk {\n"+risk.String()+"}\nintent {\n"+bind.String()+"}")
}

func subset[T any](t *rapid.T, name string, all []T) []T {
	out := []T{}
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(all)-1), 0, 5, rapid.ID[int]).Draw(t, name) {
		out = append(out, all[i])
	}
	return out
}

// Adding a rule never makes an outcome less severe: a policy rule without a
// rewrite or an approve rule at any place, a binding at any place, a risk rule
// behind the others (the first that matches rates). The one exception is what
// the default is for: under default = "deny", a policy or approve rule that
// matches takes the place of the default's BLOCK, and of nothing else.
func TestAddingARuleNeverLoosens(t *testing.T) {
	t.Parallel()
	all := pool(t)
	rapid.Check(t, func(t *rapid.T) {
		g := all
		risk := *all.Risk
		g.Risk = &risk
		g.PolicyDefault = rapid.SampledFrom([]string{"allow", "deny"}).Draw(t, "default")
		g.OnFailure = rapid.SampledFrom([]string{"fail_closed", "fail_open"}).Draw(t, "on_failure")
		g.Policy, g.Approve, g.Bindings, risk.Rules = subset(t, "policy", all.Policy), subset(t, "approve", all.Approve), subset(t, "bindings", all.Bindings), subset(t, "risk", all.Risk.Rules)
		more := g
		moreRisk := risk
		more.Risk = &moreRisk
		kind := rapid.SampledFrom([]string{"policy", "approve", "binding", "risk"}).Draw(t, "kind")
		switch kind {
		case "policy":
			r := rapid.SampledFrom(all.Policy).Draw(t, "rule")
			r.Name = "added"
			more.Policy = slices.Insert(slices.Clone(g.Policy), rapid.IntRange(0, len(g.Policy)).Draw(t, "at"), r)
		case "approve":
			r := rapid.SampledFrom(all.Approve).Draw(t, "rule")
			r.Name = "added"
			more.Approve = slices.Insert(slices.Clone(g.Approve), rapid.IntRange(0, len(g.Approve)).Draw(t, "at"), r)
		case "binding":
			r := rapid.SampledFrom(all.Bindings).Draw(t, "rule")
			r.Name = "added"
			more.Bindings = slices.Insert(slices.Clone(g.Bindings), rapid.IntRange(0, len(g.Bindings)).Draw(t, "at"), r)
		default:
			r := rapid.SampledFrom(all.Risk.Rules).Draw(t, "rule")
			r.Name = "added"
			moreRisk.Rules = append(slices.Clone(risk.Rules), r)
		}
		in := call(rapid.SampledFrom([]string{"t", "u", "v", "tt"}).Draw(t, "tool"),
			rapid.SampledFrom([]string{`{}`, `{"n":5,"s":"x"}`, `{"n":6,"s":"y"}`, `{"n":"6","s":1}`, `{"n":6}`, `{"s":"x"}`, `{"n":[5],"s":"x"}`}).Draw(t, "args"))
		in.Intent = &governance.Envelope{Constraints: map[string]json.RawMessage{"c0": json.RawMessage("5"), "c1": json.RawMessage("[5,6]")}}
		in.History = []HistoryEntry{{"x", "y"}}
		a, diags := Compile(g, WithSalt([]byte{1}))
		b, diags2 := Compile(more, WithSalt([]byte{1}))
		if diags.HasErrors() || diags2.HasErrors() {
			t.Fatal(diags, diags2)
		}
		before, after := a.Evaluate(in), b.Evaluate(in)
		want := before.Outcome
		if g.PolicyDefault == "deny" && (kind == "policy" || kind == "approve") {
			want = governance.Allow
			for _, f := range before.Findings {
				if f.ID != "policy/default" {
					want = governance.Worse(want, f.Outcome)
				}
			}
		}
		if after.Outcome.Severity() < want.Severity() {
			t.Fatalf("%s %v, with one more rule %s %v", before.Outcome, ids(before), after.Outcome, ids(after))
		}
		for _, f := range before.Findings {
			if f.ID != "policy/default" && !slices.ContainsFunc(after.Findings, func(g governance.Finding) bool { return g == f }) {
				t.Fatalf("the finding %v is gone: %v", f, ids(after))
			}
		}
		if a.Digest() == b.Digest() {
			t.Fatal("the digests are the same")
		}
	})
}

// A rule set may be asked by many at once, and says the same every time.
func TestEvaluateIsPureAndConcurrent(t *testing.T) {
	t.Parallel()
	r := rules(t, full)
	args := `{"amount": 501, "to": "evil"}`
	in := call("pay", args)
	first := r.Evaluate(in)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if v := r.Evaluate(in); !slices.Equal(ids(v), ids(first)) || string(v.Args) != string(first.Args) {
					t.Error(ids(v))
					return
				}
			}
		})
	}
	wg.Wait()
	if string(in.Args) != args {
		t.Error("the input was changed")
	}
}

// Conditions see the mission, the intent and the history.
func TestVariables(t *testing.T) {
	t.Parallel()
	for when, args := range map[string]string{
		`mission.id == "m" && mission.agent == agent && mission.runtime == "command" && mission.objective == "o" && agent == "a" && tool == "x"`:                                     `{}`,
		`intent.goal == "g" && intent.constraints.max == 5.0 && intent.authority.pay && intent.metadata.k[0] == "v" && intent.expires == "2001-09-09T01:46:40Z" && intent.id == "i"`: `{}`,
		`length(history) == 2 && history[1].status == "ALLOW" && contains(history[*].tool, "a")`:                                                                                     `{}`,
		`args.a.b[1]["c d"] == "e" && args.n == null && args.t`:                                                                                                                      `{"a":{"b":[0,{"c d":"e"}]},"n":null,"t":true}`,
	} {
		in := call("x", args)
		expires := in.Now
		in.Mission = Mission{"m", "a", "command", "o"}
		in.Intent = &governance.Envelope{ID: "i", Goal: "g", Constraints: map[string]json.RawMessage{"max": json.RawMessage(" 5 ")}, Authority: map[string]bool{"pay": true},
			Metadata: map[string]json.RawMessage{"k": json.RawMessage(`["v"]`)}, Expires: &expires}
		in.History = []HistoryEntry{{"a", "BLOCK"}, {"b", "ALLOW"}}
		v := policy(t, "allow", "rule \"r\" {\n tool = \"x\"\n effect = \"replan\"\n when = "+when+"\n}").Evaluate(in)
		expect(t, when, v, governance.Replan, "policy/r=REPLAN", "intent/expired=WARN")
	}
	none := policy(t, "allow", "rule \"r\" {\n tool = \"x\"\n effect = \"replan\"\n when = intent == null || intent.goal == \"\"\n}").Evaluate(call("x", `{}`))
	expect(t, "no intent", none, governance.Replan, "policy/r=REPLAN")
	// Two keys that are one in normal form: which one a condition saw would be a guess.
	twins := policy(t, "allow", "rule \"r\" {\n tool = \"x\"\n effect = \"deny\"\n when = args.a == 1\n}").Evaluate(call("x", "{\"a\":2,\"é\":1,\"e\u0301\":2}"))
	expect(t, "twins", twins, governance.Block, "failure/policy/r=BLOCK")
}
