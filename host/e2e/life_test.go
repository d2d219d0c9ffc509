package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestAMissionRunsToItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	tests := []struct {
		id, objective, state string
		code                 int
	}{
		{"ok", "echo hello", "done", 0},
		{"three", "exit 3", "failed", 3},
		{"missing", "/no/such/program", "failed", 127},
		{"high", "exit 255", "failed", 255},
		{"killed", "kill -9 $$", "failed", 137},
	}
	for _, tt := range tests {
		r.dispatch(tt.id, tt.objective)
	}
	for _, tt := range tests {
		m := r.reaches(tt.id, "done", "failed", "aborted")
		if m.State != tt.state || m.ExitCode == nil || *m.ExitCode != tt.code {
			t.Errorf("%s: state %s, exit code %v, error %q; want %s, %d", tt.id, m.State, m.ExitCode, m.Error, tt.state, tt.code)
		}
		if !inOrder(r.names(tt.id), []string{"mission.assigned", "mission.started", "mission.progress"}) {
			t.Errorf("%s: events %v", tt.id, r.names(tt.id))
		}
	}
	want := []string{"task_opened", "assigned", "starting", "proposed", "decision", "executed", "started", "progress", "completed", "ended"}
	if got := r.journal("ok"); !slices.Equal(got, want) {
		t.Errorf("journal of ok = %v, want %v", got, want)
	}
}

func TestFortyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{slots: 8})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			code, text := r.tryDispatch(map[string]any{"mission_id": fmt.Sprint("m", i), "objective": fmt.Sprintf("exit %d", i), "completion": "x"})
			if code != http.StatusAccepted {
				t.Errorf("dispatch %d: %d %s", i, code, text)
			}
		})
	}
	wg.Wait()
	for i := range 40 {
		m := r.reaches(fmt.Sprint("m", i), "done", "failed", "aborted")
		if m.ExitCode == nil || *m.ExitCode != i || (m.State == "done") != (i == 0) {
			t.Errorf("mission %d: state %s, exit code %v", i, m.State, m.ExitCode)
		}
	}
}

func TestIdsOfAnyKind(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	ids := []string{"a/../b", ".", "..", "x", "任务-αβγ", strings.Repeat("𝔘", 300), "a b%2Fc?d#e", "-"}
	for _, id := range ids {
		r.dispatch(id, "exit 4")
	}
	for _, id := range ids {
		if m := r.reaches(id, "failed"); *m.ExitCode != 4 {
			t.Errorf("%q: exit code %d", id, *m.ExitCode)
		}
		var view struct {
			ID    string `json:"mission_id"`
			State string `json:"state"`
		}
		if code := r.call("GET", "/api/v1/missions/"+escape(id), nil, &view); code != http.StatusOK || view.ID != id || view.State != "failed" {
			t.Errorf("GET of %q: %d %+v", id, code, view)
		}
	}
	if code, _ := r.tryDispatch(map[string]any{"mission_id": strings.Repeat("x", 301), "objective": "true", "completion": "x"}); code != http.StatusBadGateway {
		t.Errorf("301 characters: %d, want serve's 502", code)
	}
}

func TestADuplicateStartsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("once", "echo run >> $PWD/ran; sleep 1")
	r.reaches("once", "running")
	for range 3 {
		r.dispatch("once", "echo run >> $PWD/ran; sleep 1")
	}
	r.reaches("once", "done")
	r.dispatch("once", "echo run >> $PWD/ran; sleep 1") // known to have ended: the same answer, the true state again
	if m := r.reaches("once", "done"); *m.ExitCode != 0 {
		t.Errorf("exit code %d", *m.ExitCode)
	}
	if got := r.lines("ran"); len(got) != 1 {
		t.Errorf("it ran %d times", len(got))
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{slots: 1, agent: "queue = 1", orc: optionsWithAgentID()})
	tests := []struct {
		name   string
		filter map[string]any
		detail string
	}{
		{"unknown agent", map[string]any{"agent_id": "agent-99"}, "agent-99"},
	}
	for _, tt := range tests {
		code, text := r.tryDispatch(map[string]any{"mission_id": tt.name, "objective": "true", "completion": "x", "executor_filter": tt.filter})
		if code != http.StatusBadGateway || !strings.Contains(text, tt.detail) {
			t.Errorf("%s: %d %s", tt.name, code, text)
		}
	}
	// A dispatch that asks for a VM never lands elsewhere: serve has nobody for it.
	code, text := r.tryDispatch(map[string]any{"mission_id": "vm", "objective": "true", "completion": "x",
		"executor_filter": map[string]any{"capabilities": []string{"isolation:vm"}}})
	if code != http.StatusServiceUnavailable {
		t.Errorf("isolation:vm: %d %s", code, text)
	}
	// An id of the host's own missions is none of the orchestrator's.
	if code := r.call("POST", "/api/v1/missions", map[string]any{"mission_id": "own", "objective": "true"}, nil); code != http.StatusAccepted {
		t.Errorf("local dispatch: %d", code)
	}
	if code, text := r.tryDispatch(map[string]any{"mission_id": "own", "objective": "true", "completion": "x"}); code != http.StatusBadGateway || !strings.Contains(text, "in use") {
		t.Errorf("the id of a local mission: %d %s", code, text)
	}
	r.until("it is over", func() bool {
		var m missionView
		r.call("GET", "/api/v1/missions/own", nil, &m)
		return m.State == "done"
	})
	r.dispatch("first", "sleep 60")
	r.reaches("first", "running")
	r.dispatch("second", "true")
	if code, text := r.tryDispatch(map[string]any{"mission_id": "third", "objective": "true", "completion": "x"}); code != http.StatusBadGateway || !strings.Contains(text, "queue") {
		t.Errorf("full queue: %d %s", code, text)
	}
	if m := r.reaches("second", "assigned"); m.State != "assigned" {
		t.Errorf("second: %s", m.State)
	}
	if code := r.call("POST", "/api/v1/missions/first/abort", map[string]any{}, nil); code/100 != 2 {
		t.Errorf("abort: %d", code)
	}
	r.reaches("second", "done")
}

func TestWarmCells(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{agent: "warm = 2"})
	r.until("two cells wait", func() bool { return len(cellPids(r.dir, true)) == 2 })
	r.dispatch("m", "sleep 300")
	r.reaches("m", "running")
	r.until("the taken cell was replaced", func() bool { return len(cellPids(r.dir, true)) == 3 })
	// A planned stop leaves only the cell that holds work.
	r.end(syscall.SIGTERM)
	r.until("the waiting cells are gone", func() bool { return len(cellPids(r.dir, true)) == 1 })
	r.start()
	r.sees("m", "mission.suspended", "mission.reconnected", "mission.resumed")
}

func TestASecondHostRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	second := func() (string, error) {
		out, err := exec.Command(program, "serve", "--config", r.conf, "--cell-agent", filepath.Join(bin, "airlock-cell")).CombinedOutput()
		return string(out), err
	}
	if out, err := second(); err == nil || !strings.Contains(out, fmt.Sprint(r.cmd.Process.Pid)) {
		t.Errorf("a second host on the data directory: %v\n%s", err, out)
	}
	for _, lock := range []string{"data/lock", "run/host.lock"} { // somebody tidies up
		if err := os.Remove(filepath.Join(r.dir, lock)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := second(); err == nil || !strings.Contains(out, "another host") {
		t.Errorf("a second host once the lock files are deleted: %v\n%s", err, out)
	}
	r.dispatch("m", "true")
	r.reaches("m", "done")
}

func TestALatchedMissionWaitsForItsRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{agent: "governance {\n restore = \"latched\"\n }"})
	r.dispatch("m", writer)
	r.until("it writes", func() bool { return r.size("main") > 0 })
	r.end(syscall.SIGTERM)
	r.start()
	r.sees("m", "mission.suspended", "mission.reconnected", "mission.paused")
	r.until("it is still", r.still)
	if code := r.call("POST", "/api/v1/missions/m/resume", map[string]any{}, nil); code != http.StatusConflict {
		t.Errorf("resume of a latched mission: %d", code)
	}
	if code := r.call("POST", "/tasks/m/control", map[string]any{"action": "restart"}, nil); code != http.StatusOK {
		t.Errorf("restart: %d", code)
	}
	before := r.size("main")
	r.until("it writes again", func() bool { return r.size("main") > before })
}
