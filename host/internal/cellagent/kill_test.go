package cellagent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// escapees are workloads whose processes try to get away.
var escapees = map[string]string{
	"children":      `sleep 1000 & sleep 1000 & sleep 1000`,
	"setsid":        `setsid sleep 1000 & setsid sh -c 'sleep 1000 & wait' & wait`,
	"double fork":   `(setsid sh -c '(sleep 1000 &) ; (setsid sleep 1000 &)' &) ; sleep 1000`,
	"ignores TERM":  `trap '' TERM HUP INT; (trap '' TERM; while :; do sleep 1000; done) & while :; do sleep 1000; done`,
	"fork loop":     `trap '' TERM; while :; do (sleep 0.01 &); done`,
	"stopped":       `sleep 1000 & kill -STOP $!; kill -STOP $$`,
	"deep":          `n=0; f() { n=$((n+1)); if [ $n -lt 20 ]; then (f) & wait; else sleep 1000; fi; }; f`,
	"new group":     `set -m; sleep 1000 & sleep 1000 & wait`,
	"nohup":         `nohup sleep 1000 >/dev/null 2>&1 & disown 2>/dev/null; sleep 1000`,
	"setsid chain":  `cat > $DIR/loop <<'E'` + "\nsetsid sh $DIR/loop & exit\nE\nsh $DIR/loop; sleep 1000",
	"growing crowd": `f() { setsid sh -c 'sleep 0.2; sleep 1000' & setsid sleep 1000 & }; i=0; while [ $i -lt 100 ]; do f; i=$((i+1)); done; wait`,
}

func escapee(t *testing.T, a *agent, name string) *cellv1.Start {
	s := a.sh(name, escapees[name])
	s.Env = append(s.Env, "DIR="+openTempDir(t))
	return s
}

func TestKillLeavesNothing(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		for name := range escapees {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				a := startAgent(t, m)
				killEscapee(t, a, name, 0)
			})
		}
	})
}

func killEscapee(t *testing.T, a *agent, name string, grace time.Duration) {
	t.Helper()
	c := a.dial(t)
	start(t, c, escapee(t, a, name))
	eventually(t, "some processes", func() bool { return len(a.survivors()) >= 2 })
	began := time.Now()
	if err := c.Kill(long(t), name, grace, 1); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	if left := a.survivors(); len(left) > 0 {
		t.Errorf("alive after the kill: %v", left)
	}
	t.Logf("killed in %v", took)
	e := event(t, c, exited)
	if e.GetSignal() == 0 && grace == 0 {
		t.Errorf("exited %v", e)
	}
	if err := c.Kill(long(t), name, 0, 0); err != nil {
		t.Errorf("kill of a dead session: %v", err)
	}
	if err := c.AckExit(long(t), name); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(long(t), name, 0, 0); err != nil {
		t.Errorf("kill of a forgotten session: %v", err)
	}
	wantErr(t, c.Kill(long(t), "none", 0, 0), cell.ErrNotFound)
}

func TestKillThroughCgroups(t *testing.T) {
	needRoot(t, "making cgroups")
	t.Parallel()
	for kind, base := range map[string]string{"v2": cgroupV2(), "v1 freezer": "/sys/fs/cgroup/freezer"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(base, fmt.Sprintf("airlock-test-%d-%s", os.Getpid(), strings.ReplaceAll(kind, " ", "")))
			if base == "" || os.Mkdir(dir, 0o755) != nil {
				if os.Getenv("AIRLOCK_REQUIRE") != "" {
					t.Fatalf("no cgroup %s can be made", kind)
				}
				t.Skipf("no cgroup %s can be made", kind)
			}
			t.Cleanup(func() {
				if err := os.Remove(dir); err != nil {
					t.Errorf("groups are left: %v", err)
				}
			})
			t.Run("kill", func(t *testing.T) {
				for name := range escapees {
					a := startAgent(t, plain, "--cgroup", dir)
					killEscapee(t, a, name, 0)
				}
			})
			t.Run("only its own", func(t *testing.T) { onlyItsOwn(t, startAgent(t, plain, "--cgroup", dir)) })
		})
	}
}

func cgroupV2() string {
	for _, d := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if exists(filepath.Join(d, "cgroup.controllers")) {
			return d
		}
	}
	return ""
}

func TestKillTakesOnlyItsOwnSession(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) { onlyItsOwn(t, startAgent(t, m)) })
}

// onlyItsOwn runs two sessions that both detach processes, and kills one.
func onlyItsOwn(t *testing.T, a *agent) {
	t.Helper()
	c := a.dial(t)
	dir := openTempDir(t)
	for _, id := range []string{"one", "two"} {
		start(t, c, a.sh(id, fmt.Sprintf(`(setsid sh -c 'sleep 1000 & echo $! > %[1]s/%[2]s.tmp; mv %[1]s/%[2]s.tmp %[1]s/%[2]s; wait' &); sleep 1000 & wait`, dir, id)))
		eventually(t, "the detached process of "+id, func() bool { return exists(filepath.Join(dir, id)) })
	}
	// Each has two shells and two sleepers, once the shells have done forking.
	const each = 4
	eventually(t, "both sessions have all of their processes", func() bool { return len(a.survivors()) == 2*each })
	if err := c.Kill(long(t), "one", 0, 1); err != nil {
		t.Fatal(err)
	}
	after := a.survivors()
	if len(after) != each {
		t.Errorf("%d of %d processes are alive after one of two equal sessions was killed", len(after), 2*each)
	}
	if e := event(t, c, exited); e.GetSessionId() != "one" {
		t.Errorf("exited %v", e)
	}
	if err := c.Kill(long(t), "", 0, 0); err != nil {
		t.Fatal(err)
	}
	if left := a.survivors(); len(left) > 0 {
		t.Errorf("alive after the kill of all: %v", left)
	}
}

func TestKillWithGraceAsksFirst(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		start(t, c, a.sh("polite", `trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.05; done`))
		readUntil(t, c, "polite", 0, "ready")
		if err := c.Kill(long(t), "polite", 60*time.Second, 1); err != nil {
			t.Fatal(err)
		}
		if o := readAll(t, c, "polite"); string(o.stdout) != "ready\nbye\n" {
			t.Errorf("output %q", o.stdout)
		}
		if e := event(t, c, exited); e.GetCode() != 4 {
			t.Errorf("exited %v", e)
		}
		killEscapee(t, a, "ignores TERM", 100*time.Millisecond)
	})
}

func TestKillWithoutGraceEndsOneThatWaits(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.sh("s", `trap '' TERM; echo ready; while :; do sleep 0.1; done`))
	readUntil(t, c, "s", 0, "ready")
	patient := make(chan error, 1)
	go func() { patient <- c.Kill(long(t), "s", 80*time.Second, 1) }()
	if err := c.Kill(long(t), "s", 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := <-patient; err != nil {
		t.Fatal(err)
	}
}

func TestAgentTakesItsSessionsWithIt(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		start(t, c, a.sh("s", `(setsid sleep 1000 &); sleep 1000`))
		eventually(t, "the processes", func() bool { return len(a.survivors()) == 3 })
		_ = c.Close()
		// stop (at the end of the test) sends SIGTERM and looks for survivors.
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.sh("s", `trap 'echo usr1' USR1; trap 'echo int; exit 9' INT; echo ready; while :; do sleep 0.05; done`))
	readUntil(t, c, "s", 0, "ready")
	if err := c.Signal(long(t), "s", 10, 1); err != nil {
		t.Fatal(err)
	}
	readUntil(t, c, "s", 0, "usr1")
	if err := c.Signal(long(t), "s", 2, 1); err != nil {
		t.Fatal(err)
	}
	if e := event(t, c, exited); e.GetCode() != 9 {
		t.Errorf("exited %v", e)
	}
	wantErr(t, c.Signal(long(t), "s", 2, 1), cell.ErrClosed)
	wantErr(t, c.Signal(long(t), "s", 99, 1), cell.ErrInvalid)
	wantErr(t, c.Signal(long(t), "none", 2, 1), cell.ErrNotFound)
	wantErr(t, c.Signal(long(t), "s", 2, 7), cell.ErrStale)
}

func TestKillOfStartsThatAreUnderWay(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		for round := range 10 {
			errs := make(chan error, 4)
			for i := range cap(errs) {
				go func() {
					_, err := c.Start(long(t), a.sh(fmt.Sprint(round, "-", i), "setsid sleep 1000 & sleep 1000"))
					errs <- err
				}()
			}
			kill := func() {
				if err := c.Kill(long(t), "", 0, 0); err != nil {
					t.Fatal(err)
				}
			}
			kill() // some of them, at whatever point they are
			for range cap(errs) {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			kill() // all of them
			if left := a.survivors(); len(left) > 0 {
				t.Fatalf("alive: %v", left)
			}
		}
	})
}
