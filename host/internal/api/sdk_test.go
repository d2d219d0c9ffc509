package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/sdk/governance"
)

type refundArgs struct {
	Amount int    `json:"amount"`
	Note   string `json:"note,omitempty"`
}

// client is a Go harness of a task.
func (a *agent) client(opts governance.Options) *governance.Client {
	a.t.Helper()
	c, err := governance.New(a.h.REST+a.path, a.token, opts)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(c.Close)
	return c
}

// pending waits for an approval and gives the decision's id.
func (a *agent) pending() string {
	a.t.Helper()
	var id string
	eventually(a.t, "an approval", func() bool {
		if st := a.status(); len(st.Pending) > 0 {
			id = st.Pending[0].DecisionID
		}
		return id != ""
	})
	return id
}

func TestAnAttachedFunctionIsGoverned(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"refunds"}`)
	c := a.client(governance.Options{Hold: 50 * time.Millisecond}) // held several times over
	var ran atomic.Int64
	refund := governance.Attach(c, "refund", func(_ context.Context, args refundArgs) (string, error) {
		ran.Add(1)
		if args.Amount == 13 {
			return "", errors.New("the bank says no")
		}
		return "done", nil
	})
	if got, err := refund(t.Context(), refundArgs{Amount: 20, Note: "<&>"}); err != nil || got != "done" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := refund(t.Context(), refundArgs{Amount: 13}); err == nil || !strings.Contains(err.Error(), "the bank") {
		t.Fatalf("a failing function: %v", err)
	}
	var blocked *governance.Blocked
	if _, err := governance.Attach(c, "delete_all", func(context.Context, struct{}) (int, error) { ran.Add(100); return 0, nil })(t.Context(), struct{}{}); !errors.As(err, &blocked) || blocked.Decision.Verdict.Status != "BLOCK" {
		t.Fatalf("a blocked call: %v", err)
	}
	type outcome struct {
		text string
		err  error
	}
	later := func() <-chan outcome {
		ch := make(chan outcome, 1)
		go func() {
			text, err := refund(t.Context(), refundArgs{Amount: 850})
			ch <- outcome{text, err}
		}()
		return ch
	}
	first := later()
	a.answer(a.pending(), "approve_once", "").want(t, 200)
	if got := <-first; got.err != nil || got.text != "done" {
		t.Fatalf("an approved call: %+v", got)
	}
	second := later()
	a.answer(a.pending(), "reject", "").want(t, 200)
	if got := <-second; !errors.As(got.err, &blocked) {
		t.Fatalf("a rejected call: %+v", got)
	}
	third := later()
	a.answer(a.pending(), "ask_agent_to_replan", "").want(t, 200)
	var suspended *governance.Suspended
	if got := <-third; !errors.As(got.err, &suspended) || suspended.Decision.Verdict.Status != "REPLAN" {
		t.Fatalf("a call to replan: %+v", got)
	}
	st := a.status()
	if ran.Load() != 3 || st.Counters["executed"] != 3 || st.Counters["completed"] != 2 || st.Counters["failed"] != 1 {
		t.Errorf("ran %d times, %+v", ran.Load(), st)
	}
}

func TestAnAttachedFunctionRunsWithWhatARuleMadeOfIt(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"x"}`)
	type args struct {
		N      json.Number `json:"n"`
		DryRun bool        `json:"dry_run"`
	}
	got, err := governance.Attach(a.client(governance.Options{}), "cap", func(_ context.Context, in args) (args, error) { return in, nil })(t.Context(), args{N: "123456789012345678901234567890"})
	if err != nil || !got.DryRun || got.N != "123456789012345678901234567890" {
		t.Errorf("%+v, %v", got, err)
	}
}

// T5: a stop asks a running function for its end; what it then says is what is
// recorded.
func TestAStopCancelsAnAttachedFunction(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, ""), `{"objective":"x"}`)
	started := make(chan struct{})
	wait := governance.Attach(a.client(governance.Options{}), "wait", func(ctx context.Context, _ struct{}) (string, error) {
		close(started)
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	ended := make(chan error, 1)
	go func() { _, err := wait(t.Context(), struct{}{}); ended <- err }()
	<-started
	a.do("POST", "/control?wait=0", `{"action":"stop"}`).want(t, 200)
	if err := <-ended; !errors.Is(err, governance.ErrCancelRequested) {
		t.Fatalf("ended with %v", err)
	}
	if st := a.status(); st.Counters["failed"] != 1 || st.Counters["completed"] != 0 || len(st.Running) != 0 {
		t.Errorf("status = %+v", st)
	}
	_, err := wait(t.Context(), struct{}{})
	var refused *governance.Error
	if !errors.As(err, &refused) || refused.Code != "stopped" {
		t.Errorf("after the stop: %v", err)
	}
}

func TestWithoutAHostNothingRuns(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"objective":"x"}`)
	ran := false
	f := func(context.Context, struct{}) (int, error) { ran = true; return 0, nil }
	nowhere, err := governance.New("http://127.0.0.1:1/tasks/x", "t", governance.Options{Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nowhere.Close)
	if _, err := governance.Attach(nowhere, "f", f)(t.Context(), struct{}{}); err == nil || ran {
		t.Errorf("without a host: %v, ran %v", err, ran)
	}
	g.Store.Fail(store.ErrFull)
	if _, err := governance.Attach(a.client(governance.Options{Patience: time.Millisecond}), "f", f)(t.Context(), struct{}{}); err == nil || ran {
		t.Errorf("without a journal: %v, ran %v", err, ran)
	}
	g.Store.Fail(nil)
	if _, err := governance.Attach(a.client(governance.Options{}), "f", f)(t.Context(), struct{}{}); err != nil || !ran {
		t.Errorf("with it: %v, ran %v", err, ran)
	}
	for _, bad := range []string{"", "127.0.0.1:8122/tasks/x", "ftp://x/tasks/y", "http://127.0.0.1:8122"} {
		if _, err := governance.New(bad, "t", governance.Options{}); err == nil {
			t.Errorf("%q is taken for a task's URL", bad)
		}
	}
}

func TestAPanicIsAFailureToo(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, ""), `{"objective":"x"}`)
	func() {
		defer func() { _ = recover() }()
		_, _ = governance.Attach(a.client(governance.Options{}), "f", func(context.Context, struct{}) (int, error) { panic("oops") })(t.Context(), struct{}{})
	}()
	if st := a.status(); st.Counters["failed"] != 1 || len(st.Running) != 0 {
		t.Errorf("status = %+v", st)
	}
}

// D7: a function that is not attached is outside of the boundary: it runs, and
// nothing of it is claimed. Status says where the boundary is.
func TestWhatIsNotAttachedIsOutsideOfTheBoundary(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"x"}`)
	ran := 0
	deleteAll := func(context.Context, struct{}) (int, error) { ran++; return 0, nil }
	if _, err := deleteAll(t.Context(), struct{}{}); err != nil || ran != 1 {
		t.Fatalf("ran %d times, %v", ran, err)
	}
	kinds, _ := a.events()
	if len(kinds) != 1 || kinds[0] != "task_opened" {
		t.Errorf("events = %v", kinds)
	}
	var blocked *governance.Blocked
	if _, err := governance.Attach(a.client(governance.Options{}), "delete_all", deleteAll)(t.Context(), struct{}{}); !errors.As(err, &blocked) || ran != 1 {
		t.Errorf("the same function attached: ran %d times, %v", ran, err)
	}
	if got := a.do("GET", "/status", "").want(t, 200).object(t)["boundary"]; got != "harness" {
		t.Errorf("boundary = %v", got)
	}
}
