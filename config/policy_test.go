package config

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/config/condition"
)

const rulesText = `
  risk {
    rule "big-refund" {
      tool = "refund*"
      when = args.amount > 500
      risk = "HIGH"
    }
  }
  intent {
    binding "refund-cap" {
      tool       = "refund*"
      argument   = "/amount"
      op         = "lte"
      constraint = "max_refund"
      severity   = "BLOCK"
    }
  }
  redact "secrets" {
    tool    = "*"
    pointer = "/password"
  }
  approve {
    rule "pushes" {
      tool = "Bash"
      when = matches("^git push", args.command)
    }
  }
  policy {
    rule "no-force-push" {
      tool   = "Bash"
      when   = matches("push .*--force", args.command)
      effect = "deny"
      reason = "history is not rewritten by agents"
    }
    rule "dry-run-first" {
      tool    = "deploy"
      effect  = "warn"
      rewrite = { dry_run = true, n = 12345678901234567890.5 }
    }
    plugin "judge" {
      timeout = "2s"
      config {
        url = "http://127.0.0.1:1/"
      }
    }`

func withRules(rules string) string { return strings.Replace(minimalText, "  policy {", rules, 1) }

// Rules are read in full, and compiled.
func TestRules(t *testing.T) {
	t.Parallel()
	g := mustParse(t, withRules(rulesText)).Governance
	if len(g.Policy) != 2 || g.Policy[0].Name != "no-force-push" || g.Policy[0].Effect != "deny" || !g.Policy[0].Tool.Match("Bash") || g.Policy[0].When.Text() != `matches("push .*--force", args.command)` ||
		g.Policy[0].Reason == "" || g.Policy[0].Range.Start.Line == 0 || g.Policy[1].Rewrite["dry_run"] != true || g.Policy[1].Rewrite["n"] != json.Number("12345678901234567890.5") {
		t.Errorf("policy: %+v", g.Policy)
	}
	if len(g.Approve) != 1 || g.Approve[0].Effect != "pause" || g.Approve[0].When == nil {
		t.Errorf("approve: %+v", g.Approve)
	}
	if g.Risk == nil || g.Risk.BlockAt != "HIGH" || len(g.Risk.Rules) != 1 || g.Risk.Rules[0].Risk != "HIGH" || !g.Risk.Rules[0].When.Uses("args") {
		t.Errorf("risk: %+v", g.Risk)
	}
	if len(g.Bindings) != 1 || g.Bindings[0].OnMissing != "block" || g.Bindings[0].Argument.String() != "/amount" || g.Bindings[0].Constraint != "max_refund" {
		t.Errorf("bindings: %+v", g.Bindings)
	}
	if len(g.Redact) != 1 || g.Redact[0].Pointer.Tokens()[0] != "password" {
		t.Errorf("redact: %+v", g.Redact)
	}
	if len(g.PolicyPlugins) != 1 || g.PolicyPlugins[0].Ref() != "policy.judge.judge" || g.PolicyPlugins[0].Timeout != 2*time.Second || g.PolicyPlugins[0].OnFailure != "fail_closed" {
		t.Errorf("plugins: %+v", g.PolicyPlugins)
	}
}

// What a rule means is in the digest; how it is written and where is not.
func TestDigestFollowsTheRules(t *testing.T) {
	t.Parallel()
	base := mustParse(t, withRules(rulesText)).Digest()
	for name, change := range map[string][2]string{
		"layout": {"args.amount > 500", "( args.amount>5e2 )"}, "comment": {"  risk {", "  # rated\n\n\n  risk {"}, "default written out": {"  risk {", "  risk {\n    block_at = \"HIGH\""},
	} {
		if got := mustParse(t, withRules(strings.Replace(rulesText, change[0], change[1], 1))).Digest(); got != base {
			t.Errorf("%s changes the digest", name)
		}
	}
	for _, change := range [][2]string{
		{"args.amount > 500", "args.amount > 501"}, {`risk = "HIGH"`, `risk = "MEDIUM"`}, {"  risk {", "  risk {\n    block_at = \"LOW\""}, {`"lte"`, `"lt"`}, {`severity   = "BLOCK"`, `severity = "WARN"`},
		{`"/amount"`, `"/amounts"`}, {`constraint = "max_refund"`, "constraint = \"max_refund\"\n on_missing = \"warn\""}, {`"/password"`, `"/pass"`}, {`"^git push"`, `"^git"`}, {`"deny"`, `"pause"`},
		{"dry_run = true", "dry_run = false"}, {`tool    = "deploy"`, `tool = "Deploy"`}, {"history is", "the history is"}, {`"no-force-push"`, `"no-force"`}, {`"2s"`, `"3s"`}, {"127.0.0.1:1/", "127.0.0.1:2/"},
		{`timeout = "2s"`, "timeout = \"2s\"\n on_failure = \"fail_open\""},
	} {
		text := strings.Replace(rulesText, change[0], change[1], 1)
		if text == rulesText {
			t.Fatalf("%q is not in the text", change[0])
		}
		if got := mustParse(t, withRules(text)).Digest(); got == base {
			t.Errorf("%q for %q does not change the digest", change[1], change[0])
		}
	}
}

// A bad condition never starts a host, quarantine or not.
func TestBadRulesFailTheWhole(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]string{{"args.amount > 500", "args.amount > \"500\""}, {`"push .*--force"`, `"("`}, {"  approve {", "  approve {\n    rule \"pushes\" {\n      tool = \"x\"\n    }"}, {`"/amount"`, `"amount"`}} {
		text := withRules(strings.Replace(rulesText, change[0], change[1], 1))
		if cfg, diags := parse(t, text, lenient); cfg != nil || !diags.HasErrors() || diags[0].Subject == nil {
			t.Errorf("%q: %v", change[1], diags)
		}
	}
}

// The rules of the documentation are rules, and it names every function.
func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	_, section, ok := strings.Cut(readTest(t, docFile), "## How a tool call is judged\n")
	_, example, _ := strings.Cut(section, "```hcl\n")
	example, _, _ = strings.Cut(example, "```")
	text := strings.Replace(minimalText, "  policy {\n    default = \"allow\"\n  }\n", example, 1)
	if g := mustParse(t, text).Governance; !ok || len(g.Policy) != 3 || len(g.Approve) != 1 {
		t.Errorf("%+v", g)
	}
	for _, name := range condition.FunctionNames() {
		if !strings.Contains(section, "`"+name+"`") && !strings.Contains(section, "`"+name+"(") {
			t.Errorf("the function %s is not in the page", name)
		}
	}
}

// A constraint that nothing looks at is said out loud.
func TestConstraintWithoutBinding(t *testing.T) {
	t.Parallel()
	agent := func(text string) string {
		return strings.Replace(text, "runtime   = runtime.command.shell", "runtime   = runtime.command.shell\n  intent {\n    goal = \"g\"\n    constraints = { max_refund = 1, other = 2 }\n  }", 1)
	}
	reads := "  approve {\n    rule \"r\" {\n      tool = \"*\"\n      when = intent.goal == \"g\"\n    }\n  }\n  policy {"
	for text, want := range map[string]int{agent(minimalText): 2, agent(withRules(reads)): 0,
		agent(withRules(strings.Replace(rulesText, "    plugin \"judge\" {\n      timeout = \"2s\"\n      config {\n        url = \"http://127.0.0.1:1/\"\n      }\n    }", "", 1))): 1, agent(withRules(rulesText)): 0} {
		_, diags := parse(t, text)
		if got := strings.Count(allText(diags), "Constraint without a binding"); got != want {
			t.Errorf("%d warnings, want %d: %s", got, want, allText(diags))
		}
	}
}
