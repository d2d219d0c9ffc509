package main

import (
	"strings"
	"testing"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

const (
	allow    = pluginv1.Decision_DECISION_ALLOW
	warn     = pluginv1.Decision_DECISION_WARN
	pauses   = pluginv1.Decision_DECISION_PAUSE
	blocked  = pluginv1.Decision_DECISION_BLOCK
	escalate = pluginv1.Decision_DECISION_ESCALATE
)

func TestACallPassesBothGates(t *testing.T) {
	t.Parallel()
	b := begin(t)
	b.pre("t1", "Bash", `{"command":"ls"}`, "")
	b.want("propose(t1)")
	b.verdict("t1", allow, "")
	b.want("allow(pre-t1)")
	b.can("t1", "Bash", `{ "command" : "ls" }`)
	b.want("admit(t1,fp-t1)")
	b.admitted("t1")
	b.want("run(can-t1)")
	b.post("t1", "Bash", "PostToolUse")
	b.want("settled(inv-t1,SUCCEEDED) seen(post-t1)")
	b.printed("t1", false, "")
	b.result("")
	b.cli(`{"type":"system","subtype":"session_state_changed","state":"idle"}`)
	b.want("close")
	r := b.exit(&pluginv1.Exit{})
	if !r.GetOk() || r.GetSummary() != "all done" || r.GetReason() != "" {
		t.Errorf("result %v", r)
	}
	var tokens, cost int64
	for _, m := range b.all {
		tokens += m.GetUsage().GetTokens()
		cost += m.GetUsage().GetCostMicroUsd()
	}
	if tokens != 12 || cost != 10_000 {
		t.Errorf("used %d tokens, %d µ$", tokens, cost)
	}
	if s := b.m.st; len(s.Calls) != 0 || len(s.Done) != 0 || len(b.m.asks) != 0 || b.point.GetOffset() != b.offset {
		t.Errorf("left over: %+v, asks %v, checkpoint at %d of %d", s, b.m.asks, b.point.GetOffset(), b.offset)
	}
}

func TestVerdictsAreAnsweredAtTheFirstGate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decision pluginv1.Decision
		updated  string
		agent    string
		want     string
		answer   string
	}{
		"allow":                 {decision: allow, want: "allow(pre-t)"},
		"rewrite":               {decision: allow, updated: `{"command":"ls -l"}`, want: "allow(pre-t)", answer: `"updatedInput":{"command":"ls -l"}`},
		"warn":                  {decision: warn, want: "allow(pre-t)"},
		"block":                 {decision: blocked, want: "deny(pre-t)", answer: "because"},
		"challenge":             {decision: pluginv1.Decision_DECISION_CHALLENGE, want: "deny(pre-t)", answer: "justified"},
		"replan":                {decision: pluginv1.Decision_DECISION_REPLAN, want: "deny(pre-t)", answer: "another plan"},
		"pause":                 {decision: pauses, want: "defer(pre-t) deferred(t)"},
		"escalate":              {decision: escalate, want: "defer(pre-t) deferred(t)"},
		"pause in a sub-agent":  {decision: pauses, agent: "a1", want: "deny(pre-t) withdrawn(t)", answer: "sub-agent"},
		"a rewrite to a string": {decision: allow, updated: `"ls"`, want: "problem(false) deny(pre-t) withdrawn(t)"},
		"a broken rewrite":      {decision: allow, updated: `{"command`, want: "problem(false) deny(pre-t) withdrawn(t)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := begin(t)
			b.pre("t", "Bash", `{"command":"ls"}`, c.agent)
			b.out = nil
			b.verdict("t", c.decision, c.updated)
			b.want(c.want)
			if !strings.Contains(b.writes["answer/pre-t"], c.answer) {
				t.Errorf("answer %s", b.writes["answer/pre-t"])
			}
		})
	}
}

func TestTheSecondGateTakesOnlyWhatWasDecidedOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ updated, input, want string }{
		"the same":                     {"", `{"n":1,"a":["x"]}`, "admit(t,fp-t)"},
		"in another order and writing": {"", ` {"a": ["x"], "n":1.0}`, "admit(t,fp-t)"},
		"another input":                {"", `{"n":2,"a":["x"]}`, "problem(false) stop(can-t) withdrawn(t)"},
		"one more member":              {"", `{"n":1,"a":["x"],"b":null}`, "problem(false) stop(can-t) withdrawn(t)"},
		"the old one after a rewrite":  {`{"n":3}`, `{"n":1,"a":["x"]}`, "problem(false) stop(can-t) withdrawn(t)"},
		"the rewritten one":            {`{"n":3}`, `{"n":3}`, "admit(t,fp-t)"},
		"a number that was rounded":    {`{"n":9007199254740993}`, `{"n":9007199254740992}`, "problem(false) stop(can-t) withdrawn(t)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := begin(t)
			b.pre("t", "Bash", `{"n":1,"a":["x"]}`, "")
			b.verdict("t", allow, c.updated)
			b.out = nil
			b.can("t", "Bash", c.input)
			b.want(c.want)
		})
	}
}

func TestACallThatNobodyDecidedOnIsDenied(t *testing.T) {
	t.Parallel()
	b := begin(t)
	b.can("x", "Bash", `{}`)
	b.want("stop(can-x)")
	b.pre("y", "mcp__other__do", `{}`, "")
	b.want("problem(false) deny(pre-y)")
	b.pre("z", "Bash", `{}`, "")
	b.want("propose(z)")
	b.can("z", "Bash", `{}`) // past a gate that nobody has opened
	b.want("problem(true) close")
	if strings.Contains(b.writes["answer/can-z"], "allow") {
		t.Error("it was allowed")
	}
	if r := b.exit(&pluginv1.Exit{Code: 1}); r.GetOk() || r.GetReason() != "dispatch_error" {
		t.Errorf("result %v", r)
	}
}

func TestACallThatRanWithoutAnAdmissionEndsTheSession(t *testing.T) {
	t.Parallel()
	for name, ran := range map[string]func(*bench){
		"a hook after it":            func(b *bench) { b.post("t", "Bash", "PostToolUse") },
		"a result of a known call":   func(b *bench) { b.pre("t", "Bash", `{}`, ""); b.verdict("t", allow, ""); b.printed("t", false, "") },
		"a result of an unknown one": func(b *bench) { b.printed("t", false, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := begin(t)
			ran(b)
			if said := b.said(); !strings.Contains(said, "problem(true)") || b.m.st.Fatal == "" {
				t.Errorf("said %q", said)
			}
		})
	}
	b := begin(t) // an input that the CLI itself finds wrong never ran
	b.printed("t", true, "")
	b.want("")
}

func TestParallelCallsAreDecidedSideBySide(t *testing.T) {
	t.Parallel()
	b := begin(t)
	b.pre("a", "Bash", `{"c":1}`, "")
	b.pre("b", "Bash", `{"c":2}`, "")
	b.want("propose(a) propose(b)")
	b.verdict("b", pauses, "")
	b.want("defer(pre-b) deferred(b)")
	b.verdict("a", pauses, "") // one of a turn only
	b.want("deny(pre-a) withdrawn(a)")
	b.printed("a", true, `,"permission_decision":{"decision":"reject"}`)
	b.result(`,"stop_reason":"tool_deferred"`)
	b.cli(`{"type":"system","subtype":"session_state_changed","state":"idle"}`)
	b.want("close")
	r := b.exit(&pluginv1.Exit{})
	if r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED {
		t.Errorf("result %v", r)
	}
	next := newBench(t, "--resume", b.point.GetState())
	next.open.Generation = 2
	next.m = newMachine(next.open, next.opts)
	next.took(next.m.start(next.now, 0))
	next.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{}}})
	next.out = nil
	next.cli(`{"type":"control_response","response":{"subtype":"success","request_id":"airlock-rules","response":{"state":{"rules":[{"behavior":"ask","source":"flagSettings","rule":"*"}]}}}}`)
	next.pre("b", "Bash", `{"c":2}`, "") // it may come before the handshake is over
	next.want("")
	next.cli(`{"type":"control_response","response":{"subtype":"success","request_id":"airlock-initialize","response":{"hooks_applied":true,"hook_on_failure_supported":true,"session_state":"running"}}}`)
	next.want("propose(b)")
	if next.writes["prompt"] != "" {
		t.Errorf("it was told to go on: %s", next.writes["prompt"])
	}
}

func TestRefusalsOfAnAdmission(t *testing.T) {
	t.Parallel()
	for why, want := range map[string]string{
		"stopped": "stop(can-t)", "consumed": "stop(can-t)", "fingerprint_mismatch": "stop(can-t)", "not_allowed": "stop(can-t)",
		"journal_unavailable": "", "paused": "", "stale_epoch": "",
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			b := begin(t)
			b.pre("t", "Bash", `{}`, "")
			b.verdict("t", allow, "")
			b.can("t", "Bash", `{}`)
			b.out = nil
			b.refused("t", why)
			b.want(want)
			b.tick(500 * time.Millisecond)
			b.want("")
			b.tick(600 * time.Millisecond)
			switch why {
			case "journal_unavailable":
				b.want("admit(t,fp-t)")
			case "paused", "stale_epoch":
				b.want("propose(t)")
				b.verdict("t", allow, "")
				b.want("admit(t,fp-t)")
				b.admitted("t")
				b.want("run(can-t)")
			default:
				b.want("")
			}
		})
	}
}
