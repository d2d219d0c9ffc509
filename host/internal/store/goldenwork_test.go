package store_test

import (
	"testing"

	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// goldenKeeper works on the rows of a golden directory.
func goldenKeeper(s *store.Store) *workflow.Keeper {
	return workflow.New(workflow.Options{Store: store.Workflow{S: s}, Key: []byte("0123456789abcdef0123456789abcdef")})
}

// goldenWork gives a mission a workflow with something of every kind.
func goldenWork(t *testing.T, s *store.Store, owner workflow.Owner) {
	t.Helper()
	k := goldenKeeper(s)
	for _, ev := range []workflow.MissionEvent{workflow.MissionStarting, workflow.MissionStarted, workflow.MissionReconnected} {
		work(t, s, func(tx workflow.Tx, _ *store.Batch) error {
			return k.Observe(tx, owner, ev, workflow.Mission{Agent: "a", Objective: "build", Plan: []byte(`["one","two"]`), Generation: 1})
		})
	}
	by := workflow.Caller{Owner: owner}
	c, err := k.Context(ctx, by)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.CheckpointGoal(ctx, by, workflow.CheckpointGoal{GoalID: c.GoalID, ExpectedRevision: 1, CompletedStepIDs: []string{"step-1"}, Summary: "s", IdempotencyKey: "k"}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.PostMessage(ctx, by, workflow.PostMessage{SessionID: c.SessionID, Kind: "todo", Message: "do"}); err != nil {
		t.Fatal(err)
	}
	call, err := k.Open(owner, workflow.NewCall{Tool: "t", Nonce: "n"})
	if err == nil {
		err = k.Intend(ctx, call, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkGoldenWork looks whether all of it is there and goes on.
func checkGoldenWork(t *testing.T, s *store.Store, owner workflow.Owner) {
	t.Helper()
	k := goldenKeeper(s)
	work(t, s, func(tx workflow.Tx, _ *store.Batch) error { return k.Recover(tx) })
	by := workflow.Caller{Owner: owner}
	c, err := k.Context(ctx, by)
	if err != nil || c.Wake == nil || c.Proofs == nil {
		t.Fatalf("%+v %v", c, err)
	}
	if _, err := k.ConsumeWake(ctx, by, workflow.ConsumeWake{AgentID: c.AgentID, EndpointID: c.EndpointID, ExpectedControllerGeneration: c.Generation,
		WakeID: c.Wake.WakeID, ConsumeToken: c.Proofs.ConsumeToken}); err != nil {
		t.Fatal(err)
	}
	in := workflow.CheckpointGoal{GoalID: c.GoalID, ExpectedRevision: 1, CompletedStepIDs: []string{"step-1"}, Summary: "s", IdempotencyKey: "k"}
	if r, err := k.CheckpointGoal(ctx, by, in); err != nil || !r.Replayed || r.Goal.Plan.Steps[0].Status != workflow.StepCompleted {
		t.Fatalf("%+v %v", r, err)
	}
	f, err := k.FinishTask(ctx, by, workflow.FinishTask{Project: c.Project, SessionID: c.SessionID})
	if err != nil || f.Facts.OpenTodos != 1 {
		t.Fatalf("%+v %v", f, err)
	}
	nonce := "n"
	if out, err := k.Outcome(ctx, by, workflow.GetOutcome{Nonce: &nonce}); err != nil || out.Main.State != workflow.Unknown || !out.Swept {
		t.Fatalf("%+v %v", out, err)
	}
}
