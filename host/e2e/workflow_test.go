package e2e

import (
	"context"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// What a mission has in the workflow follows it through a kill of the host to
// its end. The store is read while no host has it.
func TestAMissionHasItsGoalAndItsRestartIsAWake(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", "while [ ! -e $PWD/go ]; do sleep 0.05; done")
	r.reaches("m", "running")
	r.end(syscall.SIGKILL)
	var first workflow.MissionContext
	r.inStore(func(k *workflow.Keeper, by workflow.Caller) {
		var err error
		if first, err = k.Context(context.Background(), by); err != nil {
			t.Fatal(err)
		}
		v, err := k.ReadTask(context.Background(), by, workflow.ReadTask{TaskID: first.TaskID})
		if err != nil || v.Task.State != workflow.TaskActive || len(v.Attempts) != 1 || first.Wake != nil || first.Generation != 1 {
			t.Errorf("%+v %+v %v", first, v, err)
		}
		g, err := k.GetGoal(context.Background(), by, workflow.GetGoal{GoalID: first.GoalID})
		if err != nil || g.Summary.Lifecycle != workflow.GoalActive || len(g.Plan.CompletionConditions) != 1 || g.Plan.CompletionConditions[0] != "it exits 0" {
			t.Errorf("%+v %v", g, err)
		}
	})
	r.start()
	// The orchestrator is told of a reconnection before the host has its cell back:
	// the journal says when it has.
	r.until("the host has the mission back", func() bool { return slices.Contains(r.journal("m"), "reconnected") })
	r.end(syscall.SIGKILL)
	r.inStore(func(k *workflow.Keeper, by workflow.Caller) {
		c, err := k.Context(context.Background(), by)
		if err != nil || c.Wake == nil || c.Wake.Reason != "host_restart" || c.Generation != 2 || c.AttemptID != first.AttemptID || c.GoalID != first.GoalID {
			t.Errorf("%+v %v", c, err)
		}
	})
	r.start()
	write(t, r.work+"/go", "", 0o644)
	r.reaches("m", "done")
	r.end(syscall.SIGTERM)
	r.inStore(func(k *workflow.Keeper, by workflow.Caller) {
		v, err := k.ReadTask(context.Background(), by, workflow.ReadTask{TaskID: first.TaskID})
		if err != nil || v.Task.State != workflow.TaskSucceeded || v.Attempts[0].State != workflow.AttemptSucceeded {
			t.Errorf("%+v %v", v, err)
		}
	})
}

// inStore looks into the store of a host that is not running.
func (r *rig) inStore(look func(k *workflow.Keeper, by workflow.Caller)) {
	r.t.Helper()
	s, err := store.Open(store.Options{Dir: filepath.Join(r.dir, "data"), Ballast: -1})
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	look(workflow.New(workflow.Options{Store: store.Workflow{S: s}, Key: make([]byte, 32)}), workflow.Caller{Owner: "m"})
}
