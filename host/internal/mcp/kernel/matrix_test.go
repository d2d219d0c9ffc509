package kernel

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

func stale(kind string, revision int64) error {
	return &workflow.Error{Kind: kind, Message: "it has moved", Recovery: workflow.Reobserve, Revision: revision}
}

func uncertain() error {
	return &workflow.Error{Kind: "goal_store_unavailable", Message: "the commit was cut off", Recovery: workflow.RetrySame, Unknown: true}
}

// The outcome matrix (control-sidecars 4.3), whole: each row with what is said
// and with what provably ran.
func TestOutcomeMatrix(t *testing.T) {
	t.Parallel()
	const never = `{"success":false,"execution_state":"definitely_not_started","state_changed":false}`
	skip := func(kind, why string) string {
		return `{"kind":"` + kind + `","success":false,"execution_state":"definitely_not_started","state_changed":false,"replayed":false,"error_kind":"` + why + `"}`
	}
	const ok = `{"success":true,"execution_state":"succeeded","state_changed":true}`
	const before = `{"kind":"goal_progress","success":true,"execution_state":"succeeded","state_changed":true,"replayed":false,"revision":4}`
	const after = `{"kind":"todo_completion","success":true,"execution_state":"succeeded","state_changed":true,"replayed":false}`
	for _, row := range []struct {
		name       string
		set        func(*world, *Call)
		tool, args string // default: work {}
		after      envelope.Kind
		err        string // error kind of the whole; empty: success
		want       [3]string
		ran        string // what ran, of before, main and after
	}{
		{name: "all well", want: [3]string{ok, before, after}, ran: "bma"},
		{name: "a scope of a sidecar is missing", set: func(_ *world, c *Call) { c.Caller.Scopes = []string{"work", "session:collaborate"} },
			err: "control_insufficient_scope", want: [3]string{never, skip("goal_progress", "request_rejected"), skip("todo_completion", "main_not_started")}},
		{name: "the scope of the phase after is missing", set: func(_ *world, c *Call) { c.Caller.Scopes = []string{"work", "communication:manage"} },
			err: "control_insufficient_scope", want: [3]string{never, skip("goal_progress", "request_rejected"), skip("todo_completion", "main_not_started")}},
		{name: "the scope of main is missing", set: func(_ *world, c *Call) { c.Caller.Scopes = []string{"session:collaborate", "communication:manage"} },
			err: "insufficient_scope", want: [3]string{never, skip("goal_progress", "request_rejected"), skip("todo_completion", "main_not_started")}},
		{name: "the arguments of main are wrong", args: `{"other":1}`,
			err: "invalid_arguments", want: [3]string{never, skip("goal_progress", "request_rejected"), skip("todo_completion", "main_not_started")}},
		{name: "no capability", set: func(_ *world, c *Call) { c.Caller.Caps = Capabilities{} },
			err: "control_sidecar_not_admitted", want: [3]string{never, skip("goal_progress", "request_rejected"), skip("todo_completion", "main_not_started")}},
		{name: "before is stale", set: func(w *world, _ *Call) { w.errs["checkpoint_goal"] = stale("goal_revision_changed", 5) },
			err: "control_before_failed", ran: "b", want: [3]string{never,
				`{"kind":"goal_progress","success":false,"execution_state":"failed","state_changed":false,"replayed":false,"revision":5,"error_kind":"goal_revision_changed"}`, skip("todo_completion", "main_not_started")}},
		{name: "the commit of before is uncertain", set: func(w *world, _ *Call) { w.errs["checkpoint_goal"] = uncertain() },
			err: "control_before_failed", ran: "b", want: [3]string{never,
				`{"kind":"goal_progress","success":false,"execution_state":"outcome_unknown","state_changed":null,"replayed":false,"error_kind":"goal_store_unavailable"}`, skip("todo_completion", "main_not_started")}},
		{name: "before panics", set: func(w *world, _ *Call) { w.results["checkpoint_goal"] = func() Result { panic(sentinel) } },
			err: "control_before_failed", ran: "b", want: [3]string{never,
				`{"kind":"goal_progress","success":false,"execution_state":"outcome_unknown","state_changed":null,"replayed":false,"error_kind":"control_outcome_unknown"}`, skip("todo_completion", "main_not_started")}},
		{name: "the intent cannot be written", set: func(w *world, _ *Call) { w.errs["intend"] = &workflow.Error{Kind: "invocation_store_unavailable"} },
			err: "invocation_store_unavailable", ran: "b", want: [3]string{never, before, skip("todo_completion", "main_not_started")}},
		{name: "main fails", set: func(w *world, _ *Call) { w.errs["work"] = stale("broken", 0) },
			err: "broken", ran: "bm", want: [3]string{`{"success":false,"execution_state":"failed","state_changed":false}`, before, skip("todo_completion", "main_failed")}},
		{name: "before is a replay", set: func(w *world, _ *Call) {
			w.results["checkpoint_goal"] = func() Result {
				r := Done(map[string]any{}, Unchanged)
				r.Replayed, r.Revision = true, 6
				return r
			}
		}, ran: "bma", want: [3]string{ok, `{"kind":"goal_progress","success":true,"execution_state":"succeeded","state_changed":false,"replayed":true,"revision":6}`, after}},
		{name: "main is handed to a job", set: func(w *world, _ *Call) {
			w.results["work"] = func() Result { return Result{State: workflow.Started, Change: ChangeUnknown} }
		}, ran: "bm", want: [3]string{`{"success":true,"execution_state":"started","state_changed":null}`, before, skip("todo_completion", "main_not_completed")}},
		{name: "what main did is not known", set: func(w *world, _ *Call) { w.errs["work"] = uncertain() },
			err: "goal_store_unavailable", ran: "bm", want: [3]string{`{"success":false,"execution_state":"outcome_unknown","state_changed":null}`, before, skip("todo_completion", "main_outcome_unknown")}},
		{name: "main panics", set: func(w *world, _ *Call) { w.results["work"] = func() Result { panic(sentinel) } },
			err: "main_outcome_unknown", ran: "bm", want: [3]string{`{"success":false,"execution_state":"outcome_unknown","state_changed":null}`, before, skip("todo_completion", "main_outcome_unknown")}},
		{name: "main says nothing of how it ended", set: func(w *world, _ *Call) { w.results["work"] = func() Result { return Result{Output: map[string]any{}} } },
			err: "outcome_unknown", ran: "bm", want: [3]string{`{"success":false,"execution_state":"outcome_unknown","state_changed":null}`, before, skip("todo_completion", "main_outcome_unknown")}},
		{name: "main never started", set: func(w *world, _ *Call) {
			w.results["work"] = func() Result { return Refuse("permission_denied", "", workflow.UserAction) }
		}, err: "permission_denied", ran: "bm", want: [3]string{never, before, skip("todo_completion", "main_not_started")}},
		{name: "finish is not blocking", tool: "finish_coding_task", args: finish, after: envelope.GoalCompletion, ran: "bma", want: [3]string{ok, before,
			`{"kind":"goal_completion","success":true,"execution_state":"succeeded","state_changed":true,"replayed":false,"revision":5}`}},
		{name: "finish is blocking", tool: "finish_coding_task", args: finish, after: envelope.GoalCompletion, set: blockingIs(true),
			ran: "bm", want: [3]string{ok, before, skip("goal_completion", "closeout_blocking")}},
		{name: "finish does not say", tool: "finish_coding_task", args: finish, after: envelope.SessionClose, set: blockingIs(nil),
			ran: "bm", want: [3]string{ok, before, skip("session_close", "closeout_blocking")}},
		{name: "finish says it in words", tool: "finish_coding_task", args: finish, after: envelope.SessionClose, set: blockingIs("false"),
			ran: "bm", want: [3]string{ok, before, skip("session_close", "closeout_blocking")}},
		{name: "finish fails", tool: "finish_coding_task", args: finish, after: envelope.SessionClose, set: func(w *world, _ *Call) { w.errs["finish_coding_task"] = stale("broken", 0) },
			err: "broken", ran: "bm", want: [3]string{`{"success":false,"execution_state":"failed","state_changed":false}`, before, skip("session_close", "main_failed")}},
		{name: "a todo does not ask whether the work may be closed", tool: "finish_coding_task", args: finish, set: blockingIs(true),
			ran: "bma", want: [3]string{ok, before, after}},
		{name: "after is stale", set: func(w *world, _ *Call) { w.errs["complete_session_message"] = stale("assignment_stale", 0) },
			ran: "bma", want: [3]string{ok, before, `{"kind":"todo_completion","success":false,"execution_state":"failed","state_changed":false,"replayed":false,"error_kind":"assignment_stale"}`}},
		{name: "the goal has moved before it is completed", tool: "finish_coding_task", args: finish, after: envelope.GoalCompletion,
			set: func(w *world, _ *Call) { w.errs["update_goal"] = stale("goal_revision_changed", 9) },
			ran: "bma", want: [3]string{ok, before, `{"kind":"goal_completion","success":false,"execution_state":"failed","state_changed":false,"replayed":false,"revision":9,"error_kind":"goal_revision_changed"}`}},
		{name: "the commit of after is uncertain", set: func(w *world, _ *Call) { w.errs["complete_session_message"] = uncertain() },
			ran: "bma", want: [3]string{ok, before, `{"kind":"todo_completion","success":false,"execution_state":"outcome_unknown","state_changed":null,"replayed":false,"error_kind":"goal_store_unavailable"}`}},
		{name: "after panics", set: func(w *world, _ *Call) { w.results["complete_session_message"] = func() Result { panic(sentinel) } },
			ran: "bma", want: [3]string{ok, before, `{"kind":"todo_completion","success":false,"execution_state":"outcome_unknown","state_changed":null,"replayed":false,"error_kind":"control_outcome_unknown"}`}},
		{name: "the end of main cannot be written", set: func(w *world, _ *Call) { w.errs["settle"] = &workflow.Error{Kind: "invocation_store_unavailable"} },
			ran: "bma", want: [3]string{ok, before, after}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.results["checkpoint_goal"] = revised(4)
			w.results["update_goal"] = revised(5)
			k := kernelOf(t, w)
			if row.tool == "" {
				row.tool = "work"
			}
			if row.args == "" {
				row.args = `{}`
			}
			if row.after == "" {
				row.after = envelope.TodoCompletion
			}
			c := callOf(t, k, row.tool, row.args, `{"control":`+control(envelope.GoalProgress, row.after)+`}`)
			if row.set != nil {
				row.set(w, c)
			}
			a, err := k.Run(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := strings.Cut(a.Error, ":"); got != row.err || a.Success != (row.err == "") {
				t.Errorf("error %q, success %v; want %q", a.Error, a.Success, row.err)
			}
			var out struct {
				Control struct {
					Main   json.RawMessage `json:"main"`
					Before json.RawMessage `json:"before"`
					After  json.RawMessage `json:"after_success"`
				} `json:"control"`
			}
			if err := json.Unmarshal(a.Output, &out); err != nil {
				t.Fatal(err)
			}
			for i, got := range []json.RawMessage{out.Control.Main, out.Control.Before, out.Control.After} {
				if string(got) != row.want[i] {
					t.Errorf("got  %s\nwant %s", got, row.want[i])
				}
				if len(got) >= 512 {
					t.Error("a phase is too long")
				}
			}
			ran := ""
			for _, e := range w.seen() {
				switch e {
				case "checkpoint_goal":
					ran += "b"
				case row.tool:
					ran += "m"
				case row.after.Tool():
					ran += "a"
				}
			}
			if ran != row.ran {
				t.Errorf("ran %q, want %q: %v", ran, row.ran, w.seen())
			}
		})
	}
}

func revised(n int64) func() Result {
	return func() Result {
		r := Done(map[string]any{"goal": map[string]any{"summary": sentinel}}, Changed)
		r.Revision = n
		return r
	}
}

// blockingIs has finish_coding_task say something of whether it blocks; nil:
// nothing.
func blockingIs(v any) func(*world, *Call) {
	return func(w *world, _ *Call) {
		w.results["finish_coding_task"] = func() Result {
			o := map[string]any{}
			if v != nil {
				o["blocking"] = v
			}
			return Done(map[string]any{"task_outcome": o}, Changed)
		}
	}
}
