package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

func questionID(events []orchestrator.Event) string {
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Event == "mission.hitl_required" {
			var d struct {
				ID string `json:"hitl_id"`
			}
			_ = json.Unmarshal(events[i].Data, &d)
			return d.ID
		}
	}
	return ""
}

// killCells kills the cell agents of this rig; there must be some.
func (r *rig) killCells() {
	r.t.Helper()
	pids := cellPids(r.dir, true)
	if len(pids) == 0 {
		r.t.Fatal("no cell agent found")
	}
	kill(pids, syscall.SIGKILL)
}

// healthy says that every plugin takes work.
func (r *rig) healthy() bool {
	var ready struct {
		Ready   bool              `json:"ready"`
		Plugins map[string]string `json:"plugins"`
	}
	r.call("GET", "/readyz", nil, &ready)
	for _, why := range ready.Plugins {
		if why != "" {
			return false
		}
	}
	return ready.Ready && len(ready.Plugins) >= 2
}

func TestALostCellFailsItsMission(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", "sleep 300")
	r.reaches("m", "running")
	r.killCells()
	m := r.reaches("m", "failed")
	if !strings.Contains(m.Error, "cell") {
		t.Errorf("error %q does not tell what happened", m.Error)
	}
}

func TestACellThatIsLostWhileTheHostIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", "sleep 300")
	r.reaches("m", "running")
	r.end(syscall.SIGKILL)
	r.killCells()
	r.start()
	m := r.reaches("m", "failed")
	if !strings.Contains(m.Error, "cell") {
		t.Errorf("error %q does not tell what happened", m.Error)
	}
}

func TestPluginsMayBeKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{runtime: prompts})
	for i := range 3 {
		r.dispatch(fmt.Sprint("m", i), fmt.Sprintf(once, fmt.Sprint("m", i), i))
		r.reaches(fmt.Sprint("m", i), "running")
	}
	for _, name := range []string{"host-supervisor", "command"} {
		old := r.pluginPids(name)
		if len(old) == 0 {
			t.Fatalf("no process of the %s plugin found", name)
		}
		kill(old, syscall.SIGKILL)
		r.until(name+" is back", func() bool {
			now := r.pluginPids(name)
			return len(now) > 0 && now[0] != old[0] && r.healthy()
		})
	}
	r.dispatch("after", "exit 9") // and new missions can start
	if m := r.reaches("after", "failed"); m.ExitCode == nil || *m.ExitCode != 9 {
		t.Errorf("after the kill: state %s, error %q", m.State, m.Error)
	}
	write(t, r.work+"/go", "", 0o644)
	for i := range 3 {
		r.checkOnce(t, fmt.Sprint("m", i), i)
	}
}

func TestTheDriverDiesWhileItStartsMissions(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				kill(r.pluginPids("host-supervisor"), syscall.SIGKILL)
				r.until("the driver is back", func() bool { return len(r.pluginPids("host-supervisor")) > 0 })
			}
		}
	}()
	for i := range 6 {
		r.tryDispatch(map[string]any{"mission_id": fmt.Sprint("m", i), "objective": fmt.Sprintf("echo x >> $PWD/m%d.ran", i), "completion": "x"})
	}
	close(stop)
	<-done
	for i := range 6 {
		id := fmt.Sprint("m", i)
		if _, known := r.orc.Mission(id); !known {
			continue
		}
		m := r.reaches(id, "done", "failed", "aborted")
		if n := len(r.lines(id + ".ran")); n > 1 || (m.State == "done") != (n == 1) {
			t.Errorf("%s: state %s, error %q, ran %d times", id, m.State, m.Error, n)
		}
	}
}

// TestAStopDoesNotWaitForADriverThatHangs: the driver's process stands still and
// nobody lets it go on. The host replaces it, and the stop has its proof.
func TestAStopDoesNotWaitForADriverThatHangs(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", writer)
	r.reaches("m", "running")
	hung := r.pluginPids("host-supervisor")
	if len(hung) != 1 {
		t.Fatalf("processes of the driver: %v", hung)
	}
	signal(t, hung[0], syscall.SIGSTOP)
	if code, a := r.send("/tasks/m/control?wait=0", map[string]any{"action": "stop"}); code != http.StatusOK {
		t.Fatalf("stop: %d %v", code, a)
	}
	r.reaches("m", "aborted")
	receipt := map[string]any{}
	if code := r.call(http.MethodGet, "/tasks/m/stops/latest", nil, &receipt); code != http.StatusOK || receipt["final"] != true {
		t.Fatalf("the receipt: %d %v", code, receipt)
	}
	isolation, _ := receipt["isolation"].(map[string]any)
	if got := isolation["result"]; got != "cgroup_empty" && got != "pid_namespace_gone" && got != "subreaper_sweep" {
		t.Errorf("proof: %v", isolation)
	}
	var list struct {
		Plugins []struct {
			Ref  string `json:"ref"`
			Exit string `json:"last_exit"`
		}
	}
	r.call(http.MethodGet, "/api/v1/plugins", nil, &list)
	for _, p := range list.Plugins {
		if p.Ref == "isolation.host-supervisor.host" && !strings.Contains(p.Exit, "it stood still") {
			t.Errorf("the driver's last end: %q", p.Exit)
		}
	}
}
