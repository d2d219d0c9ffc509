package workflow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// claimed is a task of the mission's agent with a claimed attempt.
func (w *world) claimed() (workflow.MissionContext, workflow.AttemptResult) {
	w.t.Helper()
	c := w.mission()
	t := must(w.k.CreateTask(ctx, w.by(), workflow.CreateTask{Title: "t", Instruction: "do", AssigneeAgentID: &c.AgentID, SessionID: &c.SessionID, GoalID: &c.GoalID, IdempotencyKey: "task"}))(w.t)
	return c, must(w.k.StartAttempt(ctx, w.by(), workflow.StartAttempt{TaskID: t.Task.TaskID, AssigneeAgentID: c.AgentID, IdempotencyKey: "claim"}))(w.t)
}

func beat(a workflow.AttemptResult) workflow.Heartbeat {
	return workflow.Heartbeat{TaskID: a.Task.TaskID, AttemptID: a.Attempt.AttemptID, AssigneeAgentID: a.Attempt.AssigneeAgentID,
		AttemptFence: a.AttemptFence, AttemptControllerGeneration: a.Attempt.ControllerGeneration}
}

func complete(a workflow.AttemptResult, outcome string) workflow.CompleteAttempt {
	return workflow.CompleteAttempt{TaskID: a.Task.TaskID, AttemptID: a.Attempt.AttemptID, AssigneeAgentID: a.Attempt.AssigneeAgentID,
		AttemptFence: a.AttemptFence, AttemptControllerGeneration: a.Attempt.ControllerGeneration, Outcome: outcome, CompletionKey: "done"}
}

func TestATaskIsCreatedAndTiedToItsGoal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	in := workflow.CreateTask{Title: " t ", Instruction: "do", GoalID: &c.GoalID, IdempotencyKey: "k"}
	r := must(w.k.CreateTask(ctx, w.by(), in))(t)
	if r.Task.Title != "t" || r.GoalRevision != 2 || r.Task.State != workflow.TaskReady {
		t.Fatalf("%+v", r)
	}
	g := must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: c.GoalID}))(t)
	if g.Summary.TaskCount != 2 || g.Summary.Revision != 2 || len(g.Correlations) != 3 {
		t.Errorf("%+v", g)
	}
	if again := must(w.k.CreateTask(ctx, w.by(), in))(t); !again.Replayed || again.Task.TaskID != r.Task.TaskID {
		t.Errorf("%+v", again)
	}
	for kind, change := range map[string]func(*workflow.CreateTask){
		"invalid_agent_task":                    func(x *workflow.CreateTask) { x.Title = strings.Repeat("x", 201) },
		"invalid_agent_id":                      func(x *workflow.CreateTask) { x.AssigneeAgentID = ptr("wc_dagent_") },
		"agent_not_found":                       func(x *workflow.CreateTask) { x.AssigneeAgentID = ptr("wc_dagent_AAAAAAAAAAAAAAAA") },
		"goal_not_found":                        func(x *workflow.CreateTask) { x.GoalID = ptr("wc_goal_AAAAAAAAAAAAAAAA") },
		"unknown_session_id":                    func(x *workflow.CreateTask) { x.SessionID = ptr("wc_sess_AAAAAAAAAAAAAAAA") },
		"invalid_communication_idempotency_key": func(x *workflow.CreateTask) { x.IdempotencyKey = "" },
		"communication_idempotency_conflict":    func(x *workflow.CreateTask) { x.Title, x.IdempotencyKey = "other", "k" },
	} {
		bad := workflow.CreateTask{Title: "t", Instruction: "do", IdempotencyKey: "new"}
		change(&bad)
		w.refused(kind, func() error { _, err := w.k.CreateTask(ctx, w.by(), bad); return err })
	}
}

func TestOneAttemptAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, a := w.claimed()
	in := workflow.StartAttempt{TaskID: a.Task.TaskID, AssigneeAgentID: c.AgentID, IdempotencyKey: "claim"}
	again := must(w.k.StartAttempt(ctx, w.by(), in))(t)
	if !again.Replayed || again.AttemptFence != a.AttemptFence || again.Attempt.AttemptID != a.Attempt.AttemptID {
		t.Fatalf("%+v", again)
	}
	in.IdempotencyKey = "second"
	refused := func(kind string, change func(*workflow.StartAttempt)) {
		t.Helper()
		bad := in
		change(&bad)
		w.refused(kind, func() error { _, err := w.k.StartAttempt(ctx, w.by(), bad); return err })
	}
	refused("agent_task_attempt_active", func(*workflow.StartAttempt) {})
	refused("agent_task_assignee_mismatch", func(s *workflow.StartAttempt) { s.AssigneeAgentID = "wc_dagent_AAAAAAAAAAAAAAAA" })
	refused("agent_task_not_found", func(s *workflow.StartAttempt) { s.TaskID = "wc_agent_task_AAAAAAAAAAAAAAAA" })
	refused("invalid_agent_task_id", func(s *workflow.StartAttempt) { s.TaskID = a.Attempt.AttemptID }) // the prefix trap
	refused("communication_idempotency_conflict", func(s *workflow.StartAttempt) {
		s.IdempotencyKey, s.AssigneeAgentID = "claim", "wc_dagent_AAAAAAAAAAAAAAAA"
	})
	// The boundary: at the very millisecond the lease is over.
	w.at = time.UnixMilli(a.Attempt.LeaseExpiresAt - 1)
	refused("agent_task_attempt_active", func(*workflow.StartAttempt) {})
	w.at = time.UnixMilli(a.Attempt.LeaseExpiresAt)
	if v := must(w.k.ReadTask(ctx, w.by(), workflow.ReadTask{TaskID: a.Task.TaskID}))(t); v.Task.State != workflow.TaskReady || v.Attempts[0].State != workflow.AttemptExpired {
		t.Fatalf("%+v", v)
	}
	second := must(w.k.StartAttempt(ctx, w.by(), in))(t)
	if second.Attempt.AttemptNumber != 2 || second.AttemptFence == a.AttemptFence {
		t.Fatalf("%+v", second)
	}
	// The first one is stale for good, its claim still answered.
	w.refused("agent_task_attempt_stale", func() error { _, err := w.k.Heartbeat(ctx, w.by(), beat(a)); return err })
	in.IdempotencyKey = "claim"
	if r := must(w.k.StartAttempt(ctx, w.by(), in))(t); !r.Replayed || r.Attempt.State != workflow.AttemptExpired || r.AttemptFence != a.AttemptFence {
		t.Errorf("%+v", r)
	}
}

func TestAnUnassignedTaskCannotBeClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	task := must(w.k.CreateTask(ctx, w.by(), workflow.CreateTask{Title: "t", Instruction: "do", IdempotencyKey: "k"}))(t)
	w.refused("agent_task_unassigned", func() error {
		_, err := w.k.StartAttempt(ctx, w.by(), workflow.StartAttempt{TaskID: task.Task.TaskID, AssigneeAgentID: c.AgentID, IdempotencyKey: "c"})
		return err
	})
}

func TestHeartbeatExtendsTheLeaseOfItsHolderOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, a := w.claimed()
	if r := must(w.k.Heartbeat(ctx, w.by(), beat(a)))(t); r.StateChanged || r.Attempt.LeaseExpiresAt != a.Attempt.LeaseExpiresAt {
		t.Fatalf("%+v", r)
	}
	w.at = w.at.Add(10 * time.Second)
	if r := must(w.k.Heartbeat(ctx, w.by(), beat(a)))(t); !r.StateChanged || r.Attempt.LeaseExpiresAt != a.Attempt.LeaseExpiresAt+10_000 {
		t.Fatalf("%+v", r)
	}
	otherFence := "wc_agent_task_fence_AAAAAAAAAAAAAAAAAAAAAA"
	for name, tt := range map[string]struct {
		kind   string
		change func(*workflow.Heartbeat)
	}{
		"task id":             {"invalid_agent_task_id", func(h *workflow.Heartbeat) { h.TaskID += "A" }},
		"attempt id":          {"invalid_agent_task_attempt_id", func(h *workflow.Heartbeat) { h.AttemptID = h.TaskID }},
		"agent id":            {"invalid_agent_id", func(h *workflow.Heartbeat) { h.AssigneeAgentID = "" }},
		"fence of a bad form": {"invalid_agent_task_attempt_fence", func(h *workflow.Heartbeat) { h.AttemptFence = otherFence[:41] + "B" }},
		"fence with space":    {"invalid_agent_task_attempt_fence", func(h *workflow.Heartbeat) { h.AttemptFence += " " }},
		"generation 0":        {"invalid_agent_task_controller_generation", func(h *workflow.Heartbeat) { h.AttemptControllerGeneration = 0 }},
		"half a proof":        {"invalid_agent_task_active_turn_proof", func(h *workflow.Heartbeat) { h.ActiveTurnWakeID = ptr("x") }},
		"wake id":             {"invalid_agent_task_active_turn_wake_id", func(h *workflow.Heartbeat) { h.ActiveTurnWakeID, h.ActiveTurnConsumeToken = ptr("x"), ptr("y") }},
		"token": {"invalid_agent_task_active_turn_consume_token", func(h *workflow.Heartbeat) {
			h.ActiveTurnWakeID, h.ActiveTurnConsumeToken = ptr("wc_wake_AAAAAAAAAAAAAAAA"), ptr("y")
		}},
		"a wake that is not": {"agent_task_active_turn_proof_invalid", func(h *workflow.Heartbeat) {
			h.ActiveTurnWakeID, h.ActiveTurnConsumeToken = ptr("wc_wake_AAAAAAAAAAAAAAAA"), ptr("wc_wake_consume_AAAAAAAAAAAAAAAAAAAAAA")
		}},
		"another fence":        {"agent_task_attempt_stale", func(h *workflow.Heartbeat) { h.AttemptFence = otherFence }},
		"another generation":   {"agent_task_attempt_stale", func(h *workflow.Heartbeat) { h.AttemptControllerGeneration = 2 }},
		"another agent":        {"agent_task_assignee_mismatch", func(h *workflow.Heartbeat) { h.AssigneeAgentID = "wc_dagent_AAAAAAAAAAAAAAAA" }},
		"another attempt":      {"agent_task_attempt_stale", func(h *workflow.Heartbeat) { h.AttemptID = "wc_agent_task_attempt_AAAAAAAAAAAAAAAA" }},
		"somebody else's task": {"agent_task_not_found", func(h *workflow.Heartbeat) { h.TaskID = "wc_agent_task_AAAAAAAAAAAAAAAA" }},
	} {
		in := beat(a)
		tt.change(&in)
		w.refused(tt.kind, func() error { _, err := w.k.Heartbeat(ctx, w.by(), in); return err })
		if t.Failed() {
			t.Fatal(name)
		}
	}
	w.at = w.at.Add(time.Minute)
	w.refused("agent_task_attempt_stale", func() error { _, err := w.k.Heartbeat(ctx, w.by(), beat(a)); return err })
}

// Traffic moves no lease (R8).
func TestNothingImplicitRenewsALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, a := w.claimed()
	w.at = w.at.Add(5 * time.Second)
	rev := must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: c.GoalID}))(t).Summary.Revision
	for range 3 {
		must(w.k.ListGoals(ctx, w.by(), workflow.ListGoals{}))(t)
		must(w.k.ReadTask(ctx, w.by(), workflow.ReadTask{TaskID: a.Task.TaskID}))(t)
		must(w.k.Attention(ctx, w.by(), c.SessionID))(t)
		must(w.k.FinishTask(ctx, w.by(), workflow.FinishTask{Project: c.Project, SessionID: c.SessionID}))(t)
	}
	must(w.k.PostMessage(ctx, w.by(), workflow.PostMessage{SessionID: c.SessionID, Kind: "note", Message: "x"}))(t)
	v := must(w.k.ReadTask(ctx, w.by(), workflow.ReadTask{TaskID: a.Task.TaskID}))(t)
	if v.Attempts[0].LeaseExpiresAt != a.Attempt.LeaseExpiresAt {
		t.Errorf("the lease moved: %+v", v.Attempts[0])
	}
	if now := must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: c.GoalID}))(t).Summary.Revision; now != rev {
		t.Errorf("the goal's revision moved from %d to %d", rev, now)
	}
}

func TestEitherOutcomeEndsTheTask(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"succeeded", "failed"} {
		w := newWorld(t)
		c, a := w.claimed()
		bad := complete(a, "maybe")
		w.refused("invalid_agent_task_outcome", func() error { _, err := w.k.CompleteAttempt(ctx, w.by(), bad); return err })
		r := must(w.k.CompleteAttempt(ctx, w.by(), complete(a, outcome)))(t)
		if string(r.Task.State) != outcome || string(r.Attempt.State) != outcome || r.Task.TerminalAt == 0 {
			t.Fatalf("%+v", r)
		}
		if again := must(w.k.CompleteAttempt(ctx, w.by(), complete(a, outcome)))(t); !again.Replayed || again.StateChanged {
			t.Errorf("%+v", again)
		}
		other := complete(a, outcome)
		other.TerminalReason = ptr("because")
		w.refused("communication_idempotency_conflict", func() error { _, err := w.k.CompleteAttempt(ctx, w.by(), other); return err })
		other.CompletionKey = "another"
		w.refused("agent_task_terminal", func() error { _, err := w.k.CompleteAttempt(ctx, w.by(), other); return err })
		w.refused("agent_task_terminal", func() error { _, err := w.k.Heartbeat(ctx, w.by(), beat(a)); return err })
		f := must(w.k.FinishTask(ctx, w.by(), workflow.FinishTask{Project: c.Project, SessionID: c.SessionID}))(t)
		if f.TaskOutcome.Blocking != (outcome == "failed") {
			t.Errorf("%s: %+v", outcome, f)
		}
	}
}

// A fence is stored as a hash, and nothing that is stored gives it away.
func TestNoProofIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, a := w.claimed()
	w.observe(workflow.MissionReconnected, workflow.Mission{})
	c := w.context()
	must(w.k.ConsumeWake(ctx, w.by(), consume(c)))(t)
	must(w.k.CompleteAttempt(ctx, w.by(), complete(a, "failed")))(t)
	rows, _ := w.mem.snapshot()
	for _, table := range rows {
		for _, r := range table {
			for _, secret := range []string{a.AttemptFence, c.Proofs.ConsumeToken, c.Proofs.AttemptFence} {
				if strings.Contains(string(r.Data), secret) {
					t.Errorf("%s %s holds a proof", r.Table, r.ID)
				}
			}
		}
	}
}
