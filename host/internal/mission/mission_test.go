package mission_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
)

var at = time.Date(2026, 5, 9, 7, 13, 22, 123e6, time.UTC)

// world runs commands the way the engine does: decide, write down, apply.
type world struct {
	m      mission.Mission
	events []journal.Event
	head   journal.Head
	wire   []string
}

func newWorld() *world {
	w := &world{m: mission.Mission{ID: "m-1"}, head: journal.Genesis("m-1", "j-1")}
	w.do(mission.Open(mission.Opened{JournalUUID: "j-1", Origin: mission.OriginOrchestrator, Agent: "a", RuntimeName: "command", Objective: "true"}, at), nil)
	return w
}

func (w *world) do(facts []mission.Fact, err error) error {
	if err != nil {
		return err
	}
	for _, f := range facts {
		payload, err := json.Marshal(f)
		if err != nil {
			return err
		}
		var ev journal.Event
		ev, w.head = w.head.Next("e", at, f.Kind(), string(payload))
		w.events = append(w.events, ev)
		w.m.Apply(f, ev.Timestamp)
		if we, ok := mission.Wire(f, &w.m, at); ok {
			w.wire = append(w.wire, we.Event)
		}
	}
	return nil
}

func (w *world) must(t *testing.T, facts []mission.Fact, err error) {
	t.Helper()
	if err := w.do(facts, err); err != nil {
		t.Fatal(err)
	}
}

func started(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	facts, err := w.m.Start("c1", 1, "s1", "boot")
	w.must(t, facts, err)
	facts, err = w.m.SessionStarted(1)
	w.must(t, facts, err)
	return w
}

func TestLifeOnTheWire(t *testing.T) {
	t.Parallel()
	w := started(t)
	facts, err := w.m.Report(1, mission.Progress{Phase: "execution"})
	w.must(t, facts, err)
	code := 0
	facts, err = w.m.Finish(1, mission.Ended{State: mission.StateDone, ExitCode: &code})
	w.must(t, facts, err)
	want := []string{"mission.assigned", "mission.started", "mission.progress", "mission.completed"}
	if !slices.Equal(w.wire, want) {
		t.Errorf("wire = %v, want %v", w.wire, want)
	}
	if w.m.State != mission.StateDone || *w.m.ExitCode != 0 {
		t.Errorf("state = %s, exit %v", w.m.State, w.m.ExitCode)
	}
}

func TestNothingFollowsATerminalState(t *testing.T) {
	t.Parallel()
	w := started(t)
	facts, err := w.m.Finish(1, mission.Ended{State: mission.StateFailed, Reason: "signal"})
	w.must(t, facts, err)
	for name, cmd := range map[string]func() ([]mission.Fact, error){
		"finish":  func() ([]mission.Fact, error) { return w.m.Finish(1, mission.Ended{State: mission.StateDone}) },
		"pause":   func() ([]mission.Fact, error) { return w.m.Pause("op", "") },
		"resume":  func() ([]mission.Fact, error) { return w.m.Resume("op") },
		"stop":    func() ([]mission.Fact, error) { return w.m.StopNow(mission.Stop{}) },
		"suspend": func() ([]mission.Fact, error) { return w.m.Suspend("c", "") },
		"report":  func() ([]mission.Fact, error) { return w.m.Report(1, mission.Progress{}) },
		"ask":     func() ([]mission.Fact, error) { return w.m.Ask(1, mission.Question{HITLID: "h"}) },
	} {
		if _, err := cmd(); !errors.Is(err, mission.ErrIllegal) {
			t.Errorf("%s after the end: %v, want ErrIllegal", name, err)
		}
	}
}

func TestAStopOvertakesTheExit(t *testing.T) {
	t.Parallel()
	w := started(t)
	facts, err := w.m.StopNow(mission.Stop{ID: "s", By: "operator", Reason: "enough"})
	w.must(t, facts, err)
	if _, err := w.m.Finish(1, mission.Ended{State: mission.StateDone}); !errors.Is(err, mission.ErrIllegal) {
		t.Errorf("an exit after the latch: %v, want ErrIllegal", err)
	}
	if _, err := w.m.Resume("op"); !errors.Is(err, mission.ErrIllegal) {
		t.Errorf("resume after the latch: %v, want ErrIllegal", err)
	}
	facts, err = w.m.StopDone(json.RawMessage(`{}`))
	w.must(t, facts, err)
	if w.m.State != mission.StateAborted || w.m.AbortedBy != "operator" {
		t.Errorf("state %s by %q", w.m.State, w.m.AbortedBy)
	}
}

func TestReconnect(t *testing.T) {
	t.Parallel()
	run := func(w *world, facts []mission.Fact, err error) { w.must(t, facts, err) }
	suspend := func(w *world) { facts, err := w.m.Suspend("ck", "mgmt_server_shutdown"); run(w, facts, err) }
	ask := func(w *world) {
		facts, err := w.m.Ask(1, mission.Question{HITLID: "h1", Prompt: "?"})
		run(w, facts, err)
	}
	pause := func(w *world) { facts, err := w.m.Pause("op", "hold"); run(w, facts, err) }
	tests := map[string]struct {
		before func(w *world)
		want   []string
		state  mission.State
	}{
		"running, suspended": {suspend,
			[]string{"mission.reconnected", "mission.resumed"}, mission.StateRunning},
		"running, killed": {func(*world) {}, []string{"mission.reconnected", "mission.resumed"}, mission.StateRunning},
		"waiting for a human": {func(w *world) { ask(w); suspend(w) },
			[]string{"mission.reconnected", "mission.resumed", "mission.hitl_required"}, mission.StateHITL},
		"paused": {pause,
			[]string{"mission.reconnected", "mission.resumed", "mission.paused"}, mission.StatePaused},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := started(t)
			tt.before(w)
			w.wire = nil
			facts, err := w.m.Reconnect("ck2", 0, 3, false, at)
			w.must(t, facts, err)
			if !slices.Equal(w.wire, tt.want) || w.m.State != tt.state {
				t.Errorf("wire %v, state %s; want %v, %s", w.wire, w.m.State, tt.want, tt.state)
			}
		})
	}
}

func TestCrashLoopGuard(t *testing.T) {
	t.Parallel()
	w := started(t)
	for i := range 3 {
		facts, err := w.m.Reconnect("ck", 0, 3, false, at)
		w.must(t, facts, err)
		if w.m.Terminal() {
			t.Fatalf("ended after %d restarts", i+1)
		}
	}
	// Output since the last restart is progress: the count starts again.
	facts, err := w.m.Reconnect("ck", 10, 3, false, at)
	w.must(t, facts, err)
	if w.m.Resumes != 1 {
		t.Fatalf("resumes = %d after progress, want 1", w.m.Resumes)
	}
	// A planned restart does not count.
	facts, err = w.m.Suspend("ck", "x")
	w.must(t, facts, err)
	facts, err = w.m.Reconnect("ck", 10, 3, false, at)
	w.must(t, facts, err)
	if w.m.Resumes != 1 {
		t.Fatalf("resumes = %d after a planned restart, want 1", w.m.Resumes)
	}
	for range 3 {
		facts, err = w.m.Reconnect("ck", 10, 3, false, at)
		w.must(t, facts, err)
	}
	if w.m.State != mission.StateFailed || w.m.Reason != "restart_intensity_exceeded" {
		t.Errorf("state %s, reason %q", w.m.State, w.m.Reason)
	}
}

func TestALatchedMissionWaitsForItsRestart(t *testing.T) {
	t.Parallel()
	w := started(t)
	facts, err := w.m.Reconnect("ck", 0, 3, true, at)
	w.must(t, facts, err)
	if w.m.State != mission.StatePaused || w.wire[len(w.wire)-1] != "mission.paused" {
		t.Errorf("state %s, wire %v", w.m.State, w.wire)
	}
	if _, err := w.m.Resume("op"); !errors.Is(err, mission.ErrIllegal) {
		t.Errorf("resume of a latched mission: %v", err)
	}
	facts, err = w.m.Restart("op")
	w.must(t, facts, err)
	if w.m.State != mission.StateRunning || w.wire[len(w.wire)-1] != "mission.resumed" {
		t.Errorf("state %s, wire %v", w.m.State, w.wire)
	}
	if _, err := w.m.Restart("op"); !errors.Is(err, mission.ErrIllegal) {
		t.Errorf("restart of a running mission: %v", err)
	}
}

func TestAQuestionIsAskedOnce(t *testing.T) {
	t.Parallel()
	w := started(t)
	q := mission.Question{HITLID: "h", Prompt: "go on?"}
	facts, err := w.m.Ask(1, q)
	w.must(t, facts, err)
	facts, err = w.m.Close("h", "answered", "op")
	w.must(t, facts, err)
	if w.m.State != mission.StateRunning || w.wire[len(w.wire)-1] != "mission.resumed" {
		t.Errorf("state %s, wire %v", w.m.State, w.wire)
	}
	if facts, err := w.m.Ask(1, q); err != nil || len(facts) != 0 {
		t.Errorf("a replayed question gave %v, %v", facts, err)
	}
	if _, err := w.m.Close("h", "answered", "op"); !errors.Is(err, mission.ErrIllegal) {
		t.Errorf("second answer: %v", err)
	}
}

// TestRandomHistories: whatever the order of commands, there is one terminal
// state, nothing follows it, and the journal rebuilds the same mission.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			gen := w.m.Generation
			if rapid.IntRange(0, 5).Draw(t, "old") == 0 && gen > 0 {
				gen--
			}
			id := rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "hitl")
			before := w.m
			var err error
			switch rapid.IntRange(0, 11).Draw(t, "command") {
			case 0:
				err = w.do(w.m.Start("c", 1, "s", "b"))
			case 1:
				err = w.do(w.m.SessionStarted(gen))
			case 2:
				err = w.do(w.m.Report(gen, mission.Progress{Phase: "x"}))
			case 3:
				err = w.do(w.m.Ask(gen, mission.Question{HITLID: id, Prompt: "?"}))
			case 4:
				err = w.do(w.m.Close(id, "answered", "op"))
			case 5:
				err = w.do(w.m.Pause("op", "r"))
			case 6:
				err = w.do(w.m.Resume("op"))
			case 7:
				err = w.do(w.m.StopNow(mission.Stop{ID: "s", By: "operator"}))
			case 8:
				err = w.do(w.m.StopDone(json.RawMessage(`{}`)))
			case 9:
				err = w.do(w.m.Finish(gen, mission.Ended{State: mission.StateFailed, Reason: "signal"}))
			case 10:
				err = w.do(w.m.Suspend("ck", "r"))
			case 11:
				err = w.do(w.m.Reconnect("ck", 0, 3, false, at))
			}
			if before.Terminal() && (err == nil || len(w.events) == 0) {
				t.Fatal("a command was taken after the end")
			}
			if w.m.Epoch < before.Epoch {
				t.Fatal("the epoch went back")
			}
			if before.Latched() && !w.m.Latched() {
				t.Fatal("the stop latch was lifted")
			}
		}
		ends := 0
		for _, name := range w.wire {
			if name == "mission.completed" || name == "mission.failed" || name == "mission.aborted" {
				ends++
			}
		}
		if w.m.Terminal() != (ends == 1) || ends > 1 {
			t.Fatalf("%d terminal events, state %s", ends, w.m.State)
		}
		again := mission.Mission{ID: "m-1"}
		for _, ev := range w.events {
			f, err := mission.Decode(ev.Kind, ev.Payload)
			if err != nil {
				t.Fatal(err)
			}
			again.Apply(f, ev.Timestamp)
		}
		x, _ := json.Marshal(w.m)
		y, _ := json.Marshal(again)
		if string(x) != string(y) {
			t.Fatalf("the journal rebuilds\n%s\nnot\n%s", y, x)
		}
	})
}

func TestASilentSessionReportsProgressAtItsEnd(t *testing.T) {
	t.Parallel()
	w := started(t)
	facts, err := w.m.Finish(1, mission.Ended{State: mission.StateDone})
	w.must(t, facts, err)
	if want := []string{"mission.assigned", "mission.started", "mission.progress", "mission.completed"}; !slices.Equal(w.wire, want) {
		t.Errorf("wire = %v, want %v", w.wire, want)
	}
}
