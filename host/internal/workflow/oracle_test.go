package workflow_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

const oracleClients = 16

// oracleClient makes composite calls one after the other: a checkpoint of its
// own goal before, a line in its own file as the main call's effect, and a
// message after. It knows nothing but what it can read, so after a crash it
// makes the call that it was at once more, with the same keys.
type oracleClient struct {
	k     *workflow.Keeper
	owner workflow.Owner
	n     int
	dir   string
	by    workflow.Caller
	c     workflow.MissionContext
}

func (o *oracleClient) effectFile() string {
	return filepath.Join(o.dir, fmt.Sprintf("effect-%d", o.n))
}

// oracleChild runs all clients, each to its last call, and prints a line for
// each call that was answered. It is killed from outside, or by itself at a
// point of the store.
func oracleChild(dir string) error {
	at := store.Point(os.Getenv("AIRLOCK_POINT"))
	nth, _ := strconv.ParseInt(os.Getenv("AIRLOCK_NTH"), 10, 64)
	calls, _ := strconv.Atoi(os.Getenv("AIRLOCK_CALLS"))
	var met atomic.Int64
	s, k, err := openHost(filepath.Join(dir, "data"), func(p store.Point) error {
		if p == at && met.Add(1) == nth {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	if err != nil {
		return err
	}
	errs := make(chan error)
	for n := range oracleClients {
		go func() {
			errs <- (&oracleClient{k: k, owner: workflow.Owner(fmt.Sprint("m-", n)), n: n, dir: dir}).run(s, calls)
		}()
	}
	for range oracleClients {
		err = errors.Join(err, <-errs)
	}
	return errors.Join(err, s.Close())
}

func (o *oracleClient) run(s *store.Store, calls int) (err error) {
	o.by = workflow.Caller{Owner: o.owner}
	o.c, err = o.k.Context(ctx, o.by)
	if workflow.KindOf(err) == "mission_context_not_found" {
		err = s.Commit(ctx, store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error {
			return o.k.Observe(tx, o.owner, workflow.MissionStarting, workflow.Mission{Agent: "a", Objective: "o", Generation: 1})
		}})
		if err == nil {
			o.c, err = o.k.Context(ctx, o.by)
		}
	}
	if err != nil {
		return err
	}
	// The call that it was at has the revision before the present one.
	for i := max(1, int(o.c.Revision)-1); i <= calls; i++ {
		if err := o.call(i); err != nil {
			return fmt.Errorf("client %d, call %d: %w", o.n, i, err)
		}
		fmt.Printf("%d %d\n", o.n, i)
	}
	return nil
}

// call is the i-th composite call; its checkpoint brings the goal from revision
// i to i+1.
func (o *oracleClient) call(i int) error {
	name := strconv.Itoa(i)
	call, err := o.k.Open(o.owner, workflow.NewCall{Tool: "effect", Nonce: name, BeforeKind: "goal_progress", AfterKind: "post"})
	if err != nil {
		return err
	}
	defer o.k.Close(call)
	by := o.by
	by.Call, by.Phase = call, workflow.Before
	in := workflow.CheckpointGoal{GoalID: o.c.GoalID, ExpectedRevision: int64(i), Summary: name, IdempotencyKey: name}
	if _, err := o.k.CheckpointGoal(ctx, by, in); err != nil {
		return err
	}
	if err := o.k.Intend(ctx, call, ""); err != nil {
		return err
	}
	f, err := os.OpenFile(o.effectFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(call.ID + " " + name + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := o.k.Settle(ctx, call, workflow.MainOutcome{State: workflow.Succeeded}, ""); err != nil {
		return err
	}
	by.Phase = workflow.After
	_, err = o.k.PostMessage(ctx, by, workflow.PostMessage{SessionID: o.c.SessionID, Kind: "note", Message: name, DeliveryKey: &name})
	return err
}

// TestNoMutationIsLostOrDoubled runs many composite calls by 16 clients in a
// process that is killed again and again, and compares what is stored with a
// model of it: after c answered calls a goal has revision c+1, the session one
// message for each call, and each effect of a main call an invocation that does
// not deny it. AIRLOCK_ORACLE sets the number of calls (10000 for a long run).
func TestNoMutationIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	total, crashes := 400, 8
	if n, err := strconv.Atoi(os.Getenv("AIRLOCK_ORACLE")); err == nil {
		total, crashes = n, 60
	}
	calls := (total + oracleClients - 1) / oracleClients
	dir := t.TempDir()
	acked := make([]int, oracleClients)
	points := store.Points()
	for i := 0; ; i++ {
		env := []string{"AIRLOCK_CALLS=" + strconv.Itoa(calls)}
		fromOutside := -1
		if i < crashes {
			if i%2 == 0 {
				env = append(env, "AIRLOCK_POINT="+string(points[rand.IntN(len(points))]), "AIRLOCK_NTH="+strconv.Itoa(1+rand.IntN(60)))
			}
			fromOutside = 1 + rand.IntN(max(2, total/crashes))
		}
		finished := runOracle(t, dir, env, fromOutside, acked)
		if t.Failed() {
			return
		}
		checkOracle(t, dir, acked, calls, finished)
		if finished || t.Failed() {
			return
		}
		if i > crashes+2 {
			t.Fatal("it does not come to its end")
		}
	}
}

// runOracle runs the child until it has ended or was killed; it says which.
func runOracle(t *testing.T, dir string, env []string, fromOutside int, acked []int) (finished bool) {
	t.Helper()
	cmd := child(t, "oracle", dir, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for sc := bufio.NewScanner(out); sc.Scan(); fromOutside-- {
		who, what, _ := strings.Cut(sc.Text(), " ")
		n, err1 := strconv.Atoi(who)
		i, err2 := strconv.Atoi(what)
		if err1 == nil && err2 == nil && n < len(acked) {
			acked[n] = max(acked[n], i)
		}
		if fromOutside == 0 {
			_ = cmd.Process.Kill()
		}
	}
	err = cmd.Wait()
	if err == nil {
		return true
	}
	if err := killed(err); err != nil {
		t.Error(err)
	}
	return false
}

func checkOracle(t *testing.T, dir string, acked []int, calls int, finished bool) {
	t.Helper()
	s, k, err := openHost(filepath.Join(dir, "data"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n, done := range acked {
		owner := workflow.Owner(fmt.Sprint("m-", n))
		o := &oracleClient{k: k, owner: owner, n: n, dir: dir, by: workflow.Caller{Owner: owner}}
		if finished {
			done = calls
		}
		o.c, err = k.Context(ctx, o.by)
		if workflow.KindOf(err) == "mission_context_not_found" && done == 0 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		o.check(t, s, done)
	}
}

// check compares what a client has with the model: done calls were answered, one
// more may have begun.
func (o *oracleClient) check(t *testing.T, s *store.Store, done int) {
	t.Helper()
	begun := int(o.c.Revision) - 1
	if begun != done && begun != done+1 {
		t.Fatalf("client %d: %d calls were answered, %d checkpoints are stored", o.n, done, begun)
	}
	invocations := map[string]workflow.CallOutcome{}
	err := s.ViewWork(ctx, func(r workflow.Reader) error {
		for i := 1; i <= begun; i++ {
			rows, err := r.List(workflow.Query{Table: workflow.TableInvocations, By: workflow.ByRef, Owner: o.owner.Digest(), Key: strconv.Itoa(i)})
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				t.Errorf("client %d: call %d has a checkpoint and no invocation", o.n, i)
			}
			for _, row := range rows {
				out, err := o.k.Outcome(ctx, o.by, workflow.GetOutcome{InvocationID: &row.ID})
				if err != nil {
					return err
				}
				invocations[row.ID] = out
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	notes := messages(t, s, o.c.SessionID)
	for i := 1; i <= len(notes); i++ {
		if notes[strconv.Itoa(i)] != 1 {
			t.Errorf("client %d: note %d is stored %d times", o.n, i, notes[strconv.Itoa(i)])
		}
	}
	if len(notes) != done && len(notes) != begun {
		t.Errorf("client %d: %d calls were answered, there are %d notes", o.n, done, len(notes))
	}
	text, err := os.ReadFile(o.effectFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		ran[name] = true
		if out, ok := invocations[id]; !ok || out.Main.State == workflow.NeverStarted {
			t.Errorf("client %d: main of call %s ran, its invocation says %+v", o.n, name, out.Main)
		}
	}
	for i := 1; i <= done; i++ {
		if !ran[strconv.Itoa(i)] {
			t.Errorf("client %d: call %d was answered and main never ran", o.n, i)
		}
	}
}

// messages counts the messages of a session by their text.
func messages(t *testing.T, s *store.Store, session string) map[string]int {
	t.Helper()
	out := map[string]int{}
	err := s.ViewWork(ctx, func(r workflow.Reader) error {
		rows, err := r.List(workflow.Query{Table: workflow.TableMessages, By: workflow.ByParent, Key: session})
		for _, row := range rows {
			var m workflow.MessageView
			if err := json.Unmarshal(row.Data, &m); err != nil {
				return err
			}
			out[m.Message]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
