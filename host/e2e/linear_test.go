package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The kinds of operations in the history.
const (
	opPropose = iota
	opApprove
	opDispatch
	opPause
	opResume
	opStop
)

// gateOp is one operation on the task: call is the harness's own number of the
// call that it is about.
type gateOp struct {
	kind int
	call int
}

const calls = 24

// gateState is the model of a task: what the seed says, and nothing of how the
// engine does it.
type gateState struct {
	paused, stopped bool
	epoch           int
	calls           [calls]callState
}

type callState struct {
	stage int // 0 unknown, 1 waits for an approval, 2 approved, 3 used up
	epoch int
}

// step says whether an answer is possible in a state, and what follows. ok is
// that the host did what it was asked.
func (s gateState) step(op gateOp, ok bool) (bool, gateState) {
	c := s.calls[op.call]
	current := c.epoch == s.epoch
	switch op.kind {
	case opPropose:
		if ok {
			s.calls[op.call] = callState{stage: 1, epoch: s.epoch}
		}
		return !ok || c.stage == 0, s
	case opApprove:
		// A pause closes the gate before it voids verdicts; what is approved in
		// between is void for dispatch all the same.
		between := s.paused && c.epoch == s.epoch-1
		if !ok {
			return c.stage != 1 || !current || s.paused || s.stopped, s
		}
		s.calls[op.call].stage = 2
		return c.stage == 1 && !s.stopped && (current || between), s
	case opDispatch:
		may := c.stage == 2 && current && !s.paused && !s.stopped
		if ok {
			s.calls[op.call].stage = 3
		}
		return ok == may, s
	case opPause:
		if ok && !s.paused {
			s.paused = true
			s.epoch++
		}
		return ok == !s.stopped, s
	case opResume:
		if ok {
			s.paused = false
		}
		return ok == !s.stopped, s
	default: // a stop is never refused
		if !s.stopped {
			s.stopped = true
			s.epoch++
		}
		return ok, s
	}
}

// TestTheGateIsLinearizable records a history of concurrent proposals,
// approvals, dispatches, pauses, resumes and a stop on one task over HTTP, and
// has it checked against the model: whatever the interleaving, each answer is
// one that some order of the operations explains. Above all nothing is
// dispatched under a verdict of before a pause or a stop, and nothing twice.
func TestTheGateIsLinearizable(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{governance: `
  approve {
    rule "pushes" {
      tool = "Push"
    }
  }
`})
	_, token := r.harnessTask("lin")
	var mu sync.Mutex
	var history []porcupine.Operation
	begun := time.Now()
	record := func(client int, op gateOp, do func() bool) bool {
		at := time.Since(begun)
		ok := do()
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: op, Call: int64(at), Output: ok, Return: int64(time.Since(begun))})
		return ok
	}
	answered := func(code int, good int) bool {
		if code != good && code != http.StatusConflict {
			t.Errorf("an answer with %d", code)
		}
		return code == good
	}
	control := func(client, kind int, action string) {
		record(client, gateOp{kind: kind}, func() bool {
			return answered(r.call(http.MethodPost, "/tasks/lin/control", map[string]any{"action": action}, nil), http.StatusOK)
		})
	}
	args := map[string]any{"b": "main"}
	agent := func(client, call int) {
		var a judged
		if !record(client, gateOp{opPropose, call}, func() bool {
			code := r.callAs(token, http.MethodPost, "/tasks/lin/proposals", map[string]any{"tool_name": "Push", "tool_args": args}, &a)
			return answered(code, http.StatusOK) && a.Decision.Status == "PAUSE"
		}) {
			return
		}
		var resolved struct {
			DecisionID string `json:"resolved_decision_id"`
			Status     string `json:"status"`
		}
		if !record(client, gateOp{opApprove, call}, func() bool {
			code := r.call(http.MethodPost, "/tasks/lin/approval", map[string]any{"decision_id": a.DecisionID, "action": "approve_once"}, &resolved)
			return answered(code, http.StatusOK) && resolved.Status == "ALLOW"
		}) {
			return
		}
		// Twice at the same time: one at most may run.
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				record(client+10*i, gateOp{opDispatch, call}, func() bool {
					code := r.callAs(token, http.MethodPost, "/tasks/lin/dispatches", map[string]any{"decision_id": resolved.DecisionID, "tool_name": "Push", "tool_args": args}, nil)
					return answered(code, http.StatusCreated)
				})
			})
		}
		wg.Wait()
	}
	const agents = 4
	var wg, working sync.WaitGroup
	done := make(chan struct{})
	for n := range agents {
		working.Add(1)
		wg.Go(func() {
			defer working.Done()
			for call := n; call < calls; call += agents {
				agent(n, call)
			}
		})
	}
	wg.Go(func() { defer close(done); working.Wait() })
	// after waits until so many operations are through, or the agents are.
	after := func(n int) {
		r.until("the agents get on", func() bool {
			select {
			case <-done:
				return true
			default:
			}
			mu.Lock()
			defer mu.Unlock()
			return len(history) >= n
		})
	}
	wg.Go(func() {
		for i := range 4 {
			after(12 * (i + 1))
			control(agents, opPause, "pause")
			control(agents, opResume, "resume")
		}
	})
	wg.Go(func() {
		after(65)
		control(agents+1, opStop, "stop")
		control(agents+1, opResume, "resume")
	})
	wg.Wait()
	model := porcupine.Model{
		Init: func() any { return gateState{} },
		Step: func(state, in, out any) (bool, any) { return state.(gateState).step(in.(gateOp), out.(bool)) },
		DescribeOperation: func(in, out any) string {
			op := in.(gateOp)
			return fmt.Sprintf("%s %d: %v", [...]string{"propose", "approve", "dispatch", "pause", "resume", "stop"}[op.kind], op.call, out)
		},
	}
	ran := 0
	for _, op := range history {
		if in := op.Input.(gateOp); in.kind == opDispatch && op.Output.(bool) {
			ran++
		}
	}
	t.Logf("%d operations, %d dispatched", len(history), ran)
	got := porcupine.CheckOperationsTimeout(model, history, deadline)
	if got != porcupine.Ok || t.Failed() || ran == 0 {
		for _, op := range history {
			t.Logf("%d..%d client %d %s", op.Call, op.Return, op.ClientId, model.DescribeOperation(op.Input, op.Output))
		}
		t.Errorf("the history is %s, and %d calls ran", got, ran)
	}
	// A reservation that a stop has overtaken is refused and recorded as a call
	// that definitely did not start.
	if s := r.task("lin"); s.Counters.Executed-s.Counters.Failed != ran || s.State != "STOPPED" {
		t.Errorf("the journal says %+v, %d were dispatched", s, ran)
	}
	r.verify("lin")
}
