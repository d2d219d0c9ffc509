package kernel

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// sleeper is a process that the test reaps.
func sleeper(t *testing.T) (*exec.Cmd, Process) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestOnlyTheVeryProcessIsKilled(t *testing.T) {
	t.Parallel()
	_, p := sleeper(t)
	for name, other := range map[string]Process{
		"another start":  {PID: p.PID, Start: p.Start + 1, Boot: p.Boot},
		"another boot":   {PID: p.PID, Start: p.Start, Boot: "other"},
		"no process":     {},
		"nobody's group": {PID: -1, Start: p.Start, Boot: p.Boot},
	} {
		if other.Alive() {
			t.Errorf("%s: it is called alive", name)
		}
		if err := other.Kill(); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.Wait(short(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the process was hurt: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	// It is not reaped yet: dead all the same.
	if err := p.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Kill(); !errors.Is(err, ErrGone) {
		t.Errorf("a second kill: %v", err)
	}
}

// made makes a control group in every hierarchy that can track processes.
func made(t *testing.T, id string) Groups {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("AIRLOCK_REQUIRE") != "" {
			t.Fatal("this test needs root")
		}
		t.Skip("this test needs root")
	}
	mounts, err := hierarchies()
	if err != nil || len(mounts) == 0 {
		t.Fatalf("no control groups: %v, %v", mounts, err)
	}
	var out Groups
	for _, at := range mounts {
		dir := filepath.Join(at, "altest", id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir); _ = os.Remove(filepath.Dir(dir)) })
		out = append(out, dir)
	}
	return out
}

func (g Groups) join(t *testing.T, pid int) {
	t.Helper()
	for _, dir := range g {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAGroupIsFoundCountedAndKilledWhole(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdef-kernel-test"
	g := made(t, id)
	a, pa := sleeper(t)
	b, pb := sleeper(t)
	_, outside := sleeper(t)
	g.join(t, a.Process.Pid)
	g.join(t, b.Process.Pid)

	found, ok := Find(id)
	if !ok || len(found) != len(g) {
		t.Errorf("found %v of %v", found, g)
	}
	of, err := GroupsOf(a.Process.Pid, id)
	if err != nil || len(of) != len(g) || !of.Own(id) {
		t.Errorf("the process is in %v (%v), not %v", of, err, g)
	}
	if other, err := GroupsOf(a.Process.Pid, "another"); err != nil || len(other) != 0 {
		t.Errorf("groups of another container: %v, %v", other, err)
	}
	pids, err := g.Processes()
	if err != nil || len(pids) != 2 {
		t.Errorf("the processes are %v, %v", pids, err)
	}
	if err := g.Empty(short(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a full group is called empty: %v", err)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pa.Alive() || pb.Alive() || !outside.Alive() {
		t.Errorf("alive: %v, %v, outside %v", pa.Alive(), pb.Alive(), outside.Alive())
	}
	if err := g.Empty(t.Context()); err != nil {
		t.Error(err)
	}
}

// A frozen process dies without running before.
func TestWhatIsFrozenDies(t *testing.T) {
	t.Parallel()
	g := made(t, "fedcba9876543210-kernel-test")
	a, p := sleeper(t)
	g.join(t, a.Process.Pid)
	frozen := false
	for _, dir := range g {
		for file, word := range map[string]string{"freezer.state": "FROZEN", "cgroup.freeze": "1"} {
			if f := filepath.Join(dir, file); !frozen && exists(f) {
				frozen = os.WriteFile(f, []byte(word), 0) == nil
			}
		}
	}
	if !frozen {
		t.Fatal("nothing can freeze here")
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("it lives")
	}
}

func TestGroupsOfOthersAreNotOwn(t *testing.T) {
	t.Parallel()
	for _, g := range []Groups{{"/sys/fs/cgroup"}, {"relative/id"}, {"/a/id/.."}, {"/a/id", "/b"}} {
		if g.Own("id") {
			t.Errorf("%v", g)
		}
	}
	if !(Groups{"/a/docker/id", "/b/docker-id.scope"}).Own("id") || (Groups{"/a/id"}).Own("") {
		t.Error("own groups")
	}
}
