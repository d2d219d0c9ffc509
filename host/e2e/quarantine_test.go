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
		})
	}
}
