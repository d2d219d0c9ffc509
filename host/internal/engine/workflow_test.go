package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

var ctx = context.Background()

// task opens a harness task and gives its workflow's context.
func task(t *testing.T, g *apitest.Governed, id string, plan string) workflow.MissionContext {
	t.Helper()
	in := engine.NewTask{TaskID: id, Objective: "build the thing"}
	if plan != "" {
		in.Plan = json.RawMessage(plan)
	}
	if _, _, err := g.Real.CreateTask(ctx, in, "op"); err != nil {
		t.Fatal(err)
	}
	return flow(t, g, id)
}

func flow(t *testing.T, g *apitest.Governed, id string) workflow.MissionContext {
	t.Helper()
	c, err := g.Real.Workflow().Context(ctx, workflow.Caller{Owner: workflow.Owner(id)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func checkpoint(c workflow.MissionContext, rev int64, key string, done ...string) workflow.CheckpointGoal {
	return workflow.CheckpointGoal{GoalID: c.GoalID, ExpectedRevision: rev, IdempotencyKey: key, CompletedStepIDs: done, Summary: "so far"}
}

// events gives the events of a kind.
func events(t *testing.T, g *apitest.Governed, id string, kind journal.Kind) (out []journal.Event) {
	t.Helper()
	for after := uint64(0); ; {
		page, err := g.Store.Events(ctx, id, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range page {
			if after = ev.Sequence; ev.Kind == kind {
				out = append(out, ev)
			}
		}
		if len(page) == 0 {
			return out
		}
	}
}

// A checkpoint of the mission's goal is its progress and its plan.
func TestACheckpointIsTheMissionsProgress(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, ``)
	c := task(t, g, "m", `["build","test"]`)
	k, by := g.Real.Workflow(), workflow.Caller{Owner: "m"}
	in := checkpoint(c, 1, "k", "step-1")
	current := "step-2"
	in.CurrentStepID = &current
	if _, err := k.CheckpointGoal(ctx, by, in); err != nil {
		t.Fatal(err)
	}
	v, err := g.Real.Mission(ctx, "m")
	if err != nil || v.Progress == nil || v.Progress.PctDone == nil || *v.Progress.PctDone != 50 || v.Progress.Phase != "step-2" || *v.Progress.Iteration != 1 || v.Progress.Summary != "so far" {
		t.Fatalf("%+v %v", v.Progress, err)
	}
	s, err := g.Real.TaskStatus(ctx, "m")
	var plan []workflow.Step
	if err == nil {
		err = json.Unmarshal(s.Plan, &plan)
	}
	if err != nil || len(plan) != 2 || plan[0].Status != workflow.StepCompleted || plan[1].Status != workflow.StepInProgress {
		t.Fatalf("%s %v", s.Plan, err)
	}
	if s.Epoch != 1 {
		t.Errorf("a checkpoint voids verdicts: epoch %d", s.Epoch)
	}
	// An exact repetition and a refusal tell nothing.
	if r, err := k.CheckpointGoal(ctx, by, in); err != nil || !r.Replayed {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err := k.CheckpointGoal(ctx, by, checkpoint(c, 1, "k2", "step-2")); workflow.KindOf(err) != "goal_revision_changed" {
		t.Fatal(err)
	}
	if n := len(events(t, g, "m", journal.Progress)); n != 1 {
		t.Errorf("%d progress events", n)
	}
	// The runtime's own progress leaves the share that is done alone; completing
	// the goal reports it.
	if _, err := k.CheckpointGoal(ctx, by, checkpoint(c, 2, "k3", "step-2")); err != nil {
		t.Fatal(err)
	}
	done := workflow.CompleteGoal{GoalID: c.GoalID, ExpectedRevision: 3, IdempotencyKey: "end"}
	if _, err := k.UpdateGoal(ctx, by, done.Update()); err != nil {
		t.Fatal(err)
	}
	if v, _ := g.Real.Mission(ctx, "m"); *v.Progress.PctDone != 100 || v.State.Terminal() {
		t.Errorf("%+v", v)
	}
	if err := g.Store.VerifyTask(ctx, "m"); err != nil {
		t.Error(err)
	}
}

// A goal that the agent plans itself is the mission's plan while its own has no
// steps.
func TestAPlanOfTheAgent(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, ``)
	task(t, g, "m", "")
	k, by := g.Real.Workflow(), workflow.Caller{Owner: "m"}
	made, err := k.CreateGoal(ctx, by, workflow.CreateGoal{Title: "mine", Objective: "o", IdempotencyKey: "g",
		Steps: []workflow.NewStep{{ID: "a", Title: "A"}, {ID: "b", Title: "B"}}})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := g.Real.TaskStatus(ctx, "m"); err != nil || s.Plan == nil {
		t.Fatalf("%s %v", s.Plan, err)
	}
	if n := len(events(t, g, "m", journal.Progress)); n != 0 {
		t.Errorf("planning is told as progress: %d events", n)
	}
	in := workflow.CheckpointGoal{GoalID: made.Goal.Summary.GoalID, ExpectedRevision: 1, IdempotencyKey: "c", CompletedStepIDs: []string{"a"}, Summary: "s"}
	if _, err := k.CheckpointGoal(ctx, by, in); err != nil {
		t.Fatal(err)
	}
	if v, _ := g.Real.Mission(ctx, "m"); v.Progress == nil || *v.Progress.PctDone != 50 {
		t.Errorf("%+v", v.Progress)
	}
}

// The calls that the gate knows make the outcome of the work blocking.
func TestGovernedCallsBlockClosing(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, ``)
	c := task(t, g, "m", "")
	finish := func() workflow.FinishResult {
		t.Helper()
		r, err := g.Real.Workflow().FinishTask(ctx, workflow.Caller{Owner: "m"}, workflow.FinishTask{Project: c.Project, SessionID: c.SessionID})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := finish(); r.TaskOutcome.Status != "pass" {
		t.Fatalf("%+v", r)
	}
	run := func() string {
		t.Helper()
		d, err := g.Real.Propose(ctx, "m", engine.Proposal{Tool: "deploy", Args: json.RawMessage(`{}`)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		id, err := g.Real.Dispatch(ctx, "m", d.DecisionID, "deploy", json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	id := run()
	if r := finish(); !slices.Equal(r.TaskOutcome.BlockingReasons, []string{"jobs_running"}) {
		t.Fatalf("%+v", r)
	}
	if err := g.Real.Complete(ctx, "m", governance.Settled{InvocationID: id, Outcome: governance.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if r := finish(); r.TaskOutcome.Blocking {
		t.Fatalf("%+v", r)
	}
	// A call that a restart of the host cuts off, with its composite row: it blocks
	// until an operator resolves it.
	id = run()
	k := g.Real.Workflow()
	call, err := k.Open("m", workflow.NewCall{Tool: "run_command", Nonce: "n", Effect: true})
	if err == nil {
		err = k.Intend(ctx, call, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.Reopen(t)
	if r := finish(); !slices.Equal(r.TaskOutcome.BlockingReasons, []string{"invocation_outcome_unknown"}) || r.Facts.UnknownInvocations != 1 {
		t.Fatalf("%+v", r)
	}
	outcome := func() workflow.CallOutcome {
		t.Helper()
		o, err := g.Real.Workflow().Outcome(ctx, workflow.Caller{Owner: "m"}, workflow.GetOutcome{InvocationID: &call.ID})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if o := outcome(); o.Main.State != workflow.Unknown || !o.Swept {
		t.Errorf("%+v", o)
	}
	if err := g.Real.Resolve(ctx, "m", id, "succeeded", "it was deployed", "op"); err != nil {
		t.Fatal(err)
	}
	if r := finish(); r.TaskOutcome.Blocking {
		t.Errorf("%+v", r)
	}
	if o := outcome(); o.Main.State != workflow.Succeeded {
		t.Errorf("%+v", o)
	}
}

// A stopped task changes nothing any more; a restart of it is a wake.
func TestAStopAndARestart(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, ``)
	c := task(t, g, "m", "")
	by := workflow.Caller{Owner: "m"}
	if c.Wake != nil || c.Generation != 1 || c.Proofs == nil {
		t.Fatalf("%+v", c)
	}
	g.Reopen(t) // a harness task comes back stopped
	if _, err := g.Real.Workflow().CheckpointGoal(ctx, by, checkpoint(c, 1, "k")); workflow.KindOf(err) != "mission_not_running" {
		t.Fatal(err)
	}
	if _, err := g.Real.Workflow().GetGoal(ctx, by, workflow.GetGoal{GoalID: c.GoalID}); err != nil {
		t.Error(err)
	}
	if err := g.Real.Restart(ctx, "m", "op"); err != nil {
		t.Fatal(err)
	}
	woken := flow(t, g, "m")
	if woken.Wake == nil || woken.Wake.Reason != "resumed" || woken.GoalID != c.GoalID || woken.AttemptID != c.AttemptID {
		t.Fatalf("%+v", woken)
	}
	_, err := g.Real.Workflow().ConsumeWake(ctx, by, workflow.ConsumeWake{AgentID: woken.AgentID, EndpointID: woken.EndpointID,
		ExpectedControllerGeneration: woken.Generation, WakeID: woken.Wake.WakeID, ConsumeToken: woken.Proofs.ConsumeToken})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Real.Workflow().CheckpointGoal(ctx, by, checkpoint(c, 1, "k")); err != nil {
		t.Fatal(err)
	}
}

// The commit of a checkpoint that cannot be written changes neither.
func TestACheckpointThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, ``)
	c := task(t, g, "m", `["one"]`)
	by := workflow.Caller{Owner: "m"}
	g.Store.Fail(context.DeadlineExceeded)
	if _, err := g.Real.Workflow().CheckpointGoal(ctx, by, checkpoint(c, 1, "k", "step-1")); workflow.KindOf(err) != "goal_store_unavailable" {
		t.Fatal(err)
	}
	g.Store.Fail(nil)
	if v, err := g.Real.Mission(ctx, "m"); err != nil || v.Progress != nil {
		t.Fatalf("%+v %v", v.Progress, err)
	}
	if r, err := g.Real.Workflow().CheckpointGoal(ctx, by, checkpoint(c, 1, "k", "step-1")); err != nil || r.Replayed {
		t.Fatalf("%+v %v", r, err)
	}
	if err := g.Store.VerifyTask(ctx, "m"); err != nil {
		t.Error(err)
	}
}
