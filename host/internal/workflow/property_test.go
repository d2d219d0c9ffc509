package workflow_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// TestRandomCheckpoints: whatever is asked in whatever order, a goal's revision
// grows by one with each accepted change and with nothing else, steps never go
// back, at most one is in progress, an exact repetition changes nothing, and
// what is refused leaves everything as it was.
func TestRandomCheckpoints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		g := w.goal()
		ids := []string{"build", "test", "ship", "nobody"}
		type done struct {
			in  workflow.CheckpointGoal
			rev int64
		}
		var accepted []done
		for i := range rapid.IntRange(1, 25).Draw(rt, "commands") {
			w.at = w.at.Add(time.Duration(rapid.IntRange(-5, 5).Draw(rt, "seconds")) * time.Second)
			before := must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: g.Summary.GoalID}))(t)
			if len(accepted) > 0 && rapid.IntRange(0, 4).Draw(rt, "again") == 0 {
				d := rapid.SampledFrom(accepted).Draw(rt, "which")
				r, err := w.k.CheckpointGoal(ctx, w.by(), d.in)
				if err != nil || !r.Replayed || r.ResultRevision != d.rev || r.Goal.Summary.Revision != before.Summary.Revision {
					rt.Fatalf("a repetition: %+v %v", r, err)
				}
				continue
			}
			in := workflow.CheckpointGoal{GoalID: g.Summary.GoalID, Summary: "s", IdempotencyKey: fmt.Sprint("k", i),
				ExpectedRevision: before.Summary.Revision + int64(rapid.SampledFrom([]int{0, 0, 0, -1, 1}).Draw(rt, "off")),
				CompletedStepIDs: rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 0, 3, rapid.ID[string]).Draw(rt, "done")}
			if rapid.Bool().Draw(rt, "current") {
				in.CurrentStepID = ptr(rapid.SampledFrom(ids).Draw(rt, "step"))
			}
			rows, keys := w.mem.snapshot()
			r, err := w.k.CheckpointGoal(ctx, w.by(), in)
			after := must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: g.Summary.GoalID}))(t)
			if err != nil {
				now, nowKeys := w.mem.snapshot()
				if !equalRows(rows, now) || keys != nowKeys {
					rt.Fatalf("%v has changed something", err)
				}
				continue
			}
			accepted = append(accepted, done{in, r.ResultRevision})
			if after.Summary.Revision != before.Summary.Revision+1 || after.Summary.UpdatedAt < before.Summary.UpdatedAt {
				rt.Fatalf("from %+v to %+v", before.Summary, after.Summary)
			}
			checkSteps(rt, before.Plan.Steps, after.Plan.Steps)
		}
	})
}

func checkSteps(t *rapid.T, before, after []workflow.Step) {
	order := []workflow.StepStatus{workflow.StepPending, workflow.StepInProgress, workflow.StepCompleted}
	current := 0
	for i, s := range after {
		if s.Status == workflow.StepInProgress {
			current++
		}
		if slices.Index(order, s.Status) < slices.Index(order, before[i].Status) {
			t.Fatalf("step %s went from %s to %s", s.ID, before[i].Status, s.Status)
		}
		if before[i].CompletedAt != 0 && s != before[i] {
			t.Fatalf("a completed step changed: %+v, was %+v", s, before[i])
		}
	}
	if current > 1 {
		t.Fatal("two steps are in progress")
	}
}

// TestRandomLeases: at any time at most one attempt of a task is live, only its
// holder can use it, and a lease never gets shorter.
func TestRandomLeases(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		c := w.mission()
		task := must(w.k.CreateTask(ctx, w.by(), workflow.CreateTask{Title: "t", Instruction: "do", AssigneeAgentID: &c.AgentID, IdempotencyKey: "t"}))(t)
		var all []workflow.AttemptResult
		lease := int64(0)
		for i := range rapid.IntRange(1, 30).Draw(rt, "commands") {
			w.at = w.at.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "seconds")) * time.Second)
			now := w.at.UnixMilli()
			if len(all) == 0 || rapid.Bool().Draw(rt, "claim") {
				a, err := w.k.StartAttempt(ctx, w.by(), workflow.StartAttempt{TaskID: task.Task.TaskID, AssigneeAgentID: c.AgentID, IdempotencyKey: fmt.Sprint("c", i)})
				if (err == nil) != (now >= lease) {
					rt.Fatalf("a claim at %d, the lease ends at %d: %v", now, lease, err)
				}
				if err == nil {
					all, lease = append(all, a), a.Attempt.LeaseExpiresAt
				}
				continue
			}
			which := rapid.IntRange(0, len(all)-1).Draw(rt, "attempt")
			h, err := w.k.Heartbeat(ctx, w.by(), beat(all[which]))
			if (err == nil) != (which == len(all)-1 && now < lease) {
				rt.Fatalf("a heartbeat of attempt %d of %d at %d, the lease ends at %d: %v", which, len(all), now, lease, err)
			}
			if err == nil {
				if h.Attempt.LeaseExpiresAt < lease || h.StateChanged != (h.Attempt.LeaseExpiresAt > lease) {
					rt.Fatalf("%+v, was %d", h, lease)
				}
				lease = h.Attempt.LeaseExpiresAt
			}
		}
	})
}
