package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestAQuarantinedMissionIsSaidAndCanBeEnded: a record is changed, at the end of
// the journal (the start finds it) or below the signed head (found once the host
// is up). Status and metrics name the task; a stop kills its cell with a proof,
// tells the orchestrator, frees the slot and appends nothing, for good.
func TestAQuarantinedMissionIsSaidAndCanBeEnded(t *testing.T) {
	t.Parallel()
	for name, below := range map[string]int64{"at the end": 0, "below the signed head": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, settings{slots: 1})
			r.give(map[string]any{"mission_id": "m", "executor_filter": map[string]any{}, "completion": "x", "objective": "sleep 1000"})
			r.reaches("m", "running")
			r.end(syscall.SIGKILL)
			last := r.lastSequence()
			if below == 0 {
				r.oldHeads(1)
			}
			r.tamper(`UPDATE events SET payload = replace(payload, '"v":1', '"v":2') WHERE seq = ?`, last-below)
			r.start()
			said := func() (text string) {
				var ready struct{ Trouble []string }
				if code := r.call(http.MethodGet, "/readyz", nil, &ready); code != http.StatusOK {
					return ""
				}
				return strings.Join(ready.Trouble, "\n")
			}
			r.until("status says it", func() bool { return strings.Contains(said(), `task "m" is quarantined`) })
			if m := r.metrics(); !strings.Contains(m, "\nairlock_quarantined_tasks 1\n") {
				t.Error("no metric says it")
			}
			for _, action := range []string{"resume", "restart"} {
				if code, a := r.send("/tasks/m/control", map[string]any{"action": action}); code != http.StatusConflict {
					t.Errorf("%s: %d %v", action, code, a)
				}
			}
			code, receipt := r.send("/tasks/m/control?wait=30s", map[string]any{"action": "stop", "reason": "bad journal"})
			isolation, _ := receipt["isolation"].(map[string]any)
			if code != http.StatusOK || receipt["final"] != true || receipt["reason"] != "bad journal" || isolation["result"] != "cgroup_empty" && isolation["result"] != "subreaper_sweep" {
				t.Fatalf("stop: %d %v", code, receipt)
			}
			r.reaches("m", "failed")
			again := map[string]any{}
			if code := r.call(http.MethodGet, "/tasks/m/stops/latest", nil, &again); code != http.StatusOK || again["stop_id"] != receipt["stop_id"] {
				t.Errorf("the receipt read back: %d %v", code, again)
			}
			if code, same := r.send("/tasks/m/control", map[string]any{"action": "stop"}); code != http.StatusOK || same["stop_id"] != receipt["stop_id"] || same["reason"] != "bad journal" {
				t.Errorf("stopped again: %d %v", code, same)
			}
			r.give(map[string]any{"mission_id": "next", "executor_filter": map[string]any{}, "completion": "x", "objective": "true"})
			r.reaches("next", "done") // in the only slot
			r.end(syscall.SIGKILL)
			r.start()
			if got := r.shown("m"); got != "failed" || strings.Contains(said(), "quarantined") {
				t.Errorf("after a restart it is %s, trouble: %s", got, said())
			}
			if events := r.kinds("m"); int64(len(events)) != last {
				t.Errorf("something was appended to the journal: %v", events)
			}
			if code, same := r.send("/tasks/m/control", map[string]any{"action": "stop"}); code != http.StatusOK || same["stop_id"] != receipt["stop_id"] {
				t.Errorf("stopped again after a restart: %d %v", code, same)
			}
		})
	}
}

// TestAMissionWhoseStoredStateIsNotTrustedCanBeStopped: its row is gone, cannot
// be read, or says of its end what the journal does not. It is named, and a stop
// ends what is left of it with a proof, once.
func TestAMissionWhoseStoredStateIsNotTrustedCanBeStopped(t *testing.T) {
	t.Parallel()
	const asDone = `replace(replace(CAST(data AS TEXT), '"state":"running"', '"state":"done"'), '"phase":"live"', '"phase":"ended"')`
	for name, c := range map[string]struct {
		queries []string
		ended   bool // before the host is stopped
		after   string
	}{
		"mission lost":          {[]string{"DELETE FROM events", "DELETE FROM tasks"}, false, ""},
		"row unreadable":        {[]string{"UPDATE tasks SET data = x'ff00ff'"}, false, "failed"},
		"row counts as ended":   {[]string{"UPDATE tasks SET terminal = 1, state = 'done'"}, false, "failed"},
		"row says ended":        {[]string{"UPDATE tasks SET terminal = 1, state = 'done', data = CAST(" + asDone + " AS BLOB)"}, false, "failed"},
		"only the journal says": {[]string{`UPDATE tasks SET terminal = 0, state = 'running', data = CAST(replace(replace(CAST(data AS TEXT), '"state":"done"', '"state":"running"'), '"phase":"ended"', '"phase":"live"') AS BLOB)`}, true, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, settings{slots: 1})
			objective := writer
			if c.ended {
				objective = "true"
			}
			if code := r.call(http.MethodPost, "/api/v1/missions", map[string]any{"mission_id": "m", "objective": objective}, nil); code/100 != 2 {
				t.Fatalf("dispatch: %d", code)
			}
			if c.ended {
				r.until("it has ended", func() bool { return r.shown("m") == "done" })
			} else {
				r.until("it writes", func() bool { return r.size("main") > 0 && r.size("child") > 0 })
			}
			r.end(syscall.SIGKILL)
			for _, q := range c.queries {
				r.tamper(q)
			}
			r.start()
			r.until("status says it", func() bool {
				var ready struct{ Trouble []string }
				r.call(http.MethodGet, "/readyz", nil, &ready)
				return strings.Contains(strings.Join(ready.Trouble, "\n"), `task "m" is quarantined`)
			})
			code, receipt := r.send("/tasks/m/control?wait=30s", map[string]any{"action": "stop", "reason": "bad row"})
			isolation, _ := receipt["isolation"].(map[string]any)
			proven := isolation["result"] == "cgroup_empty" || isolation["result"] == "subreaper_sweep"
			if code != http.StatusOK || receipt["final"] != true || receipt["reason"] != "bad row" || !proven && !c.ended {
				t.Fatalf("stop: %d %v", code, receipt)
			}
			if !c.ended {
				r.until("nothing of it is left", func() bool { return len(cellPids(r.dir, false)) == 0 })
			}
			if code, same := r.send("/tasks/m/control", map[string]any{"action": "stop"}); code != http.StatusOK || same["stop_id"] != receipt["stop_id"] {
				t.Errorf("stopped again: %d %v", code, same)
			}
			if got := r.shown("m"); got != c.after && c.after != "" {
				t.Errorf("it is %q", got)
			}
			r.call(http.MethodPost, "/api/v1/missions", map[string]any{"mission_id": "next", "objective": "true"}, nil)
			r.until("another one runs", func() bool { return r.shown("next") == "done" })
		})
	}
}
