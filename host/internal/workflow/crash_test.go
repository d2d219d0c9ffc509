package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// composite is one composite call: a checkpoint before, a main call whose
// effect is a line in a file, and a todo after.
type composite struct {
	Goal, Session, Todo, Fence string
	Revision                   int64
}

const compositeOwner = workflow.Owner("m")

// The commits of a composite call, in their order.
const (
	commitBefore = iota + 1
	commitIntent
	commitSettled
	commitAfter
)

// run makes the call as the kernel does, with main running between intent and
// outcome.
func (c composite) run(k *workflow.Keeper, nonce string, main func() error) error {
	call, err := k.Open(compositeOwner, workflow.NewCall{Tool: "t", Nonce: nonce, BeforeKind: "goal_progress", AfterKind: "todo_completion"})
	if err != nil {
		return err
	}
	defer k.Close(call)
	_, err = k.CheckpointGoal(ctx, workflow.Caller{Owner: compositeOwner, Call: call, Phase: workflow.Before}, c.before())
	if err == nil {
		err = k.Intend(ctx, call, "")
	}
	if err == nil {
		err = main()
	}
	if err == nil {
		yes := true
		err = k.Settle(ctx, call, workflow.MainOutcome{State: workflow.Succeeded, StateChanged: &yes}, "")
	}
	if err == nil {
		_, err = k.CompleteMessage(ctx, workflow.Caller{Owner: compositeOwner, Session: c.Session, Call: call, Phase: workflow.After}, c.after())
	}
	return err
}

func (c composite) before() workflow.CheckpointGoal {
	return workflow.CheckpointGoal{GoalID: c.Goal, ExpectedRevision: c.Revision, Summary: "s", IdempotencyKey: "before"}
}

func (c composite) after() workflow.CompleteMessage {
	return workflow.CompleteMessage{SessionID: c.Session, MessageID: c.Todo, Answer: "done", CompletionKey: "after", ExpectedAssignmentFence: c.Fence}
}

// compositeChild makes one composite call and is killed at a point of one of its
// commits, or while main runs.
func compositeChild(dir string) error {
	at, nth := store.Point(os.Getenv("AIRLOCK_POINT")), os.Getenv("AIRLOCK_COMMIT")
	var armed atomic.Bool // the start's own commits do not count
	commits := 0
	kill := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }
	_, k, err := openHost(filepath.Join(dir, "data"), func(p store.Point) error {
		if !armed.Load() {
			return nil
		}
		if p == store.PointBegun {
			commits++
		}
		if p == at && strconv.Itoa(commits) == nth {
			kill()
		}
		return nil
	})
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "call.json"))
	if err != nil {
		return err
	}
	var c composite
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	armed.Store(true)
	return c.run(k, "n", func() error {
		err := os.WriteFile(filepath.Join(dir, "effect"), []byte("x"), 0o600)
		if nth == "main" {
			kill()
		}
		return err
	})
}

// TestTheCrashPointTable kills a process at each commit of a composite call,
// before and after it is durable, and looks at what is left: the goal and the
// todo, what the journal says, and that the client can go on as the table says.
func TestTheCrashPointTable(t *testing.T) {
	t.Parallel()
	type row struct {
		commit  string
		point   store.Point
		durable int // commits that must be there afterwards
	}
	rows := []row{{"main", "", commitIntent}}
	for n := commitBefore; n <= commitAfter; n++ {
		rows = append(rows, row{strconv.Itoa(n), store.PointApplied, n - 1}, row{strconv.Itoa(n), store.PointCommitted, n})
	}
	for _, r := range rows {
		t.Run(r.commit+" "+string(r.point), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := prepareComposite(t, dir)
			cmd := child(t, "composite", dir, "AIRLOCK_POINT="+string(r.point), "AIRLOCK_COMMIT="+r.commit)
			if err := killed(cmd.Run()); err != nil {
				t.Fatal(err)
			}
			s, k, err := openHost(filepath.Join(dir, "data"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, statErr := os.Stat(filepath.Join(dir, "effect"))
			checkComposite(t, k, c, r.durable, statErr == nil)
		})
	}
}

// killed is nil for a process that ended by SIGKILL.
func killed(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return nil
	}
	return fmt.Errorf("the child was not killed: %w", err)
}

func prepareComposite(t *testing.T, dir string) composite {
	t.Helper()
	s, k, err := openHost(filepath.Join(dir, "data"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	must(0, s.Commit(ctx, store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error {
		return k.Observe(tx, compositeOwner, workflow.MissionStarting, workflow.Mission{Agent: "a", Objective: "o", Generation: 1})
	}}))(t)
	by := workflow.Caller{Owner: compositeOwner}
	mc := must(k.Context(ctx, by))(t)
	todo := must(k.PostMessage(ctx, by, workflow.PostMessage{SessionID: mc.SessionID, Kind: "todo", Message: "do"}))(t)
	a := must(k.GetAssignment(ctx, by, workflow.GetAssignment{SessionID: mc.SessionID, MessageID: todo.Message.MessageID}))(t)
	c := composite{Goal: mc.GoalID, Session: mc.SessionID, Todo: todo.Message.MessageID, Fence: a.Fence, Revision: 1}
	text := must(json.Marshal(c))(t)
	must(0, os.WriteFile(filepath.Join(dir, "call.json"), text, 0o600))(t)
	return c
}

func checkComposite(t *testing.T, k *workflow.Keeper, c composite, durable int, effect bool) {
	t.Helper()
	by := workflow.Caller{Owner: compositeOwner, Session: c.Session}
	wantRevision := int64(1)
	if durable >= commitBefore {
		wantRevision = 2
	}
	if g := must(k.GetGoal(ctx, by, workflow.GetGoal{GoalID: c.Goal}))(t); g.Summary.Revision != wantRevision {
		t.Errorf("revision %d, want %d", g.Summary.Revision, wantRevision)
	}
	nonce := "n"
	out, err := k.Outcome(ctx, by, workflow.GetOutcome{Nonce: &nonce})
	if durable < commitBefore {
		if workflow.KindOf(err) != "invocation_not_found" || effect {
			t.Errorf("%+v %v, effect %v", out, err, effect)
		}
	} else {
		want := map[int]workflow.ExecutionState{commitBefore: workflow.NeverStarted, commitIntent: workflow.Unknown, commitSettled: workflow.Succeeded, commitAfter: workflow.Succeeded}[durable]
		after := workflow.NeverStarted
		if durable == commitAfter {
			after = workflow.Succeeded
		}
		if err != nil || out.Main.State != want || out.Before.State != workflow.Succeeded || out.After.State != after || out.InProgress {
			t.Errorf("main %+v before %+v after %+v: %v", out.Main, out.Before, out.After, err)
		}
		if effect && out.Main.State == workflow.NeverStarted {
			t.Error("main ran, and the journal says that it did not")
		}
	}
	todo := must(k.GetAssignment(ctx, by, workflow.GetAssignment{SessionID: c.Session, MessageID: c.Todo}))(t)
	if done := todo.Todo.Status == "resolved"; done != (durable == commitAfter) {
		t.Errorf("the todo is %s", todo.Todo.Status)
	}
	// The same sidecars again: what was committed replays, what was not is done.
	b := must(k.CheckpointGoal(ctx, by, c.before()))(t)
	a := must(k.CompleteMessage(ctx, by, c.after()))(t)
	if b.Replayed != (durable >= commitBefore) || a.Replayed != (durable >= commitAfter) || b.Goal.Summary.Revision != 2 {
		t.Errorf("before replayed %v, after replayed %v, revision %d", b.Replayed, a.Replayed, b.Goal.Summary.Revision)
	}
}
