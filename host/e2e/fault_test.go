package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// agents finds the cell agents of this rig.
func agents(dir string) []int {
	var pids []int
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		cmd, err := os.ReadFile(p)
		if err != nil || !strings.Contains(string(cmd), dir+"/run/cells") {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(p, "/proc/%d/cmdline", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestALostCellFailsItsMission(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", "sleep 300")
	r.reaches("m", "running")
	kill(agents(r.dir), syscall.SIGKILL)
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
	kill(agents(r.dir), syscall.SIGKILL)
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
			return len(now) > 0 && now[0] != old[0]
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
