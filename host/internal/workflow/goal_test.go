package workflow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

func newGoal(key string) workflow.CreateGoal {
	return workflow.CreateGoal{Title: "ship", Objective: "ship it", IdempotencyKey: key,
		Steps: []workflow.NewStep{{ID: "build", Title: "build"}, {ID: "test", Title: "test"}, {ID: "ship", Title: "ship"}}}
}

func (w *world) goal() workflow.GoalView {
	w.t.Helper()
	return must(w.k.CreateGoal(ctx, w.by(), newGoal("create")))(w.t).Goal
}

func check(id string, rev int64, key string, done ...string) workflow.CheckpointGoal {
	return workflow.CheckpointGoal{GoalID: id, ExpectedRevision: rev, IdempotencyKey: key, CompletedStepIDs: done, Summary: "so far"}
}

func TestCreateGoalRefusesWhatIsNotOne(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("é", n) } // two bytes each
	steps := func(n int) (s []workflow.NewStep) {
		for i := range n {
			s = append(s, workflow.NewStep{ID: "s" + strings.Repeat("x", i), Title: "t"})
		}
		return s
	}
	for name, tt := range map[string]struct {
		change func(*workflow.CreateGoal)
		kind   string
	}{
		"title of 200 characters":   {func(g *workflow.CreateGoal) { g.Title = long(200) }, ""},
		"title of 201 characters":   {func(g *workflow.CreateGoal) { g.Title = long(201) }, "invalid_goal"},
		"title of space":            {func(g *workflow.CreateGoal) { g.Title = " \n " }, "invalid_goal"},
		"title trimmed to 200":      {func(g *workflow.CreateGoal) { g.Title = "  " + long(200) + "\t" }, ""},
		"objective of 8192 bytes":   {func(g *workflow.CreateGoal) { g.Objective = long(4096) }, ""},
		"objective of 8193 bytes":   {func(g *workflow.CreateGoal) { g.Objective = long(4096) + "x" }, "invalid_goal"},
		"no objective":              {func(g *workflow.CreateGoal) { g.Objective = "" }, "invalid_goal"},
		"8 conditions of 512 bytes": {func(g *workflow.CreateGoal) { g.CompletionConditions = repeat(long(256), 8) }, ""},
		"9 conditions":              {func(g *workflow.CreateGoal) { g.CompletionConditions = repeat("c", 9) }, "invalid_goal"},
		"a condition of 513 bytes":  {func(g *workflow.CreateGoal) { g.CompletionConditions = []string{long(256) + "x"} }, "invalid_goal"},
		"32 steps":                  {func(g *workflow.CreateGoal) { g.Steps = steps(32) }, ""},
		"33 steps":                  {func(g *workflow.CreateGoal) { g.Steps = steps(33) }, "invalid_goal"},
		"a step id of 33":           {func(g *workflow.CreateGoal) { g.Steps[0].ID = strings.Repeat("a", 33) }, "invalid_goal"},
		"a step id with a dot":      {func(g *workflow.CreateGoal) { g.Steps[0].ID = "a.b" }, "invalid_goal"},
		"a step id with space":      {func(g *workflow.CreateGoal) { g.Steps[0].ID = " a" }, "invalid_goal"},
		"a step id twice":           {func(g *workflow.CreateGoal) { g.Steps[1].ID = g.Steps[0].ID }, "invalid_goal"},
		"a step title of 120":       {func(g *workflow.CreateGoal) { g.Steps[0].Title = long(120) }, ""},
		"a step title of 121":       {func(g *workflow.CreateGoal) { g.Steps[0].Title = long(121) }, "invalid_goal"},
		"a key of 128 characters":   {func(g *workflow.CreateGoal) { g.IdempotencyKey = long(128) }, ""},
		"a key of 129 characters":   {func(g *workflow.CreateGoal) { g.IdempotencyKey = long(129) }, "invalid_goal_idempotency_key"},
		"a key of space":            {func(g *workflow.CreateGoal) { g.IdempotencyKey = "  " }, "invalid_goal_idempotency_key"},
		"a controller of bad form":  {func(g *workflow.CreateGoal) { g.ControllerAgentID = ptr("agent") }, "invalid_agent_id"},
		"a controller that is not":  {func(g *workflow.CreateGoal) { g.ControllerAgentID = ptr("wc_dagent_AAAAAAAAAAAAAAAA") }, "agent_not_found"},
	} {
		w := newWorld(t)
		in := newGoal("k")
		tt.change(&in)
		if tt.kind != "" {
			w.refused(tt.kind, func() error { _, err := w.k.CreateGoal(ctx, w.by(), in); return err })
		} else if _, err := w.k.CreateGoal(ctx, w.by(), in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func repeat(s string, n int) (out []string) {
	for range n {
		out = append(out, s)
	}
	return out
}

func TestAGoalIsCreatedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := must(w.k.CreateGoal(ctx, w.by(), newGoal("k")))(t)
	if !first.Created || !first.StateChanged || first.Replayed || first.Goal.Summary.Revision != 1 {
		t.Fatalf("%+v", first)
	}
	again := must(w.k.CreateGoal(ctx, w.by(), newGoal(" k ")))(t) // the key is trimmed
	if again.Created || again.StateChanged || !again.Replayed || again.Goal.Summary.GoalID != first.Goal.Summary.GoalID {
		t.Fatalf("%+v", again)
	}
	other := newGoal("k")
	other.Title = "another"
	w.refused("goal_idempotency_conflict", func() error { _, err := w.k.CreateGoal(ctx, w.by(), other); return err })
	// Another owner's key is another key.
	w.owner = "m-2"
	if mine := must(w.k.CreateGoal(ctx, w.by(), newGoal("k")))(t); !mine.Created {
		t.Fatalf("%+v", mine)
	}
}

// The order of checks: each refusal comes although everything behind it in the
// order is wrong too.
func TestTheOrderOfChecksOfACheckpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.goal()
	id := g.Summary.GoalID
	must(w.k.CheckpointGoal(ctx, w.by(), check(id, 1, "used", "build")))(t)
	run := func(in workflow.CheckpointGoal) func() error {
		return func() error { _, err := w.k.CheckpointGoal(ctx, w.by(), in); return err }
	}
	// from the worst to the one that is right but for its content
	worst := workflow.CheckpointGoal{GoalID: "nothing", ExpectedRevision: 0, CompletedStepIDs: []string{"nobody", "nobody"}}
	w.refused("invalid_goal_id", run(worst))
	worst.GoalID = "wc_goal_AAAAAAAAAAAAAAAA"
	w.refused("invalid_goal_revision", run(worst))
	worst.ExpectedRevision = 7
	w.refused("invalid_goal_checkpoint", run(worst))
	worst.CompletedStepIDs, worst.Summary = []string{"nobody"}, "s"
	w.refused("invalid_goal_idempotency_key", run(worst))
	worst.IdempotencyKey = "used"
	w.refused("goal_not_found", run(worst))
	worst.GoalID = id
	w.refused("goal_idempotency_conflict", run(worst))
	worst.IdempotencyKey = "fresh"
	w.refused("goal_revision_changed", run(worst))
	worst.ExpectedRevision = 2
	w.refused("invalid_goal_checkpoint", run(worst))
	must(w.k.UpdateGoal(ctx, w.by(), workflow.UpdateGoal{GoalID: id, ExpectedRevision: 2, IdempotencyKey: "c", Lifecycle: ptr("cancelled")}))(t)
	worst.ExpectedRevision = 9 // terminal comes before the revision
	w.refused("goal_terminal", run(worst))
	// and an exact repetition is answered all the same
	if r := must(w.k.CheckpointGoal(ctx, w.by(), check(id, 1, "used", "build")))(t); !r.Replayed || r.ResultRevision != 2 || r.Goal.Summary.Revision != 3 {
		t.Fatalf("%+v", r)
	}
	// the same with another expected revision is another request
	w.refused("goal_idempotency_conflict", run(check(id, 2, "used", "build")))
}

func TestCheckpointShapes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.goal().Summary.GoalID
	for name, tt := range map[string]struct {
		change func(*workflow.CheckpointGoal)
		ok     bool
	}{
		"an id twice":             {func(c *workflow.CheckpointGoal) { c.CompletedStepIDs = []string{"build", "build"} }, false},
		"an id of bad form":       {func(c *workflow.CheckpointGoal) { c.CompletedStepIDs = []string{"no good"} }, false},
		"an unknown id":           {func(c *workflow.CheckpointGoal) { c.CompletedStepIDs = []string{"build", "nobody"} }, false},
		"an unknown current step": {func(c *workflow.CheckpointGoal) { c.CurrentStepID = ptr("nobody") }, false},
		"an empty current step":   {func(c *workflow.CheckpointGoal) { c.CurrentStepID = ptr("") }, false},
		"current is completed too": {func(c *workflow.CheckpointGoal) {
			c.CompletedStepIDs, c.CurrentStepID = []string{"build"}, ptr("build")
		}, false},
		"33 ids":                      {func(c *workflow.CheckpointGoal) { c.CompletedStepIDs = repeat("x", 33) }, false},
		"a summary of space":          {func(c *workflow.CheckpointGoal) { c.Summary = "\n" }, false},
		"a summary of 2049 bytes":     {func(c *workflow.CheckpointGoal) { c.Summary = strings.Repeat("é", 1024) + "x" }, false},
		"a summary of 2048 bytes":     {func(c *workflow.CheckpointGoal) { c.Summary = " " + strings.Repeat("é", 1024) + " " }, true},
		"no step moves":               {func(*workflow.CheckpointGoal) {}, true},
		"a pending step is completed": {func(c *workflow.CheckpointGoal) { c.CompletedStepIDs = []string{"ship"} }, true},
	} {
		g := must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: id}))(t)
		in := check(id, g.Summary.Revision, name)
		tt.change(&in)
		if !tt.ok {
			w.refused("invalid_goal_checkpoint", func() error { _, err := w.k.CheckpointGoal(ctx, w.by(), in); return err })
			continue
		}
		r, err := w.k.CheckpointGoal(ctx, w.by(), in)
		if err != nil || r.Goal.Summary.Revision != g.Summary.Revision+1 || !r.StateChanged {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
}

func TestStepsMoveForwardOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.goal().Summary.GoalID
	in := check(id, 1, "1")
	in.CurrentStepID = ptr("build")
	must(w.k.CheckpointGoal(ctx, w.by(), in))(t)
	// Another step cannot become the current one while this one is.
	in = check(id, 2, "2")
	in.CurrentStepID = ptr("test")
	w.refused("invalid_goal_checkpoint", func() error { _, err := w.k.CheckpointGoal(ctx, w.by(), in); return err })
	w.at = w.at.Add(time.Second)
	in = check(id, 2, "3", "build")
	in.CurrentStepID = ptr("test")
	r := must(w.k.CheckpointGoal(ctx, w.by(), in))(t)
	done := r.Goal.Plan.Steps[0]
	if done.Status != workflow.StepCompleted || done.CompletedAt != w.at.UnixMilli() || r.Goal.Plan.Steps[1].Status != workflow.StepInProgress {
		t.Fatalf("%+v", r.Goal.Plan.Steps)
	}
	// A step that is done keeps its time; no current step leaves the present one.
	w.at = w.at.Add(time.Second)
	r = must(w.k.CheckpointGoal(ctx, w.by(), check(id, 3, "4", "build")))(t)
	if r.Goal.Plan.Steps[0] != done || r.Goal.Plan.Steps[1].Status != workflow.StepInProgress || r.Goal.Summary.Revision != 4 {
		t.Fatalf("%+v", r.Goal.Plan.Steps)
	}
	// A completed step is never the current one again.
	in = check(id, 4, "5", "test")
	in.CurrentStepID = ptr("build")
	w.refused("invalid_goal_checkpoint", func() error { _, err := w.k.CheckpointGoal(ctx, w.by(), in); return err })
}

// The clock may go back: times never do, and a goal stays usable.
func TestAClockThatGoesBackwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.goal()
	w.at = w.at.Add(-time.Hour)
	r := must(w.k.CheckpointGoal(ctx, w.by(), check(g.Summary.GoalID, 1, "1", "build", "test", "ship")))(t)
	if r.Goal.Summary.UpdatedAt != g.Summary.UpdatedAt || r.Goal.Plan.CheckpointAt != g.Summary.UpdatedAt {
		t.Errorf("%+v", r.Goal.Summary)
	}
	w.at = w.at.Add(-time.Hour)
	u := must(w.k.UpdateGoal(ctx, w.by(), workflow.UpdateGoal{GoalID: g.Summary.GoalID, ExpectedRevision: 2, IdempotencyKey: "u", Lifecycle: ptr("completed")}))(t)
	if u.Goal.Summary.TerminalAt != g.Summary.UpdatedAt {
		t.Errorf("%+v", u.Goal.Summary)
	}
	must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: g.Summary.GoalID}))(t)
}

func TestUpdateGoal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.goal().Summary.GoalID
	update := func(rev int64, key string, change func(*workflow.UpdateGoal)) (workflow.GoalResult, error) {
		in := workflow.UpdateGoal{GoalID: id, ExpectedRevision: rev, IdempotencyKey: key}
		change(&in)
		return w.k.UpdateGoal(ctx, w.by(), in)
	}
	refused := func(kind string, rev int64, change func(*workflow.UpdateGoal)) {
		t.Helper()
		w.refused(kind, func() error { _, err := update(rev, "refused", change); return err })
	}
	refused("goal_update_empty", 1, func(*workflow.UpdateGoal) {})
	refused("goal_terminal_reason_requires_terminal_lifecycle", 1, func(u *workflow.UpdateGoal) { u.TerminalReason = ptr("r") })
	refused("goal_terminal_reason_requires_terminal_lifecycle", 1, func(u *workflow.UpdateGoal) { u.TerminalReason, u.Lifecycle = ptr("r"), ptr("active") })
	refused("invalid_goal", 1, func(u *workflow.UpdateGoal) { u.Lifecycle = ptr("done") })
	refused("invalid_goal", 1, func(u *workflow.UpdateGoal) {
		u.Lifecycle, u.TerminalReason = ptr("cancelled"), ptr(strings.Repeat("x", 4097))
	})
	refused("goal_revision_changed", 5, func(u *workflow.UpdateGoal) { u.Lifecycle = ptr("completed") })
	refused("agent_not_found", 1, func(u *workflow.UpdateGoal) { u.ControllerAgentID = ptr("wc_dagent_AAAAAAAAAAAAAAAA") })
	refused("goal_plan_incomplete", 1, func(u *workflow.UpdateGoal) { u.Lifecycle = ptr("completed") })

	// A change of nothing keeps the revision and its key.
	same := func(u *workflow.UpdateGoal) { u.Title = ptr(" ship ") }
	if r, err := update(1, "same", same); err != nil || r.StateChanged || r.Goal.Summary.Revision != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	if r, err := update(1, "title", func(u *workflow.UpdateGoal) { u.Title = ptr("ship well") }); err != nil || !r.StateChanged || r.Goal.Summary.Revision != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	if r, err := update(1, "same", same); err != nil || !r.Replayed || r.ResultRevision != 1 || r.Goal.Summary.Revision != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	must(w.k.CheckpointGoal(ctx, w.by(), check(id, 2, "all", "build", "test", "ship")))(t)
	complete := workflow.CompleteGoal{GoalID: id, ExpectedRevision: 3, IdempotencyKey: "end", TerminalReason: ptr("shipped")}
	r := must(w.k.UpdateGoal(ctx, w.by(), complete.Update()))(t)
	if r.Goal.Summary.Lifecycle != workflow.GoalCompleted || r.Goal.Summary.TerminalAt == 0 || r.Goal.TerminalReason != "shipped" {
		t.Fatalf("%+v", r.Goal)
	}
	refused("goal_terminal", 9, func(u *workflow.UpdateGoal) { u.Title = ptr("no") })
	if r := must(w.k.UpdateGoal(ctx, w.by(), complete.Update()))(t); !r.Replayed || r.StateChanged {
		t.Fatalf("%+v", r)
	}
}

func TestAnotherOwnersGoalDoesNotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.goal().Summary.GoalID
	w.owner = "m-2"
	w.refused("goal_not_found", func() error { _, err := w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: id}); return err })
	w.refused("goal_not_found", func() error { _, err := w.k.CheckpointGoal(ctx, w.by(), check(id, 1, "k")); return err })
	w.refused("goal_not_found", func() error {
		_, err := w.k.UpdateGoal(ctx, w.by(), workflow.UpdateGoal{GoalID: id, ExpectedRevision: 1, IdempotencyKey: "k", ControllerAgentID: ptr("wc_dagent_AAAAAAAAAAAAAAAA")})
		return err
	})
	if p := must(w.k.ListGoals(ctx, w.by(), workflow.ListGoals{}))(t); p.TotalCount != 0 {
		t.Errorf("%+v", p)
	}
}

func TestListGoals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []string
	for _, title := range []string{"one", "two", "Two more"} {
		in := newGoal(title)
		in.Title = title
		w.at = w.at.Add(time.Second)
		ids = append(ids, must(w.k.CreateGoal(ctx, w.by(), in))(t).Goal.Summary.GoalID)
	}
	w.at = w.at.Add(time.Second)
	must(w.k.UpdateGoal(ctx, w.by(), workflow.UpdateGoal{GoalID: ids[0], ExpectedRevision: 1, IdempotencyKey: "x", Lifecycle: ptr("cancelled")}))(t)
	titles := func(in workflow.ListGoals) string {
		p := must(w.k.ListGoals(ctx, w.by(), in))(t)
		var out []string
		for _, g := range p.Goals {
			out = append(out, g.Title)
		}
		return strings.Join(out, ",")
	}
	for want, in := range map[string]workflow.ListGoals{
		"one,Two more,two": {},
		"Two more,two":     {Query: ptr("TWO")},
		"one":              {Lifecycle: ptr("cancelled")},
		"Two more":         {Offset: ptr(int64(1)), Limit: ptr(int64(1))},
		"":                 {Offset: ptr(int64(9))},
	} {
		if got := titles(in); got != want {
			t.Errorf("%+v: %s, want %s", in, got, want)
		}
	}
	p := must(w.k.ListGoals(ctx, w.by(), workflow.ListGoals{Limit: ptr(int64(2))}))(t)
	if p.TotalCount != 3 || !p.Truncated || p.NextOffset == nil || *p.NextOffset != 2 {
		t.Errorf("%+v", p)
	}
	for _, in := range []workflow.ListGoals{{Limit: ptr(int64(0))}, {Limit: ptr(int64(101))}, {Offset: ptr(int64(-1))}, {Lifecycle: ptr("x")}} {
		w.refused("invalid_goal_query", func() error { _, err := w.k.ListGoals(ctx, w.by(), in); return err })
	}
}

// An I/O error is no refusal: what was uncertain is said to be.
func TestAStoreThatFails(t *testing.T) {
	t.Parallel()
	for _, unsure := range []bool{false, true} {
		w := newWorld(t)
		id := w.goal().Summary.GoalID
		w.mem.fail, w.mem.unsure = errDisk, unsure
		_, err := w.k.CheckpointGoal(ctx, w.by(), check(id, 1, "k", "build"))
		e, ok := err.(*workflow.Error) //nolint:errorlint // every error is one
		if !ok || e.Kind != "goal_store_unavailable" || e.Unknown != unsure || (e.StateChanged() == nil) != unsure {
			t.Fatalf("%+v", err)
		}
		// The same again finds out.
		r := must(w.k.CheckpointGoal(ctx, w.by(), check(id, 1, "k", "build")))(t)
		if r.Replayed != unsure || r.Goal.Summary.Revision != 2 {
			t.Errorf("unsure=%v: %+v", unsure, r)
		}
	}
}

func TestNothingChangesOnceTheMissionIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.goal().Summary.GoalID
	w.dead = errDisk
	w.refused("mission_not_running", func() error { _, err := w.k.CheckpointGoal(ctx, w.by(), check(id, 1, "k")); return err })
	must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: id}))(t)
}
