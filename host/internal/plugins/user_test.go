package plugins

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/config"
)

func TestOnlyDriversRunAsRootWhenUsersAreGiven(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		if os.Getenv("AIRLOCK_REQUIRE") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root to change the user of a process")
	}
	r := newRig(t, func(o *Options) {
		o.UID = func(config.Instance) (uint32, uint32, bool) { return 54321, 54321, true }
	})
	if err := os.Chmod(filepath.Dir(r.dir), 0o711); err != nil {
		t.Fatal(err)
	}
	r.install("driver", "airlock-isolation-good")
	r.install("runtime", "airlock-runtime-run")
	r.start("isolation.good.a", "runtime.run.b")
	driver := r.await("isolation.good.a", "health", healthy)
	runtime := r.await("runtime.run.b", "health", healthy)
	for pid, want := range map[int]string{driver.PID: "0\t0\t0\t0", runtime.PID: "54321\t54321\t54321\t54321"} {
		data, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
		if err != nil || !strings.Contains(string(data), "\nUid:\t"+want) || !strings.Contains(string(data), "\nGid:\t"+want) {
			t.Errorf("want uid and gid %s (%v) in\n%s", want, err, data)
		}
	}
	info, err := os.Stat(filepath.Join(r.options.StateDir, "runtime.run.b"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 54321 || info.Mode().Perm() != 0o700 {
		t.Errorf("state dir: %v %v", info, err)
	}
	// And it ends with the host all the same; see Close in the rig.
	_ = syscall.Kill(runtime.PID, syscall.SIGKILL)
	r.await("runtime.run.b", "recovery", func(s Status) bool { return s.State == Healthy && s.PID != runtime.PID })
}

func TestALockCanBeRequired(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) {
		o.RequireLock = func(i config.Instance) bool { return i.Kind == config.KindRuntime }
	})
	r.install("driver", "airlock-isolation-good")
	r.install("runtime", "airlock-runtime-run")
	r.start("isolation.good.a", "runtime.run.b")
	if s := r.status("isolation.good.a"); s.State != Healthy {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
	if s := r.status("runtime.run.b"); s.Code != NotLocked {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
}
