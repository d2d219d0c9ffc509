package executor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

func TestAStuckMissionDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.opt.Timings.ReadBackWait = 30 * time.Second
	w.setIntercept(func(rw http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/api/v1/missions/stuck") {
			http.Error(rw, `{"error":"Mission not found"}`, 404)
			return true
		}
		if strings.HasPrefix(r.URL.Path, "/api/v1/missions/hung") {
			<-r.Context().Done()
			return true
		}
		return false
	})
	w.up()
	for _, id := range append(ids("stuck", 200), ids("hung", 5)...) {
		w.dispatch(id)
		w.eng.start(id)
	}
	for _, id := range ids("good", 20) {
		w.dispatch(id)
		w.eng.start(id)
		w.eng.end(id, 0)
		w.shows(id, "done")
	}
	if m, _ := w.orch.Mission("hung-0"); m.State != "assigned" || len(m.RecentEvents) != 0 {
		t.Errorf("a mission that was never read back was sent: %+v", m)
	}
}

func TestATerminalEventThatDoesNotTakeIsSentAgain(t *testing.T) {
	t.Parallel()
	var lost atomic.Int32
	w := newWorld(t, orchestrator.Options{Hooks: orchestrator.Hooks{
		Drop: func(e orchestrator.Event) bool { return e.Event == "mission.completed" && lost.Add(1) <= 3 },
	}}).up()
	w.dispatch("m")
	w.eng.start("m")
	w.eng.end("m", 0)
	w.shows("m", "done")
	w.empty()
	if n := lost.Load(); n != 4 {
		t.Errorf("it was sent %d times", n)
	}
}

// Killed after serve had everything and before that was noted: the replay must
// not let events follow the terminal one.
func TestAKilledHostDoesNotReplayWhatHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.out.setDeaf(true)
	w.dispatch("m")
	w.eng.start("m")
	w.eng.progress("m", "working")
	w.eng.end("m", 0)
	w.shows("m", "done")
	w.dispatch("live")
	w.eng.start("live")
	w.shows("live", "running")
	w.stop()
	w.out.setDeaf(false)
	w.up()
	w.empty()
	if got := w.words("m"); len(got) != 4 {
		t.Errorf("events of the ended mission: %v", got)
	}
	w.eng.end("live", 0)
	w.shows("live", "done")
}

// The gate opens at last, long after the events were sent into the void.
func TestAMissionThatIsRecordedVeryLateGetsItsEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{Hooks: orchestrator.Hooks{
		BeforeAssign: func(string) { time.Sleep(time.Second) },
	}})
	w.opt.Timings.GateWait = 100 * time.Millisecond
	w.up()
	w.eng.onAccept = func(id string) { w.eng.start(id); w.eng.end(id, 0) }
	w.dispatch("m")
	w.shows("m", "done")
	w.empty()
	if w.orch.Dropped() != 3 {
		t.Errorf("%d events were sent before the mission was known", w.orch.Dropped())
	}
}

func TestASlowReaderHoldsUpNobodyButItself(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	w := newWorld(t, orchestrator.Options{KeepEvents: 20000, Hooks: orchestrator.Hooks{
		BeforeEvent: func(e orchestrator.Event) {
			if e.Event == "mission.started" {
				<-gate
			}
		},
	}})
	// It reads nothing for as long as the progress takes to be made.
	w.opt.Timings.WriteWait, w.opt.Timings.PingEvery, w.opt.Timings.CheckEvery = time.Hour, time.Hour, time.Hour
	w.up()
	w.dispatch("m")
	w.eng.start("m")
	long := strings.Repeat("x", 2000)
	for i := range 5000 { // more than the sockets' buffers and the window
		w.eng.progress("m", fmt.Sprintf("%d %s", i, long))
	}
	close(gate)
	w.eng.end("m", 0)
	w.shows("m", "done")
	w.empty()
	n := 0
	for _, e := range w.orch.Events("m") {
		if e.Event == "mission.progress" {
			if !strings.Contains(string(e.Data), fmt.Sprintf(`"%d x`, n)) {
				t.Fatalf("progress %d is %.60s", n, e.Data)
			}
			n++
		}
	}
	if n != 5000 {
		t.Errorf("%d of 5000 came through", n)
	}
}

func TestCommandsOfTheOrchestratorAreObeyed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.dispatch("m")
	w.eng.start("m")
	w.shows("m", "running")
	steps := []struct {
		do   func()
		call string
		word string
	}{
		{func() { w.orch.Control("m", "pause") }, "pause m orchestrator operator_request", "mission.paused"},
		{func() { w.orch.Control("m", "resume") }, "resume m orchestrator operator_request", "mission.resumed"},
		{func() { w.eng.ask("m", "h-1"); w.shows("m", "hitl-required"); w.orch.Answer("m", "h-1", "yes") }, "answer h-1 orchestrator yes", "mission.resumed"},
		{func() { w.orch.Control("m", "abort") }, "abort m orchestrator operator operator_request", "mission.aborted"},
	}
	for i, s := range steps {
		s.do()
		w.eventually("obeyed: "+s.call, func() bool { got := w.eng.commands(); return len(got) == i+1 && got[i] == s.call })
		w.eventually("echoed: "+s.word, func() bool { got := w.words("m"); return got[len(got)-1] == s.word })
	}
	w.shows("m", "aborted")
	w.empty()
}

func TestAnswersAreReadFromEitherFieldAndNeverEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.dispatch("m")
	w.dispatch("other")
	w.eng.start("m")
	w.eng.ask("m", "h-1")
	w.shows("m", "hitl-required")
	push := func(mission, data string) {
		w.orch.Push(executorID, orchestrator.Event{Event: "mission.hitl_responded", MissionID: mission, TS: "x", Data: json.RawMessage(data)})
	}
	push("m", `{"hitl_id":"h-1","response":""}`)
	push("m", `{"hitl_id":"h-1","text":null}`)
	push("m", `{"hitl_id":"h-1"}`)
	push("m", `{"hitl_id":"h-9","response":"y"}`)
	push("other", `{"hitl_id":"h-1","response":"y"}`)
	w.eventually("five are ignored", func() bool { return strings.Count(w.logs.String(), "was not carried out") == 5 })
	if got := w.eng.commands(); len(got) != 0 {
		t.Fatalf("obeyed %v", got)
	}
	push("", `{"hitl_id":"h-1","text":"y"}`) // the seed's form
	w.eventually("the answer arrives", func() bool { return slices.Equal(w.eng.commands(), []string{"answer h-1 orchestrator y"}) })
	w.shows("m", "running")
}

// The command is lost, the wish is not.
func TestAnAbortWhileTheLinkIsDownIsCarriedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	for _, id := range []string{"m", "spared"} {
		w.dispatch(id)
		w.eng.start(id)
		w.shows(id, "running")
	}
	w.empty()
	w.orch.SetDown(true)
	w.eventually("the link is down", func() bool { return !w.status().Connected })
	w.orch.Control("m", "abort")
	w.orch.SetDown(false)
	w.eventually("it is carried out", func() bool {
		return slices.Equal(w.eng.commands(), []string{"abort m orchestrator operator operator_request"})
	})
	w.eventually("its event arrives", func() bool { got := w.words("m"); return got[len(got)-1] == "mission.aborted" })
	w.empty()
	if got := w.words("m"); slices.Contains(got, "mission.reconnected") {
		t.Errorf("it was shown as running again: %v", got)
	}
	w.shows("spared", "running")
}

// Serve moves its record before anybody was asked; when the engine refuses, the
// record is put right.
func TestARefusedCommandLeavesTheTruth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.dispatch("latched")
	w.eng.start("latched")
	if err := w.eng.Pause(context.Background(), "latched", "host", "restart_required"); err != nil {
		t.Fatal(err)
	}
	w.shows("latched", "paused")
	w.eng.set(func() { w.eng.fail["resume"] = engine.ErrConflict })
	w.orch.Control("latched", "resume")
	w.eventually("it is refused", func() bool { return strings.Contains(w.logs.String(), "was not carried out") })
	w.shows("latched", "paused")
}

func TestAnAbortDoesNotWaitForAPauseThatHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.dispatch("m")
	w.eng.start("m")
	w.shows("m", "running")
	block := make(chan struct{})
	w.eng.set(func() { w.eng.block, w.eng.fail["pause"] = block, engine.ErrConflict })
	w.orch.Control("m", "pause")
	w.orch.Control("m", "abort")
	w.eventually("the abort is carried out", func() bool {
		return slices.Equal(w.eng.commands(), []string{"abort m orchestrator operator operator_request"})
	})
	w.eventually("its event arrives", func() bool { return slices.Contains(w.words("m"), "mission.aborted") })
	close(block)
}

func TestTheSandboxLinkStandsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.opt.Sandbox = true
	var noExecutors, noSandboxes atomic.Bool
	noExecutors.Store(true)
	w.setIntercept(func(rw http.ResponseWriter, r *http.Request) bool {
		if (noExecutors.Load() && strings.Contains(r.URL.Path, "/executors/")) || (noSandboxes.Load() && strings.Contains(r.URL.Path, "/sandbox")) {
			http.NotFound(rw, r)
			return true
		}
		return false
	})
	w.boot()
	w.eventually("the sandbox is up while the executor is not", func() bool {
		s := w.status()
		return s.SandboxConnected && w.orch.SandboxConnected(executorID) && *s.SandboxID == executorID && s.RegisterError != nil && !s.Connected
	})
	noExecutors.Store(false)
	w.connected()
	w.dispatch("m")
	w.eng.start("m")
	w.eng.ask("m", "h-1")
	w.eventually("the question is shown", func() bool {
		q := w.orch.SandboxQuestions()
		return len(q) == 1 && q[0].HITLID == "h-1" && q[0].SessionID == "s-1" && q[0].AgentID == "agent-01"
	})
	noSandboxes.Store(true)
	before := *w.status().LastConnectedAt
	w.orch.CloseSockets(1011, "both")
	w.eventually("the executor is up while the sandbox is not", func() bool {
		s := w.status()
		return s.Connected && *s.LastConnectedAt != before && !s.SandboxConnected && s.SandboxError != nil
	})
}

func TestWithoutAnOrchestratorNothingHappens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.opt.Endpoint = ""
	w.boot()
	if status, got, _ := w.post("/dispatch", "application/json", "x", string(body("m"))); status != 503 || !strings.Contains(got["error"].(string), "no orchestrator is configured") {
		t.Errorf("%d %v", status, got)
	}
	if status, _, _ := w.post("/api/v1/aiwg/reconnect", "", "", ""); status != 503 {
		t.Errorf("reconnect: %d", status)
	}
	resp, err := http.Get(w.rest.URL + "/api/v1/aiwg/status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got["configured"] != false || got["connected"] != false {
		t.Errorf("status %v", got)
	}
	for _, name := range []string{"endpoint", "sandbox_id", "executor_id", "executor_register_error"} {
		if v, ok := got[name]; !ok || v != nil {
			t.Errorf("%s is %v", name, v)
		}
	}
}
