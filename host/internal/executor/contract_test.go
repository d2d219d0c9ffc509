package executor_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

func TestRegistersFirstAndResyncsBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := w.orch.Follow(ctx)
	w.up()
	e := <-events
	if e.Event != "executor.resync" || string(e.Data) != `{"owned_mission_ids":[],"protocol_version":"1.0.0"}` {
		t.Fatalf("first frame: %s %s", e.Event, e.Data)
	}
	resp, err := http.Get(w.orch.URL() + "/api/v1/executors/" + executorID)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Name, Version string
		SpecVersion   string            `json:"spec_version"`
		Transport     map[string]string `json:"transport_endpoints"`
		Capabilities  []string
		Connected     bool
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "agentic-sandbox-test" || got.SpecVersion != "1.0.0" || !got.Connected || got.Transport["rest"] != w.rest.URL {
		t.Fatalf("registered as %+v", got)
	}
	for _, c := range []string{"isolation:host", "runtime:custom:command", "resumable", "hitl"} {
		if !slices.Contains(got.Capabilities, c) {
			t.Errorf("capability %s is missing in %v", c, got.Capabilities)
		}
	}
	s := w.status()
	if !s.Configured || !s.Connected || *s.ExecutorID != executorID || *s.Endpoint != w.orch.URL() || s.RegisterError != nil || s.LastConnectedAt == nil {
		t.Fatalf("status %+v", s)
	}
}

func TestFortyMissionsEndInTheRightState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	var wg sync.WaitGroup
	all := ids("m", 40)
	for i, id := range all {
		wg.Go(func() {
			w.dispatch(id)
			w.eng.start(id)
			w.eng.progress(id, "working")
			w.eng.end(id, i%3)
		})
	}
	wg.Wait()
	for i, id := range all {
		want := "done"
		if i%3 != 0 {
			want = "failed"
		}
		m := w.shows(id, want)
		if m.ExitCode == nil || *m.ExitCode != i%3 {
			t.Errorf("%s: exit code %v", id, m.ExitCode)
		}
		if got := w.words(id); !slices.Equal(got[:3], []string{"mission.assigned", "mission.started", "mission.progress"}) || len(got) != 4 {
			t.Errorf("%s: events %v", id, got)
		}
	}
	w.empty()
}

// The race of the contract's section 1.7: the whole mission is over before the
// orchestrator has recorded it.
func TestNoneOfTwoHundredConcurrentDispatchesIsStuck(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{Hooks: orchestrator.Hooks{
		BeforeAssign: func(string) { time.Sleep(time.Duration(rand.IntN(250)) * time.Millisecond) },
	}})
	w.eng.onAccept = func(id string) { // before the 202
		w.eng.start(id)
		w.eng.progress(id, "working")
		w.eng.end(id, 0)
	}
	w.up()
	var wg sync.WaitGroup
	all := ids("r", 200)
	for _, id := range all {
		wg.Go(func() { w.dispatch(id) })
	}
	wg.Wait()
	for _, id := range all {
		w.shows(id, "done")
		if got := w.words(id); len(got) != 4 {
			t.Errorf("%s: events %v", id, got)
		}
	}
	w.empty()
	if n := w.orch.Dropped(); n != 0 {
		t.Errorf("%d events came before their mission was recorded", n)
	}
}

func TestARepeatedDispatchStartsNothingAndRestatesTheTruth(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(w *world, id string)
		want string
	}{
		"running":   {func(w *world, id string) {}, "running"},
		"waiting":   {func(w *world, id string) { w.eng.ask(id, "h-"+id) }, "hitl-required"},
		"completed": {func(w *world, id string) { w.eng.end(id, 0) }, "done"},
		"failed":    {func(w *world, id string) { w.eng.end(id, 3) }, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The record is reset only a while after the answer was sent.
			w := newWorld(t, orchestrator.Options{Hooks: orchestrator.Hooks{
				BeforeAssign: func(string) { time.Sleep(150 * time.Millisecond) },
			}}).up()
			first := w.dispatch("dup")
			w.eng.start("dup")
			c.make(w, "dup")
			w.shows("dup", c.want)
			w.empty()
			again := w.dispatch("dup")
			if again["estimated_start"] != first["estimated_start"] || again["executor_id"] != executorID {
				t.Errorf("first %v, again %v", first, again)
			}
			w.shows("dup", c.want)
			w.eng.do("dup", func(m *fakeMission) {
				if m.starts != 1 {
					t.Errorf("it was started %d times", m.starts)
				}
			})
		})
	}
}

func TestFiftyIdenticalDispatchesAreOneMission(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{Hooks: orchestrator.Hooks{
		BeforeAssign: func(string) { time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond) },
	}})
	w.eng.onAccept = w.eng.start
	w.up()
	var wg sync.WaitGroup
	answers := make([]any, 50)
	for i := range answers {
		wg.Go(func() { answers[i] = w.dispatch("one")["estimated_start"] })
	}
	wg.Wait()
	for _, a := range answers {
		if a != answers[0] {
			t.Fatalf("answers differ: %v", answers)
		}
	}
	w.shows("one", "running")
	w.eng.do("one", func(m *fakeMission) {
		if m.starts != 1 {
			t.Errorf("it was started %d times", m.starts)
		}
	})
	w.eng.end("one", 0)
	w.shows("one", "done")
}

func TestAnotherPayloadUnderAKnownID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.dispatch("m")
	w.eng.start("m")
	w.shows("m", "running")
	other := []byte(`{"mission_id":"m","objective":"something else","completion":"x"}`)
	if status, answer := w.orch.Dispatch(context.Background(), other); status != 202 {
		t.Fatalf("live: %d %v", status, answer)
	}
	w.shows("m", "running")
	w.eng.end("m", 0)
	w.shows("m", "done")
	if status, answer := w.orch.Dispatch(context.Background(), other); status != 502 || !strings.Contains(answer["detail"].(string), "mission-conflict") {
		t.Fatalf("terminal: %d %v", status, answer)
	}
}

func TestIDsOfAnyKindGoThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.eng.onAccept = func(id string) { w.eng.start(id); w.eng.end(id, 0) }
	w.up()
	for _, id := range []string{
		"a", ".", "..", "a/../b", "/", "a//b", "%2F", "a b?c#d&e=f", "任务-42", "\u202eevil", "a\nb", strings.Repeat("𝔐", 300), "🦀/../../etc/passwd",
	} {
		w.dispatch(id)
		w.shows(id, "done")
	}
	if status, _ := w.orch.Dispatch(context.Background(), body(strings.Repeat("𝔐", 301))); status != 502 {
		t.Errorf("301 characters: %d", status)
	}
	if n := w.orch.Dropped(); n != 0 {
		t.Errorf("%d events were dropped", n)
	}
	w.empty()
}

// What mc-bridge sends, forwarded by a serve that validates nothing.
func TestNullsAndMissingMembersAreTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{Built: true}).up()
	for i, text := range []string{
		`{"mission_id":"m0","objective":"true","completion":null,"long_running":null,"executor_filter":{"executor_id":null,"capabilities":[],"agent_id":null},"metadata":{"mc_session_id":"mc-1"}}`,
		`{"mission_id":"m1","objective":"true"}`,
		`{"mission_id":"m2","objective":"true","executor_filter":null,"metadata":null,"unknown":{"a":[1,null]}}`,
	} {
		if status, answer := w.orch.Dispatch(context.Background(), []byte(text)); status != 202 {
			t.Fatalf("%d: %d %v", i, status, answer)
		}
	}
	w.eng.do("m0", func(m *fakeMission) {
		if m.SessionID != "mc-1" || m.AgentID != "" || m.Completion != "" {
			t.Errorf("m0: %+v", m.Dispatch)
		}
	})
	w.shows("m2", "assigned")
}

func TestTheSecondGenerationFallsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{Generation: 2}).up()
	if got := w.dispatch("m"); got["dispatch_path"] != "v1-fallback" {
		t.Fatalf("answer %v", got)
	}
	w.eng.start("m")
	w.eng.end("m", 0)
	w.shows("m", "done")
}

func TestLocalMissionsAreNeverMentioned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.eng.missions["local"] = &fakeMission{state: mission.StateRunning}
	w.eng.missions["local"].MissionID = "local"
	w.eng.missions["local"].Origin = mission.OriginLocal
	w.eng.order = []string{"local"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := w.orch.Follow(ctx)
	w.up()
	if e := <-events; strings.Contains(string(e.Data), "local") {
		t.Fatalf("resync %s", e.Data)
	}
	w.orch.Push(executorID, orchestrator.Event{Event: "mission.aborted", MissionID: "local", TS: "x", Data: json.RawMessage(`{}`)})
	w.orch.Push(executorID, orchestrator.Event{Event: "mission.paused", MissionID: "nobody's", TS: "x", Data: json.RawMessage(`{}`)})
	w.orch.Push(executorID, orchestrator.Event{Event: "mission.unheard_of", MissionID: "local", TS: "x"})
	w.eventually("three lines are logged", func() bool { return strings.Count(w.logs.String(), "is ignored") >= 3 })
	if got := w.eng.commands(); len(got) != 0 {
		t.Fatalf("obeyed %v", got)
	}
}
