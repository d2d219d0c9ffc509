package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// untouched is the journal of a mission that nothing has happened to. (The
// orchestrator sees more: the host registers anew when what it can do changes,
// and says then that it still has its missions.)
var untouched = []string{"task_opened", "assigned", "starting", "proposed", "decision", "executed", "started", "progress", "completed", "ended"}

// holding starts a mission in each of the places that waits for release.
func (r *rig) holding(suffix string, in ...string) {
	r.t.Helper()
	for _, place := range in {
		id := place + suffix
		r.dispatchTo(place, id, fmt.Sprintf(`echo a >> $PWD/%[1]s.a; while [ ! -e $PWD/%[1]s.go ]; do sleep 0.1; done; echo b >> $PWD/%[1]s.b`, id))
	}
	for _, place := range in {
		r.until("it has begun", func() bool { return r.size(place+suffix+".a") > 0 })
		r.reaches(place+suffix, "running")
	}
}

// release lets a mission of holding go on to its end.
func (r *rig) release(id string) {
	r.t.Helper()
	write(r.t, filepath.Join(r.work, id+".go"), "", 0o644)
	r.checkOnce2(id)
}

func (r *rig) checkOnce2(id string) {
	r.t.Helper()
	if m := r.reaches(id, "done", "failed", "aborted"); m.State != "done" {
		r.t.Errorf("%s: state %s, error %q", id, m.State, m.Error)
	}
	if a, b := r.lines(id+".a"), r.lines(id+".b"); len(a) != 1 || len(b) != 1 {
		r.t.Errorf("%s: its side effects happened %d and %d times", id, len(a), len(b))
	}
}

// unharmed says that nothing has happened to a mission that has ended.
func (r *rig) unharmed(id string) {
	r.t.Helper()
	r.until("its end is in the journal", func() bool { return slices.Contains(r.journal(id), "ended") })
	if got := r.journal(id); !slices.Equal(got, untouched) {
		r.t.Errorf("%s: journal %v", id, got)
	}
}

// worksIn runs a short mission.
func (r *rig) worksIn(place, id string) {
	r.t.Helper()
	r.dispatchTo(place, id, "exit 9")
	if m := r.reaches(id, "done", "failed", "aborted"); m.ExitCode == nil || *m.ExitCode != 9 {
		r.t.Errorf("%s in %s: state %s, error %q", id, place, m.State, m.Error)
	}
}

// TestAKilledDriverHurtsNoMission: the plugins are disposable.
func TestAKilledDriverHurtsNoMission(t *testing.T) {
	r := driverRig(t, "", "")
	r.holding("", places...)
	for _, place := range places {
		old := r.pluginPids(place)
		if len(old) == 0 {
			t.Fatalf("no process of the plugin %s", place)
		}
		kill(old, syscall.SIGKILL)
		r.until(place+" is back", func() bool {
			now := r.pluginPids(place)
			return len(now) > 0 && !slices.Contains(old, now[0]) && r.allHealthy()
		})
	}
	for _, place := range places {
		r.release(place)
		r.unharmed(place)
		r.worksIn(place, "after-"+place)
	}
}

// TestAKilledEngineHurtsNoMission: with live-restore containers live on, and
// cells of other drivers never notice.
func TestAKilledEngineHurtsNoMission(t *testing.T) {
	r := driverRig(t, "", "")
	e := needs.engine
	up := true
	t.Cleanup(func() { // before leftovers
		if !up {
			if err := e.Up(); err != nil {
				t.Error(err)
			}
		}
	})
	r.holding("", "docker", "host-supervisor", "qemu-kvm")
	e.Kill()
	up = false
	r.until("health says so", func() bool { return r.unhealthy()["isolation.docker.container"] != "" })
	t.Logf("health: %v", r.unhealthy())
	r.worksIn("host-supervisor", "meanwhile")
	r.release("host-supervisor")
	r.unharmed("host-supervisor")
	// What needs the engine is refused, or accepted and told why it failed.
	code, text := r.tryDispatchTo("docker", "without", "true")
	t.Logf("dispatch without an engine: %d %s", code, text)
	if code == http.StatusAccepted {
		if m := r.reaches("without", "failed"); m.Error == "" {
			t.Error("it failed without a reason")
		}
	}
	if err := e.Up(); err != nil {
		t.Fatal(err)
	}
	up = true
	r.until("all is well again", r.allHealthy)
	for _, place := range []string{"docker", "qemu-kvm"} {
		r.release(place)
		r.unharmed(place)
	}
	r.worksIn("docker", "after")
}

// TestAKilledHostFindsTheCellsOfEveryDriver again, and their missions go on.
func TestAKilledHostFindsTheCellsOfEveryDriver(t *testing.T) {
	r := driverRig(t, "", "")
	r.holding("", places...)
	r.end(syscall.SIGKILL)
	write(t, filepath.Join(r.work, "docker.go"), "", 0o644) // it ends while the host is away
	r.until("it has ended", func() bool { return r.size("docker.b") > 0 })
	r.start()
	r.checkOnce2("docker")
	for _, place := range places {
		if place != "docker" {
			r.sees(place, "mission.reconnected", "mission.resumed")
			r.release(place)
		}
	}
}

// TestAKilledCellEndsItsMissionAlone: one QEMU, one container.
func TestAKilledCellEndsItsMissionAlone(t *testing.T) {
	r := driverRig(t, "", "")
	r.holding("-1", "qemu-kvm", "docker", "host-supervisor")
	first := r.vms()
	if len(first) != 1 {
		t.Fatalf("VMs %v", first)
	}
	r.holding("-2", "qemu-kvm")
	for _, pid := range first {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	m := r.reaches("qemu-kvm-1", "failed")
	if why := r.reason("qemu-kvm-1"); why != "cell_lost" || !strings.Contains(m.Error, "signal 9") {
		t.Errorf("reason %q, error %q", why, m.Error)
	}
	for _, id := range []string{"qemu-kvm-2", "docker-1", "host-supervisor-1"} {
		r.release(id)
		r.unharmed(id)
	}
}

// TestAHungDriverDelaysNobodyElse: while a driver's process stands still,
// missions of the others start, run and end; its own go on once the host has
// replaced it.
func TestAHungDriverDelaysNobodyElse(t *testing.T) {
	r := driverRig(t, "", "")
	for i, place := range []string{"docker", "qemu-kvm"} {
		id := fmt.Sprint("-", i)
		r.holding(id, place)
		hung := r.pluginPids(place)
		if len(hung) == 0 {
			t.Fatalf("no process of the plugin %s", place)
		}
		kill(hung, syscall.SIGSTOP)
		t.Cleanup(func() { kill(hung, syscall.SIGCONT) })
		r.dispatchTo(place, "asked"+id, "exit 7")
		for _, other := range places {
			if other != place {
				r.worksIn(other, "beside-"+other+id)
			}
		}
		// The mission in the driver's cell runs on, and is followed.
		write(t, filepath.Join(r.work, place+id+".go"), "", 0o644)
		r.until("the mission in the cell goes on", func() bool { return r.size(place+id+".b") > 0 })
		kill(hung, syscall.SIGCONT)
		r.checkOnce2(place + id)
		m := r.reaches("asked"+id, "done", "failed")
		if why := r.reason("asked" + id); m.ExitCode == nil && (why != "driver_unavailable" || m.Error == "") || m.ExitCode != nil && *m.ExitCode != 7 {
			t.Errorf("%s: the mission that waited for the driver: reason %q, error %q", place, why, m.Error)
		} else {
			t.Logf("%s: the mission that waited: %s %q %q", place, m.State, why, m.Error)
		}
		r.until("all is well again", r.allHealthy)
	}
}
