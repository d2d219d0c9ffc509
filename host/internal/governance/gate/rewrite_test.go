package gate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
)

func TestMergeKeepsBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, patch, want string }{
		{`{"b":1e400,"a":{"y":1,"x":[1,2]}}`, `{"a":{"x":[3],"z":null}}`, `{"b":1e400,"a":{"y":1,"x":[3],"z":null}}`},
		{`{"a":1}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`}, {`{"a":{"b":1}}`, `{"a":1}`, `{"a":1}`}, {`{"a":[1]}`, `{"a":{"0":2}}`, `{"a":{"0":2}}`},
		{`{}`, `{"a":1,"b":2}`, `{"a":1,"b":2}`}, {`{"a":1}`, `{"a":null}`, `{"a":null}`},
		{"{\"e\u0301\":1,\"\\u0061\":2,\"s\":\"\\/\"}", `{"a":3,"é":4}`, "{\"e\u0301\":1,\"\\u0061\":3,\"s\":\"\\/\",\"é\":4}"},
		{`{"a":{"b":{"c":1,"d":2}},"z":0}`, `{"a":{"b":{"d":3}}}`, `{"a":{"b":{"c":1,"d":3}},"z":0}`},
	} {
		if got := string(parsed(t, c.args).merge(parsed(t, c.patch))); got != c.want {
			t.Errorf("%s with %s is %s, want %s", c.args, c.patch, got, c.want)
		}
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	const body = `
rule "dry" {
  tool    = "deploy"
  when    = !contains(keys(args), "dry_run")
  effect  = "warn"
  rewrite = { dry_run = true, opts = { level = 1, tag = "<a>" } }
}
rule "later" {
  tool    = "dep*"
  effect  = "allow"
  rewrite = { opts = { level = 2 } }
}
rule "no-level-2-in-prod" {
  tool   = "deploy"
  when   = lookup(args, "env", "") == "prod" && contains(keys(args), "opts") && args.opts.level == 2
  effect = "deny"
}
rule "asked" {
  tool   = "deploy"
  when   = lookup(args, "env", "") == "raw" && contains(keys(args), "dry_run")
  effect = "pause"
}`
	r := policy(t, "deny", body)
	v := r.Evaluate(call("deploy", `{ "env": "test", "big": 1e400 }`))
	expect(t, "rewritten", v, governance.Warn, "policy/dry=WARN", "policy/later=ALLOW")
	if want := `{"env":"test","big":1e400,"dry_run":true,"opts":{"level":2,"tag":"<a>"}}`; string(v.Args) != want || !v.Rewritten {
		t.Errorf("%s, want %s", v.Args, want)
	}
	// Deny looks at what would run too, and so does everything else.
	expect(t, "deny after", r.Evaluate(call("deploy", `{"env":"prod"}`)), governance.Block, "policy/dry=WARN", "policy/later=ALLOW", "policy/no-level-2-in-prod=BLOCK")
	expect(t, "pause after", r.Evaluate(call("deploy", `{"env":"raw"}`)), governance.Pause, "policy/dry=WARN", "policy/later=ALLOW", "policy/asked=PAUSE")
	// Deny looks at what was asked as well: a rewrite does not heal it.
	expect(t, "deny before", r.Evaluate(call("deploy", `{"env":"prod","opts":{"level":2}}`)), governance.Block, "policy/dry=WARN", "policy/later=ALLOW", "policy/no-level-2-in-prod=BLOCK")
	// A rewrite that changes nothing is none.
	v = r.Evaluate(call("deploy", `{"dry_run":false,"opts":{"level":2}}`))
	expect(t, "same", v, governance.Allow, "policy/later=ALLOW")
	if v.Rewritten {
		t.Error("rewritten")
	}
	// Risk and bindings look at what would run.
	r = rules(t, `
policy {
  default = "allow"
  rule "cap" {
    tool    = "pay"
    effect  = "warn"
    rewrite = { amount = 100 }
  }
}
risk {
  rule "big" {
    tool = "pay"
    when = args.amount > 100
    risk = "HIGH"
  }
}
intent {
  binding "cap" {
    tool       = "pay"
    argument   = "/amount"
    constraint = "max"
  }
}`)
	in := call("pay", `{"amount":5000}`)
	in.Intent = &governance.Envelope{Constraints: map[string]json.RawMessage{"max": json.RawMessage("100")}}
	expect(t, "capped", r.Evaluate(in), governance.Warn, "policy/cap=WARN")
	// A result that is no good does not run.
	in = call("pay", `{"amount":1,"x":"`+strings.Repeat("x", MaxArgsBytes-19)+`"}`)
	in.Intent = &governance.Envelope{Constraints: map[string]json.RawMessage{"max": json.RawMessage("100")}}
	expect(t, "too large", r.Evaluate(in), governance.Block, "policy/cap=WARN", "failure/rewrite=BLOCK")
}

func TestRedact(t *testing.T) {
	t.Parallel()
	const secret = "PLANTED-secret-\\u00e9"
	r := rules(t, `
redact "password" {
  tool    = "*"
  pointer = "/password"
}
redact "nested" {
  tool    = "http"
  pointer = "/headers/0/value"
}
redact "body" {
  tool    = "http"
  pointer = "/headers"
}
redact "slash" {
  tool    = "x"
  pointer = "/a~1b"
}`)
	for _, c := range []struct{ tool, args string }{
		{"a", `{"password":"` + secret + `","n":1e400}`}, {"a", `{"password":{"deep":["` + secret + `"]}}`}, {"a", `{"p\u0061ssword":"` + secret + `"}`},
		{"http", `{"headers":[{"value":"` + secret + `"}],"password":"` + secret + `"}`}, {"http", `{"headers":"` + secret + `"}`}, {"x", `{"a/b":"` + secret + `"}`},
		{"a", `{"password":"` + secret + `","password":"` + secret + `"}`}, {"a", `{"password":"` + secret}, {"a", `["` + secret + `"]`}, {"a", secret},
	} {
		got := r.Redact(c.tool, json.RawMessage(c.args))
		if strings.Contains(string(got), "PLANTED") || !json.Valid(got) || !strings.Contains(string(got), `{"redacted":"sha256:`) {
			t.Errorf("%s %s: %s", c.tool, c.args, got)
		}
		if v := r.Evaluate(call(c.tool, c.args)); strings.Contains(v.Reason, "PLANTED") {
			t.Errorf("%s: %s", c.args, v.Reason)
		}
	}
	same := func(a, b json.RawMessage) bool { return string(a) == string(b) }
	if got := r.Redact("a", json.RawMessage(`{"other":1e400, "x":"é"}`)); !same(got, json.RawMessage(`{"other":1e400,"x":"é"}`)) {
		t.Errorf("%s", got)
	}
	// The digest is of salt and compact value: SHA-256("salt" || "\"x\"").
	if got := string(r.Redact("a", json.RawMessage(`{"password": "x" }`))); got != `{"password":{"redacted":"sha256:593952601c3c700c79e3469a26c4f8c67271bbb422fda9d6a1086da347529a3a"}}` {
		t.Errorf("%s", got)
	}
	other, diags := Compile(r.g, WithSalt([]byte("pepper")))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	random, _ := Compile(r.g)
	a, b, c := r.Redact("a", json.RawMessage(`{"password":1}`)), other.Redact("a", json.RawMessage(`{"password":1}`)), random.Redact("a", json.RawMessage(`{"password":1}`))
	if same(a, b) || same(a, c) || same(b, c) || r.Digest() != other.Digest() {
		t.Error("the salt does not count, or it is in the digest")
	}
}

func TestTighten(t *testing.T) {
	t.Parallel()
	r := policy(t, "allow", `
rule "w" {
  tool   = "*"
  effect = "challenge"
}
plugin "judge" {
  on_failure = "fail_open"
}`)
	in := call("x", `{}`)
	v := r.Evaluate(in)
	for o, want := range map[governance.Outcome]governance.Outcome{governance.Allow: governance.Challenge, governance.Warn: governance.Challenge, governance.Replan: governance.Replan,
		governance.Pause: governance.Pause, governance.Escalate: governance.Escalate, governance.Block: governance.Block, "": governance.Block, "allow": governance.Block, "OK": governance.Block} {
		got := r.Tighten(v, []governance.Finding{{Rule: "judge", Outcome: o, Reason: "r", Stage: "policy", Waived: true}})
		if got.Outcome != want || len(got.Findings) != 2 || len(v.Findings) != 1 {
			t.Errorf("%q: %+v", o, got)
		}
	}
	p := r.Plugins()[0]
	if got := r.PluginFailed(v, p, errTest{}); got.Outcome != governance.Challenge || got.Findings[1].Outcome != governance.Allow || !strings.Contains(got.Reason, "fail_open") {
		t.Errorf("%+v", got)
	}
	p.OnFailure = "fail_closed"
	if got := r.PluginFailed(v, p, errTest{}); got.Outcome != governance.Block {
		t.Errorf("%+v", got)
	}
	in.Waived = []string{"plugin/judge", "policy/w"}
	if got := r.Tighten(r.Evaluate(in), []governance.Finding{{Rule: "judge", Outcome: governance.Pause, Reason: "r"}}); got.Outcome != governance.Allow {
		t.Errorf("an approval does not cover a plugin's finding: %+v", got)
	}
}

// A plugin cannot make an approval of something else cover its finding.
func TestPluginFindingsHaveTheirOwnIDs(t *testing.T) {
	t.Parallel()
	r := policy(t, "allow", "rule \"w\" {\n tool = \"*\"\n effect = \"warn\"\n}\nplugin \"judge\" {}")
	in := call("x", `{}`)
	in.Waived = []string{"policy/w"}
	for _, id := range []string{"policy/w", "plugin/other", "x"} {
		v := r.Tighten(r.Evaluate(in), []governance.Finding{{ID: id, Rule: "judge", Outcome: governance.Pause}})
		if v.Outcome != governance.Pause || v.Findings[1].ID != "plugin/judge/"+id {
			t.Errorf("%s: %+v", id, v)
		}
	}
}

type errTest struct{}

func (errTest) Error() string { return "deadline exceeded" }

// The digests follow what rules mean, part by part.
func TestDigests(t *testing.T) {
	t.Parallel()
	base := rules(t, full)
	same := rules(t, strings.ReplaceAll(strings.ReplaceAll(full, "args.amount > 500", "(args.amount>5e2)"), "\nrisk {", "\n\n# risk\nrisk {\n  block_at = \"HIGH\""))
	if base.Digest() != same.Digest() || base.PolicyDigest() != same.PolicyDigest() || base.PolicyDigest() != governance.Digest([]byte(base.PolicyText())) {
		t.Error("the layout is in the digest")
	}
	for part, change := range map[string][2]string{"policy": {"evil", "bad"}, "risk": {"500", "501"}, "intent": {`"max"`, `"most"`}, "budget": {"max_cost_usd = 1", "max_cost_usd = 2"}} {
		other := rules(t, strings.Replace(full, change[0], change[1], 1))
		if other.Digest() == base.Digest() {
			t.Errorf("%s is not in the digest", part)
		}
		for name, d := range other.Digests() {
			if (d == base.Digests()[name]) != (name != part) {
				t.Errorf("a change of %s: the digest of %s", part, name)
			}
		}
	}
	if a, b := rules(t, full), rules(t, "on_failure = \"fail_open\"\n"+full); a.Digest() == b.Digest() {
		t.Error("on_failure is not in the digest")
	}
	var text struct{ Policy, Approve json.RawMessage }
	if err := json.Unmarshal([]byte(base.PolicyText()), &text); err != nil || !strings.Contains(string(text.Policy), `(args.to == \"evil\")`) || !strings.Contains(string(text.Approve), "ask") {
		t.Errorf("%s: %v", base.PolicyText(), err)
	}
}

// A governance block that was not loaded but made is checked.
func TestCompileChecks(t *testing.T) {
	t.Parallel()
	if _, diags := Compile(config.Governance{}); !diags.HasErrors() {
		t.Error("an empty governance block is accepted")
	}
	g := load(t, full)
	g.Policy[0].Effect = "block"
	if _, diags := Compile(g); !diags.HasErrors() {
		t.Error("an unknown effect is accepted")
	}
}
