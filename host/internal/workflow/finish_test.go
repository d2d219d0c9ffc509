package workflow_test

import (
	"slices"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// TestEachFactThatBlocksClosing: each fact makes the outcome blocking, by its
// own reason, and nothing else does; what is undone does not block any more.
func TestEachFactThatBlocksClosing(t *testing.T) {
	t.Parallel()
	type fact struct {
		make func(w *world, c workflow.MissionContext)
		undo func(w *world, c workflow.MissionContext) // nil: it cannot be undone
	}
	var todo, guide workflow.MessageView
	facts := map[string]fact{
		"open_todos": {
			func(w *world, c workflow.MissionContext) { todo = w.say(c, "todo", "do it") },
			func(w *world, c workflow.MissionContext) {
				a := w.assignment(c, todo.MessageID)
				must(w.k.CompleteMessage(ctx, w.by(), workflow.CompleteMessage{SessionID: c.SessionID, MessageID: todo.MessageID, Answer: "x", CompletionKey: "k", ExpectedAssignmentFence: a.Fence}))(w.t)
			}},
		"unacknowledged_messages": {
			func(w *world, c workflow.MissionContext) {
				guide = w.say(c, "guidance", "read", func(p *workflow.PostMessage) { p.RequiresAck = ptr(true) })
			},
			func(w *world, c workflow.MissionContext) {
				must(w.k.Ack(ctx, w.by(), c.SessionID, []string{guide.MessageID}))(w.t)
			}},
		"invocation_outcome_unknown": {
			func(w *world, _ workflow.MissionContext) {
				w.governed.Unresolved = []workflow.GovernedCall{{InvocationID: "i", Tool: "Bash"}}
			},
			func(w *world, _ workflow.MissionContext) { w.governed.Unresolved = nil }},
		"jobs_running": {
			func(w *world, _ workflow.MissionContext) {
				w.governed.Running = []workflow.GovernedCall{{InvocationID: "i", Tool: "Bash"}}
			},
			func(w *world, _ workflow.MissionContext) { w.governed.Running = nil }},
		"attempt_failed": {
			func(w *world, c workflow.MissionContext) {
				task := must(w.k.CreateTask(ctx, w.by(), workflow.CreateTask{Title: "t", Instruction: "do", AssigneeAgentID: &c.AgentID, SessionID: &c.SessionID, IdempotencyKey: "t"}))(w.t)
				a := must(w.k.StartAttempt(ctx, w.by(), workflow.StartAttempt{TaskID: task.Task.TaskID, AssigneeAgentID: c.AgentID, IdempotencyKey: "c"}))(w.t)
				must(w.k.CompleteAttempt(ctx, w.by(), complete(a, "failed")))(w.t)
			}, nil},
	}
	for reason, f := range facts {
		w := newWorld(t)
		c := w.mission()
		finish := func() workflow.TaskOutcome {
			return must(w.k.FinishTask(ctx, w.by(), workflow.FinishTask{Project: c.Project, SessionID: c.SessionID}))(t).TaskOutcome
		}
		if o := finish(); o.Status != "pass" || o.Blocking || len(o.BlockingReasons)+len(o.WarningReasons) != 0 {
			t.Fatalf("%s: before: %+v", reason, o)
		}
		f.make(w, c)
		if o := finish(); o.Status != "fail" || !o.Blocking || !slices.Equal(o.BlockingReasons, []string{reason}) {
			t.Errorf("%s: %+v", reason, o)
		}
		if f.undo == nil {
			continue
		}
		f.undo(w, c)
		if o := finish(); o.Blocking || len(o.BlockingReasons) != 0 {
			t.Errorf("%s: after: %+v", reason, o)
		}
	}
}

// Composite calls block by what is known of their main call.
func TestCompositeCallsThatBlockClosing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		effect bool
		callID string
		main   workflow.ExecutionState
		want   []string
		warns  int
	}{
		"succeeded":              {true, "i", workflow.Succeeded, nil, 0},
		"failed":                 {true, "i", workflow.Failed, nil, 0},
		"unknown":                {true, "i", workflow.Unknown, []string{"invocation_outcome_unknown"}, 0},
		"unknown without effect": {false, "", workflow.Unknown, nil, 1},
		"handed off":             {true, "i", workflow.Started, []string{"jobs_running"}, 0},
	} {
		w := newWorld(t)
		c := w.mission()
		call := must(w.k.Open(w.owner, workflow.NewCall{Tool: "run_command", Effect: tt.effect}))(t)
		must(0, w.k.Intend(ctx, call, tt.callID))(t)
		must(0, w.k.Settle(ctx, call, workflow.MainOutcome{State: tt.main}, ""))(t)
		if tt.callID != "" { // the gate knows the same call: it counts once
			w.governed.Unresolved = map[bool][]workflow.GovernedCall{true: {{InvocationID: "i"}}}[tt.main == workflow.Unknown]
		}
		r := must(w.k.FinishTask(ctx, w.by(), workflow.FinishTask{Project: c.Project, SessionID: c.SessionID}))(t)
		if !slices.Equal(r.TaskOutcome.BlockingReasons, tt.want) && len(tt.want)+len(r.TaskOutcome.BlockingReasons) > 0 || len(r.TaskOutcome.WarningReasons) != tt.warns || r.Facts.UnknownInvocations > 1 {
			t.Errorf("%s: %+v", name, r)
		}
		w.governed = workflow.GovernedCalls{}
		if tt.main == workflow.Started {
			must(0, w.k.SettleStarted(ctx, w.owner, call.ID, workflow.MainOutcome{State: workflow.Succeeded}))(t)
		}
		if tt.main == workflow.Unknown && tt.effect { // an operator's word
			must(0, w.mem.Update(ctx, w.owner, func(tx workflow.Tx) error { return w.k.Resolved(tx, w.owner, "i", workflow.Succeeded) }))(t)
		}
		if r := must(w.k.FinishTask(ctx, w.by(), workflow.FinishTask{Project: c.Project, SessionID: c.SessionID}))(t); r.TaskOutcome.Blocking {
			t.Errorf("%s: afterwards: %+v", name, r)
		}
	}
}

func TestTheQuestionDoesNotBlockItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	w.governed.Running = []workflow.GovernedCall{{InvocationID: "me", Tool: "x"}, {InvocationID: "i", Tool: "mcp__airlock__finish_coding_task"}}
	by := w.by()
	by.Invocation = "me"
	if r := must(w.k.FinishTask(ctx, by, workflow.FinishTask{Project: c.Project, SessionID: c.SessionID}))(t); r.TaskOutcome.Blocking {
		t.Errorf("%+v", r)
	}
}

func TestWarningsDoNotBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	w.say(c, "question", "why?")
	w.at = w.at.Add(time.Hour) // the lease of the mission's attempt has passed
	in := workflow.FinishTask{Project: c.Project, SessionID: c.SessionID, Outputs: []string{"a"}}
	o := must(w.k.FinishTask(ctx, w.by(), in))(t).TaskOutcome
	if o.Status != "warn" || o.Blocking || !slices.Equal(o.WarningReasons, []string{"open_questions", "attempt_lease_expired", "outputs_not_checked"}) {
		t.Errorf("%+v", o)
	}
	for kind, change := range map[string]func(*workflow.FinishTask){
		"unknown_session_id":       func(f *workflow.FinishTask) { f.SessionID = "x" },
		"session_project_mismatch": func(f *workflow.FinishTask) { f.Project = "x" },
	} {
		bad := in
		change(&bad)
		w.refused(kind, func() error { _, err := w.k.FinishTask(ctx, w.by(), bad); return err })
	}
}
