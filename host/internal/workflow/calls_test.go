package workflow_test

import (
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

func (w *world) open(n workflow.NewCall) *workflow.Call {
	w.t.Helper()
	return must(w.k.Open(w.owner, n))(w.t)
}

func (w *world) outcome(id string) workflow.CallOutcome {
	w.t.Helper()
	return must(w.k.Outcome(ctx, w.by(), workflow.GetOutcome{InvocationID: &id}))(w.t)
}

// restart is what is left after a crash and a start: another keeper over the
// same rows.
func (w *world) restart() {
	w.t.Helper()
	fresh := newWorld(w.t)
	fresh.mem = w.mem
	w.k = workflow.New(workflow.Options{Store: w.mem, Key: []byte("0123456789abcdef0123456789abcdef"), Rand: &counter{n: 1 << 32}})
	if err := w.mem.Update(ctx, w.owner, w.k.Recover); err != nil {
		w.t.Fatal(err)
	}
}

// TestWhatACrashLeavesOfACompositeCall is the crash-point table by the rows
// alone; the store's tests go through it with processes that are killed.
func TestWhatACrashLeavesOfACompositeCall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		after        string // the step at which the host is gone
		main         workflow.ExecutionState
		before, post workflow.ExecutionState
		revision     int64
	}{
		{"admission", "", "", "", 1},
		{"before", workflow.NeverStarted, workflow.Succeeded, workflow.NeverStarted, 2},
		{"intent", workflow.Unknown, workflow.Succeeded, workflow.NeverStarted, 2},
		{"settled", workflow.Succeeded, workflow.Succeeded, workflow.NeverStarted, 2},
		{"after", workflow.Succeeded, workflow.Succeeded, workflow.Succeeded, 3},
	} {
		w := newWorld(t)
		id := w.goal().Summary.GoalID
		call := w.open(workflow.NewCall{Tool: "t", Nonce: "n", BeforeKind: "goal_progress", AfterKind: "goal_completion"})
		steps := []struct {
			name string
			do   func() error
		}{
			{"admission", func() error { return nil }},
			{"before", func() error {
				by := workflow.Caller{Owner: w.owner, Call: call, Phase: workflow.Before}
				_, err := w.k.CheckpointGoal(ctx, by, check(id, 1, "b", "build", "test", "ship"))
				return err
			}},
			{"intent", func() error { return w.k.Intend(ctx, call, "") }},
			{"settled", func() error {
				return w.k.Settle(ctx, call, workflow.MainOutcome{State: workflow.Succeeded, StateChanged: ptr(true)}, "")
			}},
			{"after", func() error {
				by := workflow.Caller{Owner: w.owner, Call: call, Phase: workflow.After}
				_, err := w.k.UpdateGoal(ctx, by, workflow.CompleteGoal{GoalID: id, ExpectedRevision: 2, IdempotencyKey: "e"}.Update())
				return err
			}},
		}
		for _, s := range steps {
			if err := s.do(); err != nil {
				t.Fatal(err)
			}
			if s.name == tt.after {
				break
			}
		}
		if got := w.outcome(call.ID); !got.InProgress {
			t.Errorf("%s: not in progress", tt.after)
		}
		w.restart()
		out, err := w.k.Outcome(ctx, w.by(), workflow.GetOutcome{Nonce: ptr("n")})
		if tt.main == "" {
			if workflow.KindOf(err) != "invocation_not_found" {
				t.Errorf("%s: %+v %v", tt.after, out, err)
			}
		} else if err != nil || out.Main.State != tt.main || out.Before.State != tt.before || out.After.State != tt.post || out.InProgress ||
			out.Swept != (tt.after == "before" || tt.after == "intent") {
			t.Errorf("%s: %+v %+v %+v %v", tt.after, out, out.Before, out.After, err)
		}
		if out.Main.State == workflow.Unknown && out.Main.StateChanged != nil {
			t.Errorf("%s: an unknown outcome says whether something changed", tt.after)
		}
		if g := must(w.k.GetGoal(ctx, w.by(), workflow.GetGoal{GoalID: id}))(t); g.Summary.Revision != tt.revision {
			t.Errorf("%s: revision %d, want %d", tt.after, g.Summary.Revision, tt.revision)
		}
	}
}

// TestAHandedOffCallGoesWithItsHost: whoever had it in hand is gone, and nobody
// knows its end; what an operator says later holds.
func TestAHandedOffCallGoesWithItsHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	call := w.open(workflow.NewCall{Tool: "run_command", Nonce: "n", Effect: true})
	if err := w.k.Intend(ctx, call, "governed"); err != nil {
		t.Fatal(err)
	}
	if err := w.k.Settle(ctx, call, workflow.MainOutcome{State: workflow.Started}, ""); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if out := w.outcome(call.ID); out.Main.State != workflow.Unknown || !out.Swept {
		t.Errorf("%+v", out)
	}
	if err := w.mem.Update(ctx, w.owner, func(tx workflow.Tx) error {
		return w.k.Resolved(tx, w.owner, "governed", workflow.Failed)
	}); err != nil {
		t.Fatal(err)
	}
	if out := w.outcome(call.ID); out.Main.State != workflow.Failed {
		t.Errorf("%+v", out)
	}
}

func TestPhasesAreRecordedWithTheirEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.goal().Summary.GoalID
	call := w.open(workflow.NewCall{Tool: "t", BeforeKind: "goal_progress", AfterKind: "session_close"})
	by := workflow.Caller{Owner: w.owner, Call: call, Phase: workflow.Before}
	if _, err := w.k.CheckpointGoal(ctx, by, check(id, 9, "k", "build")); workflow.KindOf(err) != "goal_revision_changed" {
		t.Fatal(err)
	}
	out := w.outcome(call.ID)
	if out.Before.State != workflow.Failed || out.Before.ErrorKind != "goal_revision_changed" || out.Before.Revision != 1 || out.Before.Kind != "goal_progress" || *out.Before.StateChanged {
		t.Fatalf("%+v", out.Before)
	}
	no := false
	if err := w.k.Refuse(ctx, call, nil, &workflow.PhaseOutcome{State: workflow.NeverStarted, StateChanged: &no, ErrorKind: "main_not_started"}); err != nil {
		t.Fatal(err)
	}
	w.k.Close(call)
	out = w.outcome(call.ID)
	if out.Main.State != workflow.NeverStarted || out.After.ErrorKind != "main_not_started" || out.After.Kind != "session_close" || out.InProgress {
		t.Fatalf("%+v", out)
	}
	// A replay says that it is one; an uncertain phase says that nobody knows.
	must(w.k.CheckpointGoal(ctx, w.by(), check(id, 1, "k", "build")))(t)
	call = w.open(workflow.NewCall{Tool: "t", BeforeKind: "goal_progress"})
	by.Call = call
	must(w.k.CheckpointGoal(ctx, by, check(id, 1, "k", "build")))(t)
	if out := w.outcome(call.ID); !out.Before.Replayed || *out.Before.StateChanged || out.Before.Revision != 2 {
		t.Fatalf("%+v", out.Before)
	}
	call = w.open(workflow.NewCall{Tool: "t", BeforeKind: "goal_progress"})
	by.Call = call
	w.mem.fail, w.mem.unsure = errDisk, false
	if _, err := w.k.CheckpointGoal(ctx, by, check(id, 2, "k2")); err == nil {
		t.Fatal("it was taken")
	}
	if out := w.outcome(call.ID); out.Before.State != workflow.Failed || out.Before.ErrorKind != "goal_store_unavailable" {
		t.Fatalf("%+v", out.Before)
	}
}

func TestASkipIsRecordedWithMain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	call := w.open(workflow.NewCall{Tool: "t", AfterKind: "todo_completion"})
	must(0, w.k.Intend(ctx, call, ""))(t)
	must(0, w.k.Settle(ctx, call, workflow.MainOutcome{State: workflow.Failed, StateChanged: ptr(false)}, "main_failed"))(t)
	if out := w.outcome(call.ID); out.After.State != workflow.NeverStarted || out.After.ErrorKind != "main_failed" || out.Before != nil {
		t.Errorf("%+v", out)
	}
}

func TestGetInvocationOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.open(workflow.NewCall{Tool: "t", Nonce: "n"})
	must(0, w.k.Intend(ctx, first, ""))(t)
	must(0, w.k.Settle(ctx, first, workflow.MainOutcome{State: workflow.Succeeded}, ""))(t)
	w.k.Close(first)
	by := workflow.GetOutcome{Nonce: ptr("n")}
	if out := must(w.k.Outcome(ctx, w.by(), by))(t); out.SameNonce != 1 || out.InvocationID != first.ID || out.InProgress {
		t.Fatalf("%+v", out)
	}
	w.at = w.at.Add(1)
	second := w.open(workflow.NewCall{Tool: "t", Nonce: "n"}) // nothing of it is stored yet
	if out := must(w.k.Outcome(ctx, w.by(), by))(t); out.InvocationID != second.ID || !out.InProgress || out.Main.State != workflow.NeverStarted {
		t.Fatalf("%+v", out)
	}
	other := workflow.Caller{Owner: "m-2"}
	for name, tt := range map[string]struct {
		by   workflow.Caller
		in   workflow.GetOutcome
		kind string
	}{
		"neither":          {w.by(), workflow.GetOutcome{}, "invalid_invocation_id"},
		"both":             {w.by(), workflow.GetOutcome{InvocationID: &first.ID, Nonce: ptr("n")}, "invalid_invocation_id"},
		"a bad id":         {w.by(), workflow.GetOutcome{InvocationID: ptr("x")}, "invalid_invocation_id"},
		"a long nonce":     {w.by(), workflow.GetOutcome{Nonce: ptr(strings.Repeat("x", 129))}, "invalid_invocation_nonce"},
		"nobody":           {w.by(), workflow.GetOutcome{Nonce: ptr("x")}, "invocation_not_found"},
		"somebody else's":  {other, workflow.GetOutcome{InvocationID: &first.ID}, "invocation_not_found"},
		"its nonce":        {other, by, "invocation_not_found"},
		"somebody's in it": {other, workflow.GetOutcome{InvocationID: &second.ID}, "invocation_not_found"},
	} {
		if _, err := w.k.Outcome(ctx, tt.by, tt.in); workflow.KindOf(err) != tt.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}
