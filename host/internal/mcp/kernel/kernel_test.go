package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run1(t *testing.T, k *Kernel, c *Call) Answer {
	t.Helper()
	a, err := k.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// R19: each arrow of the order. Whatever fails, what comes after it has not run.
func TestEachStepIsBeforeTheNext(t *testing.T) {
	t.Parallel()
	order := []string{"recorder", "open", "ack", "checkpoint_goal", "intend", "work", "settle", "complete_session_message", "attention", "close"}
	wc := `{"record":"` + sess + `","ack":["` + msg + `"],"control":` + control(envelope.GoalProgress, envelope.TodoCompletion) + `}`
	w := newWorld()
	k := kernelOf(t, w)
	run1(t, k, callOf(t, k, "work", `{}`, wc))
	if got := w.seen(); !slices.Equal(got, order) {
		t.Fatalf("got %v", got)
	}
	for i, step := range order[:5] {
		w := newWorld()
		w.errs[step] = &workflow.Error{Kind: "broken", Recovery: workflow.NoAction}
		k := kernelOf(t, w)
		a := run1(t, k, callOf(t, k, "work", `{}`, wc))
		if a.Success || a.Control.Main.State != workflow.NeverStarted {
			t.Errorf("%s fails: %+v", step, a.Control.Main)
		}
		for _, later := range order[i+1 : 8] {
			if w.count(later) != 0 {
				t.Errorf("%s fails, and %s ran", step, later)
			}
		}
	}
}

// R5: every class that has no control envelope, and every caller. Neither the
// sidecar nor the call runs.
func TestWhoCannotHaveAnEnvelope(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(k *Kernel, c *Call){
		"a legacy revision":             func(_ *Kernel, c *Call) { c.Caller.Transport = MCPLegacy },
		"the REST adapter":              func(_ *Kernel, c *Call) { c.Caller.Transport = REST },
		"a caller inside of the host":   func(_ *Kernel, c *Call) { c.Caller.Transport = Internal },
		"without the capability":        func(_ *Kernel, c *Call) { c.Caller.Caps = Capabilities{} },
		"the gateway of plugins":        func(k *Kernel, c *Call) { c.Tool = k.Tool("plugin_gateway") },
		"the gateway of browsers":       func(k *Kernel, c *Call) { c.Tool = k.Tool("browser_gateway") },
		"an app's entry":                func(k *Kernel, c *Call) { c.Tool = k.Tool("app") },
		"a tool that models do not see": func(k *Kernel, c *Call) { c.Tool = k.Tool("hidden") },
	} {
		w := newWorld()
		k := kernelOf(t, w)
		c := callOf(t, k, "work", `{}`, `{"control":`+control(envelope.GoalProgress, envelope.TodoCompletion)+`}`)
		set(k, c)
		a := run1(t, k, c)
		if !strings.HasPrefix(a.Error, "control_sidecar_not_admitted") || len(w.seen()) != 0 {
			t.Errorf("%s: %q, %v", name, a.Error, w.seen())
		}
	}
	for name, fields := range map[string]envelope.Fields{"plugin_gateway": envelope.Record | envelope.Ack, "browser_gateway": envelope.All &^ envelope.Control, "app": envelope.Ack | envelope.Context, "hidden": 0} {
		k := kernelOf(t, newWorld())
		if k.Tool(name).Fields != fields {
			t.Errorf("%s has other members", name)
		}
	}
}

// R15, R17, R42: combinations that are refused before anything runs.
func TestCombinationsThatAreRefused(t *testing.T) {
	t.Parallel()
	resolve := `"record":"` + sess + `","resolve":{"message_id":"` + msg + `","resolution":"r"}`
	for name, c := range map[string]struct{ tool, args, wc, want string }{
		"resolve and before":      {"work", `{}`, `{` + resolve + `,"control":` + control(envelope.GoalProgress, "") + `}`, "multiple_before_mutations"},
		"a goal ends on work":     {"work", `{}`, `{"control":` + control("", envelope.GoalCompletion) + `}`, "control_requires_finish_coding_task"},
		"a session ends on work":  {"work", `{}`, `{"control":` + control(envelope.GoalProgress, envelope.SessionClose) + `}`, "control_requires_finish_coding_task"},
		"a reserved kind":         {"work", `{}`, `{"control":` + control(envelope.SessionContextUpdate, envelope.TodoCompletion) + `}`, "session_context_replay_contract_required"},
		"a reserved kind, finish": {"finish_coding_task", finish, `{"control":` + control(envelope.SessionContextUpdate, "") + `}`, "session_context_replay_contract_required"},
	} {
		w := newWorld()
		k := kernelOf(t, w)
		a := run1(t, k, callOf(t, k, c.tool, c.args, c.wc))
		if !strings.HasPrefix(a.Error, c.want+":") || len(w.seen()) != 0 || a.Control.Main.State != workflow.NeverStarted {
			t.Errorf("%s: %q, %v", name, a.Error, w.seen())
		}
		if b := a.Control.Before; c.want == "session_context_replay_contract_required" && b.ErrorKind != c.want {
			t.Errorf("%s: before says %s", name, b.ErrorKind)
		}
	}
	// What may be combined: resolve and after; ack and context with both phases.
	for _, wc := range []string{
		`{` + resolve + `,"control":` + control("", envelope.TodoCompletion) + `}`,
		`{"record":"` + sess + `","ack":["` + msg + `"],"context":["x"],"control":` + control(envelope.WakeConsume, envelope.TodoCompletion) + `}`,
	} {
		w := newWorld()
		k := kernelOf(t, w)
		if a := run1(t, k, callOf(t, k, "work", `{}`, wc)); !a.Success || w.count("work") != 1 || w.count("complete_session_message") != 1 {
			t.Errorf("%s: %q, %v", wc, a.Error, w.seen())
		}
	}
	// A payload that is not its tool's request can come only from inside.
	w := newWorld()
	k := kernelOf(t, w)
	c := callOf(t, k, "work", `{}`, `{"control":{}}`)
	c.Envelope.Control.Before = &envelope.Mutation{Kind: envelope.GoalProgress, Request: workflow.CloseSession{}}
	if a := run1(t, k, c); !strings.HasPrefix(a.Error, "invalid_control_arguments") || len(w.seen()) != 0 {
		t.Errorf("%q %v", a.Error, w.seen())
	}
}

// R21: a sidecar's scope and the call's are asked for each by itself.
func TestScopesAreIndependent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scopes []string
		want   string
	}{
		{[]string{"work"}, "control_insufficient_scope"},
		{[]string{"communication:manage"}, "insufficient_scope"},
		{[]string{"communication:manage", "work"}, ""},
	} {
		w := newWorld()
		k := kernelOf(t, w)
		call := callOf(t, k, "work", `{}`, `{"control":`+control(envelope.GoalProgress, "")+`}`)
		call.Caller.Scopes = c.scopes
		a := run1(t, k, call)
		if got, _, _ := strings.Cut(a.Error, ":"); got != c.want {
			t.Errorf("%v: %q", c.scopes, a.Error)
		}
		if c.want != "" && len(w.seen()) != 0 {
			t.Errorf("%v: %v", c.scopes, w.seen())
		}
	}
}

// Every kind runs as its canonical tool, once, with a request that the tool
// takes, and of a phase nothing of the main call's identity.
func TestEachKindIsItsCanonicalTool(t *testing.T) {
	t.Parallel()
	for _, k1 := range []envelope.Kind{envelope.GoalProgress, envelope.WakeConsume, envelope.AttemptHeartbeat} {
		for _, k2 := range envelope.After(true) {
			w := newWorld()
			k := kernelOf(t, w)
			a := run1(t, k, callOf(t, k, "finish_coding_task", finish, `{"control":`+control(k1, k2)+`}`))
			if !a.Success || w.count(k1.Tool()) != 1 || w.count(k2.Tool()) != 1 || w.count("finish_coding_task") != 1 {
				t.Errorf("%s, %s: %q %v", k1, k2, a.Error, w.seen())
			}
		}
	}
}

// R28, R29: a committed before stays when main fails, and a replay of it lets
// main run again.
func TestASidecarNeverMakesMainIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld()
	first := true
	w.results["checkpoint_goal"] = func() Result {
		r := Done(map[string]any{}, ChangedIf(first))
		r.Replayed, r.Revision, first = !first, 4, false
		return r
	}
	w.errs["work"] = &workflow.Error{Kind: "broken"}
	k := kernelOf(t, w)
	wc := `{"control":` + control(envelope.GoalProgress, "") + `}`
	if a := run1(t, k, callOf(t, k, "work", `{}`, wc)); a.Success || !a.Control.Before.Success {
		t.Errorf("%+v", a.Control)
	}
	delete(w.errs, "work")
	a := run1(t, k, callOf(t, k, "work", `{}`, wc))
	if !a.Success || !a.Control.Before.Replayed || w.count("work") != 2 {
		t.Errorf("%+v, %v", a.Control.Before, w.seen())
	}
}

// A request that ends while main runs does not cut off what follows.
func TestWhatFollowsADispatchOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	w := newWorld()
	k := kernelOf(t, w)
	ctx, cancel := context.WithCancel(context.Background())
	w.results["work"] = func() Result { cancel(); return Done(nil, Changed) }
	w.results["complete_session_message"] = func() Result {
		return Done(nil, Changed)
	}
	a, err := k.Run(ctx, callOf(t, k, "work", `{}`, `{"control":`+control("", envelope.TodoCompletion)+`}`))
	if err != nil || !a.Control.After.Success || w.count("settle") != 1 || w.rows[0].main.State != workflow.Succeeded {
		t.Errorf("%+v, %v, %v", a.Control, err, w.seen())
	}
}

// Recorder and targets are authorized before anything is changed, and a session
// that is closed is the tool's to judge.
func TestTargetsAreAuthorizedFirst(t *testing.T) {
	t.Parallel()
	wc := `{"control":` + control(envelope.GoalProgress, "") + `}`
	w := newWorld()
	w.errs["recorder"] = &workflow.Error{Kind: "unknown_session_id"}
	k := kernelOf(t, w)
	a := run1(t, k, callOf(t, k, "finish_coding_task", finish, wc))
	if !strings.HasPrefix(a.Error, "unknown_session_id") || w.count("checkpoint_goal") != 0 {
		t.Errorf("%q %v", a.Error, w.seen())
	}
	w = newWorld()
	w.errs["recorder"] = &workflow.Error{Kind: "session_closed"}
	k = kernelOf(t, w)
	if a := run1(t, k, callOf(t, k, "finish_coding_task", finish, wc)); !a.Success {
		t.Errorf("%q", a.Error)
	}
}

// R40: what came in under _wc, and what a phase's tool answers, is nowhere in
// the answer and in the log.
func TestNothingSecretIsRepeated(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	for _, mode := range []string{"ok", "fail", "panic", "unknown", "refused", "bad kind"} {
		for _, k1 := range []envelope.Kind{envelope.GoalProgress, envelope.WakeConsume, envelope.AttemptHeartbeat} {
			for _, k2 := range envelope.After(true) {
				w := newWorld()
				answer := func() Result {
					switch mode {
					case "panic":
						panic(sentinel)
					case "unknown":
						return FromError(errors.New(sentinel))
					case "fail":
						return FromError(&workflow.Error{Kind: "assignment_stale", Message: "stale", Assignment: &workflow.Assignment{Fence: sentinel}})
					case "bad kind":
						return FromError(&workflow.Error{Kind: "X " + sentinel})
					}
					return Done(map[string]any{"x": sentinel}, Changed)
				}
				if mode == "panic" || mode == "unknown" {
					w.results[k1.Tool()] = answer
				}
				w.results[k2.Tool()] = answer
				w.results["finish_coding_task"] = func() Result {
					return Done(map[string]any{"task_outcome": map[string]any{"blocking": false}}, Unchanged)
				}
				k := kernelOf(t, w)
				k.opts.Log = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Trace})
				var seen []Observation
				k.opts.Observe = func(o Observation) { seen = append(seen, o) }
				c := callOf(t, k, "finish_coding_task", finish, `{"control":`+control(k1, k2)+`}`)
				if mode == "refused" {
					c.Caller.Scopes = nil
				}
				a := run1(t, k, c)
				for what, text := range map[string]string{"output": string(a.Output), "error": a.Error, "note": a.Note} {
					if strings.Contains(text, sentinel) {
						t.Errorf("%s %s %s: in the %s: %s", mode, k1, k2, what, text)
					}
				}
				for _, row := range w.rows {
					if text, _ := json.Marshal([]any{row.main, row.before, row.after, row.skip}); strings.Contains(string(text), sentinel) {
						t.Errorf("%s: in a row: %s", mode, text)
					}
				}
				if text, _ := json.Marshal(seen); strings.Contains(string(text), sentinel) {
					t.Errorf("%s: in an observation: %s", mode, text)
				}
			}
		}
	}
	if strings.Contains(log.String(), sentinel) {
		t.Error("in the log")
	}
}

// A kernel without the tool of a kind, or with a name twice, is not made.
func TestAKernelNeedsItsCanonicalTools(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{Service: newWorld(), Log: hclog.NewNullLogger()}); err == nil {
		t.Error("a kernel without tools")
	}
	w := newWorld()
	twice := []*Tool{tool[nothing](w, Def{Name: "a"}), tool[nothing](w, Def{Name: "a"})}
	if _, err := New(Options{Service: w, Tools: twice, Log: hclog.NewNullLogger()}); err == nil {
		t.Error("two tools of one name")
	}
}

// Leave that was taken is given back when the intent cannot be written.
func TestLeaveIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld()
	k := kernelOf(t, w)
	Admit(k.Tool("work"), func(context.Context, By, nothing) (Admission, *Result) {
		_ = w.did("admit")
		return Admission{CallID: "c", Abandon: func() { _ = w.did("abandon") }}, nil
	})
	w.errs["intend"] = &workflow.Error{Kind: "invocation_store_unavailable"}
	a := run1(t, k, callOf(t, k, "work", `{}`, `{"control":`+control(envelope.GoalProgress, "")+`}`))
	if a.Control.Main.State != workflow.NeverStarted || w.count("abandon") != 1 || w.count("work") != 0 || !a.Control.Before.Success {
		t.Errorf("%+v %v", a.Control.Main, w.seen())
	}
	Admit(k.Tool("work"), func(context.Context, By, nothing) (Admission, *Result) {
		return Admission{}, refuse("permission_denied", "no", workflow.UserAction)
	})
	a = run1(t, k, callOf(t, k, "work", `{}`, `{"control":`+control(envelope.GoalProgress, envelope.TodoCompletion)+`}`))
	if !strings.HasPrefix(a.Error, "permission_denied") || a.Control.Main.State != workflow.NeverStarted || a.Control.After.ErrorKind != "main_not_started" {
		t.Errorf("%+v", a.Control)
	}
}
