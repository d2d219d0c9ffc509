package gate

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// load reads a governance block; what it does not say is govern, fail_closed
// and allow.
func load(t testing.TB, body string) config.Governance {
	t.Helper()
	text := "mode = \"govern\"\n" + body
	if !strings.HasPrefix(body, "on_failure") {
		text = "on_failure = \"fail_closed\"\n" + text
	}
	if !strings.Contains(body, "policy {") {
		text += "\npolicy {\n default = \"allow\"\n}"
	}
	cfg, diags := config.Parse([]config.Source{{Name: "t.hcl", Bytes: []byte("name = \"t\"\ngovernance {\n" + text + "\n}\n")}}, config.Options{})
	if diags.HasErrors() {
		t.Fatalf("%s\n%v", text, diags.Errs())
	}
	return cfg.Governance
}

func rules(t testing.TB, body string) *Rules {
	t.Helper()
	r, diags := Compile(load(t, body), WithSalt([]byte("salt")))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return r
}

// policy is rules with a policy block of a default.
func policy(t testing.TB, def, body string) *Rules {
	t.Helper()
	return rules(t, "policy {\n default = \""+def+"\"\n"+body+"\n}")
}

func call(tool, args string) Input {
	return Input{Tool: tool, Args: json.RawMessage(args), Now: time.Unix(1e9, 0)}
}

// ids are a verdict's findings as id=OUTCOME.
func ids(v Verdict) []string {
	out := []string{}
	for _, f := range v.Findings {
		s := f.ID + "=" + string(f.Outcome)
		if f.Waived {
			s += "(waived)"
		}
		out = append(out, s)
	}
	return out
}

func expect(t *testing.T, name string, v Verdict, outcome governance.Outcome, findings ...string) {
	t.Helper()
	if v.Outcome != outcome || !slices.Equal(ids(v), findings) {
		t.Errorf("%s: %s %v, want %s %v", name, v.Outcome, ids(v), outcome, findings)
	}
	if v.EscalationRequired != (v.Outcome == governance.Pause || v.Outcome == governance.Escalate) || v.Reason == "" {
		t.Errorf("%s: %+v", name, v)
	}
}

// Every pair of outcomes, in every stage that can give one: the most severe
// wins, and both are recorded.
func TestMostSevereOfAllPairs(t *testing.T) {
	t.Parallel()
	effects := []string{"allow", "warn", "challenge", "replan", "pause", "escalate", "deny"}
	outcomes := []governance.Outcome{governance.Allow, governance.Warn, governance.Challenge, governance.Replan, governance.Pause, governance.Escalate, governance.Block}
	for i, a := range effects {
		for j, b := range effects {
			want := outcomes[max(i, j)]
			if got := governance.Worse(outcomes[i], outcomes[j]); got != want {
				t.Errorf("worse of %s and %s is %s", outcomes[i], outcomes[j], got)
			}
			r := policy(t, "allow", "rule \"a\" {\n tool = \"*\"\n effect = \""+a+"\"\n}\nrule \"b\" {\n tool = \"x\"\n effect = \""+b+"\"\n}")
			expect(t, a+"+"+b, r.Evaluate(call("x", `{}`)), want, "policy/a="+string(outcomes[i]), "policy/b="+string(outcomes[j]))
		}
	}
}

const full = `
policy {
  default = "allow"
  rule "deny" {
    tool   = "pay"
    when   = args.to == "evil"
    effect = "deny"
    reason = "not to them"
  }
}
risk {
  rule "big" {
    tool = "pay"
    when = args.amount > 500
    risk = "HIGH"
  }
  rule "some" {
    tool   = "pay"
    risk   = "MEDIUM"
    reason = "it is money"
  }
}
intent {
  binding "cap" {
    tool       = "pay"
    argument   = "/amount"
    op         = "lte"
    constraint = "max"
  }
}
approve {
  rule "ask" {
    tool = "pay"
  }
}
budget {
  max_cost_usd = 1
}
`

// G1: every stage runs, whatever the ones before it say.
func TestAllStagesRun(t *testing.T) {
	t.Parallel()
	in := call("pay", `{"amount":501,"to":"evil"}`)
	in.Intent = &governance.Envelope{Constraints: map[string]json.RawMessage{"max": json.RawMessage("500")}}
	in.Spent.CostMicroUSD = 1e6
	v := rules(t, full).Evaluate(in)
	expect(t, "all", v, governance.Block, "policy/deny=BLOCK", "approve/ask=PAUSE", "risk/big=BLOCK", "intent/cap=BLOCK", "budget/cost=PAUSE")
	if v.Risk != governance.High || !strings.HasPrefix(v.Reason, "not to them; ") || strings.Count(v.Reason, "; ") != 4 {
		t.Errorf("%s, %s", v.Risk, v.Reason)
	}
	if !slices.Equal(v.NotEvaluated, []string{StagePlugin}) || !slices.Equal(rules(t, full).Stages(), []string{"policy", "risk", "intent", "budget", "approve"}) {
		t.Errorf("not evaluated: %v", v.NotEvaluated)
	}

	// An approval waives what was shown, and nothing else.
	in = call("pay", `{"amount":5,"to":"us"}`)
	in.Intent = &governance.Envelope{Constraints: map[string]json.RawMessage{"max": json.RawMessage("500")}}
	v = rules(t, full).Evaluate(in)
	expect(t, "asked", v, governance.Pause, "approve/ask=PAUSE", "risk/some=ALLOW")
	in.Waived = []string{"approve/ask", "risk/some"}
	expect(t, "approved", rules(t, full).Evaluate(in), governance.Allow, "approve/ask=PAUSE(waived)", "risk/some=ALLOW(waived)")
	in.Spent.CostMicroUSD = 1e6
	expect(t, "approved, then over budget", rules(t, full).Evaluate(in), governance.Pause, "approve/ask=PAUSE(waived)", "risk/some=ALLOW(waived)", "budget/cost=PAUSE")
	in.Waived = append(in.Waived, "budget/cost")
	expect(t, "budget approved once", rules(t, full).Evaluate(in), governance.Allow, "approve/ask=PAUSE(waived)", "risk/some=ALLOW(waived)", "budget/cost=PAUSE(waived)")
	in.Intent.Constraints["max"] = json.RawMessage("4")
	in.Waived = append(in.Waived, "intent/cap")
	if v := rules(t, full).Evaluate(in); v.Outcome != governance.Block {
		t.Errorf("a BLOCK is waived: %v", ids(v))
	}
}

// Policy rules may test arguments, deny wins over allow, and the default is
// for calls that no rule is for (G12).
func TestPolicy(t *testing.T) {
	t.Parallel()
	const body = `
rule "ls" {
  tool   = "Bash"
  when   = matches("^ls( |$)", args.command)
  effect = "allow"
}
rule "no-force" {
  tool   = "Bash"
  when   = matches("--force", args.command)
  effect = "deny"
}
rule "files" {
  tool   = "mcp__fs__*"
  effect = "warn"
}`
	for _, c := range []struct {
		def, tool, args string
		want            governance.Outcome
		findings        []string
	}{
		{"deny", "Bash", `{"command":"ls -l"}`, governance.Allow, []string{"policy/ls=ALLOW"}},
		{"deny", "Bash", `{"command":"ls --force"}`, governance.Block, []string{"policy/ls=ALLOW", "policy/no-force=BLOCK"}},
		{"deny", "Bash", `{"command":"rm"}`, governance.Block, []string{"policy/default=BLOCK"}},
		{"allow", "Bash", `{"command":"rm"}`, governance.Allow, []string{}},
		{"deny", "bash", `{"command":"ls"}`, governance.Block, []string{"policy/default=BLOCK"}},
		{"deny", "mcp__fs__read/x", `{}`, governance.Warn, []string{"policy/files=WARN"}},
		{"deny", "Bash", `{}`, governance.Block, []string{"failure/policy/ls=BLOCK", "failure/policy/no-force=BLOCK", "policy/default=BLOCK"}},
		{"allow", "Bash", `{"command":1}`, governance.Block, []string{"failure/policy/ls=BLOCK", "failure/policy/no-force=BLOCK"}},
	} {
		expect(t, c.def+" "+c.tool+" "+c.args, policy(t, c.def, body).Evaluate(call(c.tool, c.args)), c.want, c.findings...)
	}
}

// G2 and F2: what cannot be compared goes to on_failure, and risk is null then.
func TestFailurePolicy(t *testing.T) {
	t.Parallel()
	const risk = `
risk {
  rule "big" {
    tool = "pay"
    when = args.amount > 500
    risk = "HIGH"
  }
}`
	for args, want := range map[string]string{`{"amount":850}`: "risk/big=BLOCK", `{"amount":1}`: "", `{"amount":"850"}`: "failure/risk/big=", `{}`: "failure/risk/big=", `{"amount":null}`: "failure/risk/big="} {
		closed, open := rules(t, risk).Evaluate(call("pay", args)), rules(t, "on_failure = \"fail_open\"\n"+risk).Evaluate(call("pay", args))
		switch {
		case want == "":
			expect(t, args, closed, governance.Allow)
			if closed.Risk != governance.Low {
				t.Errorf("%s: risk %q", args, closed.Risk)
			}
		case strings.HasPrefix(want, "failure"):
			expect(t, args, closed, governance.Block, want+"BLOCK")
			expect(t, args, open, governance.Allow, want+"ALLOW")
			if closed.Risk != "" || open.Risk != "" || !strings.Contains(closed.Reason, "on_failure = fail_closed") || !strings.Contains(open.Reason, "on_failure = fail_open") {
				t.Errorf("%s: %+v, %+v", args, closed, open)
			}
		default:
			expect(t, args, closed, governance.Block, want)
			expect(t, args, open, governance.Block, want)
		}
	}
	// Where the rest decides, a missing argument does not undo a deny, and it
	// does not make an allow.
	r := policy(t, "deny", `
rule "d" {
  tool   = "x"
  when   = args.a == 1 || args.b == 1
  effect = "deny"
}
rule "a" {
  tool   = "x"
  when   = args.a == 1 || args.b == 1
  effect = "allow"
}`)
	r.g.OnFailure = "fail_open"
	expect(t, "decided", r.Evaluate(call("x", `{"b":1}`)), governance.Block, "failure/policy/d=ALLOW", "policy/d=BLOCK", "failure/policy/a=ALLOW")
	expect(t, "not decided", r.Evaluate(call("x", `{"b":2}`)), governance.Block, "failure/policy/d=ALLOW", "failure/policy/a=ALLOW", "policy/default=BLOCK")
}

// Evaluate never panics: a stage that breaks down is a finding.
func TestBrokenStage(t *testing.T) {
	t.Parallel()
	r := rules(t, full)
	r.g.Bindings = nil // the index leads nowhere now
	in := call("pay", `{"amount":501,"to":"us"}`)
	in.Spent.CostMicroUSD = 1e6
	expect(t, "broken", r.Evaluate(in), governance.Block, "approve/ask=PAUSE", "risk/big=BLOCK", "failure/intent=BLOCK", "budget/cost=PAUSE")
	r.g.OnFailure = "fail_open"
	v := r.Evaluate(in)
	if v.Outcome != governance.Block || v.Risk != "" {
		t.Errorf("%+v", v)
	}
}

// Arguments that are no good are never run, fail_open or not.
func TestBadArgs(t *testing.T) {
	t.Parallel()
	r := rules(t, "on_failure = \"fail_open\"\n"+full)
	for _, args := range []string{"", "null", "[]", `"x"`, `{"a":1,"a":2}`, `{"a":`, "{\"a\":\"\xff\"}", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)} {
		v := r.Evaluate(call("pay", args))
		expect(t, args, v, governance.Block, "failure/args=BLOCK")
		if v.Args != nil || v.Risk != "" || !slices.Contains(v.NotEvaluated, StageRisk) {
			t.Errorf("%s: %+v", args, v)
		}
	}
}
