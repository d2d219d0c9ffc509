package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestNoPromptIsGivenBeforeTheGatesStand(t *testing.T) {
	t.Parallel()
	const rulesOf = `{"type":"control_response","response":{"subtype":"success","request_id":"airlock-rules","response":{"state":{"rules":[%s]}}}}`
	const hooksOf = `{"type":"control_response","response":{"subtype":"success","request_id":"airlock-initialize","response":%s}}`
	good := fmt.Sprintf(hooksOf, `{"hooks_applied":true,"hook_on_failure_supported":true}`)
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"hooks not taken":         {[]string{fmt.Sprintf(hooksOf, `{"hook_on_failure_supported":true}`)}, "did not take the hooks"},
		"failing hooks pass":      {[]string{fmt.Sprintf(hooksOf, `{"hooks_applied":true}`)}, "does not block a call whose hook fails"},
		"hooks refused":           {[]string{`{"type":"control_response","response":{"subtype":"error","request_id":"airlock-initialize","error":"no"}}`}, "refused the hooks (no)"},
		"no rule":                 {[]string{good, fmt.Sprintf(rulesOf, ``)}, `asks before every call`},
		"a rule of the workspace": {[]string{good, fmt.Sprintf(rulesOf, `{"behavior":"ask","rule":"*","source":"projectSettings"}`)}, `asks before every call`},
		"a narrower rule":         {[]string{good, fmt.Sprintf(rulesOf, `{"behavior":"ask","rule":"Bash","source":"flagSettings"}`)}, `asks before every call`},
		"an allowing rule":        {[]string{good, fmt.Sprintf(rulesOf, `{"behavior":"allow","rule":"*","source":"flagSettings"}`)}, `asks before every call`},
		"no list":                 {[]string{good, `{"type":"control_response","response":{"subtype":"error","request_id":"airlock-rules","error":"unsupported"}}`}, "does not list its permission rules"},
		"only half of the answer": {[]string{good}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "--session-id", nil)
			b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{}}})
			for _, l := range c.lines {
				b.cli(l)
			}
			if b.writes["prompt"] != "" || b.m.st.Ready {
				t.Error("the prompt was given")
			}
			if !strings.Contains(b.m.st.Fatal, c.want) || (c.want == "") != (b.m.st.Fatal == "") {
				t.Errorf("fatal %q", b.m.st.Fatal)
			}
			if c.want == "" {
				return
			}
			b.out = nil
			b.pre("t", "Bash", `{}`, "")
			b.want("") // its input is closed; nothing can be let through
			r := b.exit(&pluginv1.Exit{Code: 0})
			if r.GetOk() || r.GetReason() != "dispatch_error" || r.GetSummary() != b.m.st.Fatal {
				t.Errorf("result %v", r)
			}
		})
	}
}

func TestAForeignSessionIsNotFollowed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*pluginv1.Open){
		"a state of another plugin":  func(o *pluginv1.Open) { o.State = []byte(`{"started":true}`) },
		"a state of a later version": func(o *pluginv1.Open) { o.State = []byte(`{"v":99}`) },
		"no state at all":            func(o *pluginv1.Open) { o.State = []byte("\xff") },
		"a plan of another plugin":   func(o *pluginv1.Open) { o.Plan.Argv = []string{"/bin/sh"} },
	} {
		b := newBench(t, "--session-id", nil)
		change(b.open)
		b.m, b.out = newMachine(b.open, b.opts), nil
		b.took(b.m.start(b.now, 0))
		if said := b.said(); !strings.HasPrefix(said, "problem(true) close") {
			t.Errorf("%s: said %q", name, said)
		}
		if r := b.exit(&pluginv1.Exit{}); r.GetOk() {
			t.Errorf("%s: result %v", name, r)
		}
	}
}

func TestGarbageIsNeverAnAllow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, want string }{
		"plain text":                {"hello", "problem(false)"},
		"broken JSON":               {`{"type":`, "problem(false)"},
		"no type":                   {`{"a":1}`, "problem(false)"},
		"a list":                    {`[1]`, "problem(false)"},
		"an unknown type":           {`{"type":"tomorrow"}`, ""},
		"an unknown request":        {`{"type":"control_request","request_id":"r","request":{"subtype":"elicitation"}}`, "answer/r"},
		"a broken request":          {`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool"`, "problem(true) close"},
		"a request without an id":   {`{"type":"control_request","request":{"subtype":"can_use_tool"}}`, "problem(true) close"},
		"a hook without a call":     {`{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback","input":{"hook_event_name":"PreToolUse"}}}`, "answer/r problem(true) close"},
		"another hook":              {`{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback","input":{"hook_event_name":"Stop","tool_name":"x","tool_use_id":"y"}}}`, "answer/r problem(true) close"},
		"a prompt of another shape": {`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","input":"ls"}}`, "stop(r)"},
		"a strange result":          {`{"type":"result"}`, "problem(false)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := begin(t)
			b.cli(c.line)
			b.want(c.want)
			for key, w := range b.writes {
				if strings.Contains(w, "allow") {
					t.Errorf("%s: %s", key, w)
				}
			}
		})
	}
}

func TestGarbageThatGoesOnEndsTheSession(t *testing.T) {
	t.Parallel()
	b := begin(t)
	for range maxBad + 1 {
		b.cli("hello")
	}
	if b.m.st.Fatal == "" {
		t.Error("it goes on")
	}
}

func TestLinesMayBeLongAndComeInPieces(t *testing.T) {
	t.Parallel()
	b := begin(t)
	content := strings.Repeat("0123456789", 1<<20) // 10 MB
	text := fmt.Sprintf(`{"type":"control_request","request_id":"pre-t","request":{"subtype":"hook_callback","callback_id":"pre","input":{"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"content":%q},"tool_use_id":"t"}}}`+"\n", content)
	for len(text) > 0 {
		n := min(len(text), 3<<20)
		o := &pluginv1.Output{Stream: pluginv1.Stream_STREAM_STDOUT, Offset: b.offset, Data: []byte(text[:n])}
		b.offset, text = b.offset+uint64(n), text[n:]
		b.log = append(b.log, o)
		b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Output{Output: o}})
		// Something else is said meanwhile.
		b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Output{Output: &pluginv1.Output{Stream: pluginv1.Stream_STREAM_STDERR, Offset: b.offset, Data: []byte("x\n")}}})
	}
	b.want("propose(t)")
	args := b.all[len(b.all)-1].GetProposal().GetArgs()
	if len(args) < len(content) || !json.Valid(args) {
		t.Errorf("%d bytes of arguments", len(args))
	}
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Suspend{}})
	if len(b.point.GetState()) > 4<<10 {
		t.Errorf("the state has %d bytes", len(b.point.GetState()))
	}
	b.restart() // the arguments are read again
	b.want("propose(t)")
	if again := b.all[len(b.all)-1].GetProposal().GetArgs(); !bytes.Equal(again, args) {
		t.Error("other arguments after a restart")
	}
	b.verdict("t", allow, "")
	b.want("allow(pre-t)")
}

func TestAnInterruptEndsTheSession(t *testing.T) {
	t.Parallel()
	b := begin(t)
	run := func(id string) {
		b.pre(id, "Bash", `{}`, "")
		b.verdict(id, allow, "")
		b.can(id, "Bash", `{}`)
	}
	run("running")
	b.admitted("running")
	run("admitting")
	b.pre("waiting", "Bash", `{}`, "")
	b.out = nil
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Interrupt{Interrupt: &pluginv1.Interrupt{}}})
	b.want("interrupt(interrupt) close")
	b.verdict("waiting", allow, "")
	b.admitted("admitting")
	b.want("withdrawn(waiting) settled(inv-admitting,DEFINITELY_NOT_STARTED)")
	b.printed("running", true, `,"non_execution_kind":"user-rejected"`)
	b.cli(`{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools"}`)
	b.want("settled(inv-running,UNKNOWN) interrupted")
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Interrupt{Interrupt: &pluginv1.Interrupt{}}})
	b.want("")
	for key, w := range b.writes {
		if strings.Contains(w, `"behavior":"allow"`) && key != "answer/can-running" {
			t.Errorf("%s: %s", key, w)
		}
	}
	if r := b.exit(&pluginv1.Exit{Code: 1}); r.GetOk() || r.GetContinuation() != pluginv1.Continuation_CONTINUATION_END {
		t.Errorf("result %v", r)
	}
}

func TestCancelledCallsAreWithdrawn(t *testing.T) {
	t.Parallel()
	cancel := func(id string) string { return `{"type":"control_cancel_request","request_id":"` + id + `"}` }
	b := begin(t)
	b.pre("a", "Bash", `{}`, "")
	b.out = nil
	b.cli(cancel("pre-a"))
	b.want("withdrawn(a)")
	b.verdict("a", allow, "")
	b.want("")
	b.pre("b", "Bash", `{}`, "")
	b.verdict("b", allow, "")
	b.can("b", "Bash", `{}`)
	b.out = nil
	b.cli(cancel("can-b")) // its admission is on its way
	b.want("")
	b.admitted("b")
	b.want("settled(inv-b,DEFINITELY_NOT_STARTED)")
	b.pre("c", "Bash", `{}`, "")
	b.verdict("c", allow, "")
	b.can("c", "Bash", `{}`)
	b.out = nil
	b.cli(cancel("can-c"))
	b.refused("c", "stopped")
	b.want("withdrawn(c)")
	b.pre("d", "WebFetch", `{}`, "") // a deny rule of the CLI's own comes between
	b.verdict("d", allow, "")
	b.out = nil
	b.printed("d", true, `,"permission_decision":{"decision":"reject"}`)
	b.want("withdrawn(d)")
}

func TestASubAgentsCallsHaveTheirParent(t *testing.T) {
	t.Parallel()
	b := begin(t)
	b.pre("task", "Agent", `{"prompt":"x"}`, "")
	b.verdict("task", allow, "")
	b.can("task", "Agent", `{"prompt":"x"}`)
	b.admitted("task")
	b.cli(`{"type":"system","subtype":"task_started","task_id":"a1","tool_use_id":"task"}`)
	b.pre("t", "Bash", `{}`, "a1")
	p := b.all[len(b.all)-1].GetProposal()
	if p.GetParent() != "task" || p.GetProvenance() != "builtin" {
		t.Errorf("proposal %v", p)
	}
	b.pre("s", "mcp__tools__add", `{}`, "")
	if p := b.all[len(b.all)-1].GetProposal(); p.GetProvenance() != "mcp:tools" {
		t.Errorf("proposal %v", p)
	}
	b.post("task", "Agent", "PostToolUse")
	if len(b.m.st.Agents) != 0 {
		t.Errorf("agents %v", b.m.st.Agents)
	}
}

func TestACrashNamesWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	b := begin(t)
	b.pre("t", "Bash", `{"command":"make deploy"}`, "")
	b.verdict("t", allow, "")
	b.can("t", "Bash", `{"command":"make deploy"}`)
	b.admitted("t")
	b.out = nil
	r := b.exit(&pluginv1.Exit{Signal: 9, Oom: true})
	b.want("settled(inv-t,UNKNOWN)")
	if r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME || r.GetReason() != "signal" || !strings.Contains(r.GetSummary(), "out of memory") {
		t.Errorf("result %v", r)
	}
	p := &claude{}
	p.current.Store(&compiled{config: config{Binary: "/claude", Tools: []string{"Bash"}, Gateway: "anthropic", MCP: true}})
	plan, err := p.Plan(t.Context(), &pluginv1.PlanRequest{Mission: b.open.GetMission(), Resume: &pluginv1.ResumePoint{State: b.point.GetState(), Notice: "The wake wc_wake_1 waits for you.",
		OpenCalls: []*pluginv1.OpenCall{{ProposalId: "u", Tool: "Write", InvocationId: "inv-u"}, {ProposalId: "t", Tool: "Bash", InvocationId: "inv-t"}}}})
	if err != nil {
		t.Fatal(err)
	}
	next := newBench(t, "--resume", nil)
	next.open.Plan, next.open.Generation = plan.GetPlan(), 2
	next.m = newMachine(next.open, next.opts)
	next.took(next.m.start(next.now, 0))
	next.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{}}})
	next.hello()
	said := next.writes["prompt"]
	if !strings.Contains(said, "- Bash: make deploy") || !strings.Contains(said, "- Write") || strings.Contains(said, "do it") || !strings.Contains(said, "wc_wake_1") || next.m.st.Notice != "" {
		t.Errorf("the model is told %s", said)
	}
	next.out = nil
	next.pre("t", "Bash", `{"command":"make deploy"}`, "")
	next.want("deny(pre-t)") // it is never run twice
	if next.m.st.Session != testSession {
		t.Errorf("session %s", next.m.st.Session)
	}
}
