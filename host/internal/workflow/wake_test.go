package workflow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

func consume(c workflow.MissionContext) workflow.ConsumeWake {
	return workflow.ConsumeWake{AgentID: c.AgentID, EndpointID: c.EndpointID, ExpectedControllerGeneration: c.Generation,
		WakeID: c.Wake.WakeID, ConsumeToken: c.Proofs.ConsumeToken}
}

func TestARestartOfTheHostIsAWakeThatTheAgentConsumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.mission()
	if before.Wake != nil || before.Proofs == nil || before.Proofs.AttemptFence == "" || before.Proofs.ConsumeToken != "" {
		t.Fatalf("%+v", before)
	}
	w.at = w.at.Add(29 * time.Minute)
	w.observe(workflow.MissionReconnected, workflow.Mission{})
	c := w.context()
	if c.Wake == nil || c.Wake.Reason != "host_restart" || c.Wake.State != "delivered" || c.Generation != before.Generation+1 || c.AttemptID != before.AttemptID {
		t.Fatalf("%+v", c)
	}
	good := consume(c)
	for kind, change := range map[string]func(*workflow.ConsumeWake){
		"invalid_agent_id":              func(x *workflow.ConsumeWake) { x.AgentID = "a" },
		"invalid_endpoint_id":           func(x *workflow.ConsumeWake) { x.EndpointID = x.WakeID },
		"invalid_controller_generation": func(x *workflow.ConsumeWake) { x.ExpectedControllerGeneration = 0 },
		"invalid_wake_id":               func(x *workflow.ConsumeWake) { x.WakeID = "" },
		"invalid_wake_consume_token":    func(x *workflow.ConsumeWake) { x.ConsumeToken += " " },
		"endpoint_not_found":            func(x *workflow.ConsumeWake) { x.EndpointID = "wc_endpoint_AAAAAAAAAAAAAAAA" },
		"endpoint_generation_stale":     func(x *workflow.ConsumeWake) { x.ExpectedControllerGeneration-- },
		"wake_not_found":                func(x *workflow.ConsumeWake) { x.WakeID = "wc_wake_AAAAAAAAAAAAAAAA" },
		"wake_agent_mismatch":           func(x *workflow.ConsumeWake) { x.AgentID = "wc_dagent_AAAAAAAAAAAAAAAA" },
		"wake_consume_token_mismatch":   func(x *workflow.ConsumeWake) { x.ConsumeToken = "wc_wake_consume_AAAAAAAAAAAAAAAAAAAAAA" },
	} {
		bad := good
		change(&bad)
		w.refused(kind, func() error { _, err := w.k.ConsumeWake(ctx, w.by(), bad); return err })
	}
	r := must(w.k.ConsumeWake(ctx, w.by(), good))(t)
	if r.AlreadyConsumed || !r.StateChanged || r.State != "consumed" || r.ConsumedAt != w.at.UnixMilli() {
		t.Fatalf("%+v", r)
	}
	// The first consume gives the attempt a turn; a repetition does not move it.
	lease := w.context().LeaseExpiresAt
	if want := w.at.Add(30 * time.Minute).UnixMilli(); lease != want {
		t.Errorf("the lease ends at %d, want %d", lease, want)
	}
	w.at = w.at.Add(time.Minute)
	if r := must(w.k.ConsumeWake(ctx, w.by(), good))(t); !r.AlreadyConsumed || r.StateChanged {
		t.Errorf("%+v", r)
	}
	if got := w.context(); got.LeaseExpiresAt != lease || got.Wake != nil || got.Proofs != nil {
		t.Errorf("%+v %v", got, got.Proofs)
	}
	// The proof of the active turn extends the lease by a turn.
	in := workflow.Heartbeat{TaskID: c.TaskID, AttemptID: c.AttemptID, AssigneeAgentID: c.AgentID, AttemptFence: c.Proofs.AttemptFence,
		AttemptControllerGeneration: c.AttemptGeneration, ActiveTurnWakeID: &good.WakeID, ActiveTurnConsumeToken: &good.ConsumeToken}
	if h := must(w.k.Heartbeat(ctx, w.by(), in))(t); h.Attempt.LeaseExpiresAt != w.at.Add(30*time.Minute).UnixMilli() {
		t.Errorf("%+v", h)
	}
	// After another restart the old turn proves nothing.
	w.observe(workflow.MissionReconnected, workflow.Mission{})
	w.refused("agent_task_active_turn_proof_invalid", func() error { _, err := w.k.Heartbeat(ctx, w.by(), in); return err })
	w.refused("endpoint_generation_stale", func() error { _, err := w.k.ConsumeWake(ctx, w.by(), good); return err })
}

func TestProofsAreGivenUntilOneWasUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.mission()
	if again := w.context(); again.Proofs == nil || *again.Proofs != *c.Proofs { // the answer may have been lost
		t.Fatalf("%+v", again)
	}
	must(w.k.Heartbeat(ctx, w.by(), workflow.Heartbeat{TaskID: c.TaskID, AttemptID: c.AttemptID, AssigneeAgentID: c.AgentID,
		AttemptFence: c.Proofs.AttemptFence, AttemptControllerGeneration: c.AttemptGeneration}))(t)
	if got := w.context(); got.Proofs != nil {
		t.Fatal("proofs are given twice in a generation")
	}
	w.observe(workflow.MissionReconnected, workflow.Mission{})
	if got := w.context(); got.Proofs == nil || got.Proofs.AttemptFence != c.Proofs.AttemptFence || got.Proofs.ConsumeToken == "" {
		t.Fatalf("a new generation is given its proofs: %+v", got)
	}
}

func TestAnExpiredAttemptIsNotRevivedByItsWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mission()
	w.at = w.at.Add(31 * time.Minute)
	w.observe(workflow.MissionReconnected, workflow.Mission{})
	c := w.context()
	must(w.k.ConsumeWake(ctx, w.by(), consume(c)))(t)
	if got := w.context(); got.LeaseExpiresAt != c.LeaseExpiresAt {
		t.Errorf("the lease moved: %+v", got)
	}
	// What the attempt runs is still bound: nobody can claim it anew.
	w.refused("agent_task_execution_active", func() error {
		_, err := w.k.StartAttempt(ctx, w.by(), workflow.StartAttempt{TaskID: c.TaskID, AssigneeAgentID: c.AgentID, IdempotencyKey: "again"})
		return err
	})
	if v := must(w.k.ReadTask(ctx, w.by(), workflow.ReadTask{TaskID: c.TaskID}))(t); v.Task.State != workflow.TaskActive {
		t.Errorf("%+v", v.Task)
	}
}

// An operator's resume is a wake in the same generation; a newer one takes the
// place of one that was not taken.
func TestOneWakeAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c0 := w.mission()
	w.observe(workflow.MissionResumed, workflow.Mission{})
	first := w.context()
	if first.Generation != c0.Generation || first.Wake.Reason != "resumed" {
		t.Fatalf("%+v", first)
	}
	w.observe(workflow.MissionResumed, workflow.Mission{})
	second := w.context()
	if second.Wake.WakeID == first.Wake.WakeID {
		t.Fatal("there is no new wake")
	}
	w.refused("wake_not_dispatched", func() error { _, err := w.k.ConsumeWake(ctx, w.by(), consume(first)); return err })
	must(w.k.ConsumeWake(ctx, w.by(), consume(second)))(t)
}

func TestTheResumePromptHandsTheWakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mission()
	if _, ok, err := w.k.Resume(ctx, w.owner); ok || err != nil {
		t.Fatal(ok, err)
	}
	w.observe(workflow.MissionReconnected, workflow.Mission{})
	p, ok, err := w.k.Resume(ctx, w.owner)
	if !ok || err != nil || !strings.Contains(p.Text, p.Context.Wake.WakeID) || strings.Contains(p.Text, p.Context.Proofs.ConsumeToken) || p.Context.Wake.State != "prepared" {
		t.Fatalf("%v %v %v", p.Text, ok, err)
	}
	state := func() string { return w.wakeState(p.Context.Wake.WakeID) }
	for _, step := range []struct {
		d    workflow.Delivery
		want string
	}{{workflow.DeliveredUnsure, "delivery_unknown"}, {workflow.DeliveredNo, "delivery_unknown"}, {workflow.DeliveredYes, "delivered"}, {workflow.DeliveredNo, "delivered"}} {
		if err := w.k.Delivered(ctx, w.owner, p.Context.Wake.WakeID, step.d); err != nil || state() != step.want {
			t.Errorf("%s: %s, want %s: %v", step.d, state(), step.want, err)
		}
	}
	must(w.k.ConsumeWake(ctx, w.by(), consume(p.Context)))(t)
	// Not delivered for certain: it waits again, and goes out with the same proof.
	w.observe(workflow.MissionResumed, workflow.Mission{})
	p, _, _ = w.k.Resume(ctx, w.owner)
	if err := w.k.Delivered(ctx, w.owner, p.Context.Wake.WakeID, workflow.DeliveredNo); err != nil {
		t.Fatal(err)
	}
	w.refused("wake_not_dispatched", func() error { _, err := w.k.ConsumeWake(ctx, w.by(), consume(p.Context)); return err })
	must(w.k.ConsumeWake(ctx, w.by(), consume(w.context())))(t)
}

func (w *world) wakeState(id string) (state string) {
	for _, r := range w.mem.rows[workflow.TableWakes] {
		if r.ID == id {
			state = r.State
		}
	}
	return state
}

func TestARestartNeverSendsAgainWhatMayHaveArrived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mission()
	w.observe(workflow.MissionResumed, workflow.Mission{})
	p, _, err := w.k.Resume(ctx, w.owner)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.mem.Update(ctx, w.owner, w.k.Recover); err != nil {
		t.Fatal(err)
	}
	if got := w.wakeState(p.Context.Wake.WakeID); got != "delivery_unknown" {
		t.Errorf("%s", got)
	}
	must(w.k.ConsumeWake(ctx, w.by(), consume(p.Context)))(t) // it had arrived
}

func TestTheEndOfAMission(t *testing.T) {
	t.Parallel()
	for ev, want := range map[workflow.MissionEvent]workflow.TaskState{workflow.MissionDone: workflow.TaskSucceeded, workflow.MissionFailed: workflow.TaskFailed} {
		w := newWorld(t)
		w.mission()
		w.observe(workflow.MissionResumed, workflow.Mission{})
		c := w.context()
		w.observe(ev, workflow.Mission{Reason: "why"})
		v := must(w.k.ReadTask(ctx, w.by(), workflow.ReadTask{TaskID: c.TaskID}))(t)
		if v.Task.State != want || v.Attempts[0].TerminalReason != "why" {
			t.Errorf("%s: %+v", ev, v)
		}
		w.refused("endpoint_detached", func() error { _, err := w.k.ConsumeWake(ctx, w.by(), consume(c)); return err })
		if g := must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: c.GoalID}))(t); g.Summary.Lifecycle != workflow.GoalActive {
			t.Errorf("%s: the goal followed: %+v", ev, g.Summary)
		}
	}
}

// A start that is made again, with another session, is another attempt; the same
// generation is not.
func TestEachGenerationHasItsAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.mission()
	w.observe(workflow.MissionStarting, workflow.Mission{Generation: 1})
	if c := w.context(); c.AttemptID != first.AttemptID {
		t.Fatal("the same generation has a second attempt")
	}
	w.observe(workflow.MissionStarting, workflow.Mission{Generation: 2})
	c := w.context()
	if c.AttemptID == first.AttemptID || c.GoalID != first.GoalID || c.SessionID != first.SessionID || c.Generation != first.Generation+1 || c.Proofs == nil {
		t.Fatalf("%+v", c)
	}
	v := must(w.k.ReadTask(ctx, w.by(), workflow.ReadTask{TaskID: c.TaskID}))(t)
	if len(v.Attempts) != 2 || v.Attempts[1].State != workflow.AttemptExpired || v.Attempts[0].State != workflow.AttemptActive {
		t.Errorf("%+v", v.Attempts)
	}
}

func TestAMissionsGoal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 5000)
	for name, tt := range map[string]struct {
		m     workflow.Mission
		steps string
	}{
		"no plan":       {workflow.Mission{Objective: "do it\nnow"}, ""},
		"words":         {workflow.Mission{Objective: "o", Plan: []byte(`["build","test it"]`)}, "step-1:build step-2:test it"},
		"objects":       {workflow.Mission{Objective: "o", Plan: []byte(`[{"id":"a","title":"A"},{"id":"not good","step":"B"},{"description":"C"}]`)}, "a:A step-2:B step-3:C"},
		"the same id":   {workflow.Mission{Objective: "o", Plan: []byte(`[{"id":"a","title":"A"},{"id":"a","title":"B"}]`)}, "a:A step-2:B"},
		"no plan at it": {workflow.Mission{Objective: "o", Plan: []byte(`{"a":1}`)}, ""},
		"numbers":       {workflow.Mission{Objective: "o", Plan: []byte(`[1,2]`)}, ""},
		"too long":      {workflow.Mission{Objective: "o", Plan: []byte("[" + strings.TrimSuffix(strings.Repeat(`"x",`, 33), ",") + "]")}, ""},
		"long texts":    {workflow.Mission{Objective: long, Completion: long, Agent: "ü/" + long}, ""},
		"space":         {workflow.Mission{Objective: " \n "}, ""},
	} {
		w := newWorld(t)
		tt.m.Generation = 1
		w.observe(workflow.MissionStarting, tt.m)
		c := w.context()
		g := must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: c.GoalID}))(t)
		var steps []string
		for _, s := range g.Plan.Steps {
			steps = append(steps, s.ID+":"+s.Title)
		}
		if got := strings.Join(steps, " "); got != tt.steps {
			t.Errorf("%s: steps %q, want %q", name, got, tt.steps)
		}
		if g.Summary.Title == "" || len(g.Objective) > 8192 || len([]rune(g.Summary.Title)) > 200 {
			t.Errorf("%s: %d %d", name, len(g.Objective), len(g.Summary.Title))
		}
		for _, cond := range g.Plan.CompletionConditions {
			if len(cond) > 512 {
				t.Errorf("%s: a condition of %d bytes", name, len(cond))
			}
		}
	}
}
