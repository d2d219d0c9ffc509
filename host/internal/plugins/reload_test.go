package plugins

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestReloadTakesTheNewExecutable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.start("isolation.good.a")
	old := r.await("isolation.good.a", "health", healthy)

	// Calls all through the reload: none may fail.
	client, err := r.Isolation("isolation.good.a")
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	calls := make(chan error, 1)
	go func() {
		for !stop.Load() {
			if _, err := client.Inspect(context.Background(), &pluginv1.InspectRequest{}); status.Code(err) != codes.NotFound {
				calls <- err
				return
			}
			if _, err := r.Capabilities("isolation.good.a"); err != nil { // a dispatch would be refused
				calls <- err
				return
			}
		}
		calls <- nil
	}()
	r.install("misfit", "airlock-isolation-good")
	if err := r.Reload(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	stop.Store(true)
	if err := <-calls; err != nil {
		t.Errorf("a call failed during the reload: %v", err)
	}
	s := r.await("isolation.good.a", "health", healthy)
	if s.PID == old.PID || s.SHA256 == old.SHA256 || s.Restarts != 0 {
		t.Errorf("after the reload: %+v", s)
	}
	eventually(t, "the old process is gone", func() bool { return gone(old.PID) })
}

func TestAReloadThatFailsKeepsTheOldProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.install("driver", "airlock-isolation-good")
	r.start("isolation.good.a")
	old := r.await("isolation.good.a", "health", healthy)
	r.write("airlock-isolation-good", []byte("#!/bin/sh\nexit 9\n"), 0o755)
	err := r.Reload(context.Background(), "isolation.good.a")
	if err == nil || err.Error() != "isolation.good.a: "+path+" ended before its handshake (exit code 9)" {
		t.Errorf("Reload: %v", err)
	}
	if s := r.status("isolation.good.a"); s.PID != old.PID || s.State != Healthy || s.SHA256 != old.SHA256 {
		t.Errorf("after the failed reload: %+v", s)
	}
	if err := r.Reload(context.Background(), "nobody"); !errors.Is(err, ErrUnknown) {
		t.Errorf("reload of an unknown name: %v", err)
	}
}

func TestTheLockIsEnforcedAtReload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	sums, err := SumDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteLock(r.lock, sums); err != nil {
		t.Fatal(err)
	}
	r.start("isolation.good.a")
	pid := r.await("isolation.good.a", "health", healthy).PID
	r.install("misfit", "airlock-isolation-good")
	err = r.Reload(context.Background(), "isolation.good.a")
	var fault *Fault
	if !errors.As(err, &fault) || fault.Code != WrongChecksum {
		t.Errorf("Reload: %v", err)
	}
	if s := r.status("isolation.good.a"); s.PID != pid || s.State != Healthy {
		t.Errorf("status: %+v", s)
	}
}

func TestACrashedPluginComesBackAsItWasChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.install("driver", "airlock-isolation-good")
	r.configure("isolation.good.a", map[string]any{"faults": []string{"Inspect=exit"}})
	r.start("isolation.good.a")
	old := r.await("isolation.good.a", "health", healthy)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_ = inspect(t, r, "isolation.good.a")
	s := r.await("isolation.good.a", "recovery", func(s Status) bool { return s.State == Healthy && s.PID != old.PID })
	if s.SHA256 != old.SHA256 {
		t.Errorf("another build runs: %+v", s)
	}
}

// What is hashed is what runs, whatever is done to the file afterwards.
func TestAnExecutableSwappedAfterTheCheckDoesNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.install("driver", "airlock-isolation-good")
	want, err := SumFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found, fault := locate(r.dir, specs("isolation.good.a")[0])
	if fault != nil {
		t.Fatal(fault)
	}
	img, fault := r.images.acquire(found)
	if fault != nil {
		t.Fatal(fault)
	}
	defer r.images.release(img)
	// In place, which the hash alone would not notice any more.
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho swapped\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if img.sum != want {
		t.Errorf("sum %s, want %s", img.sum, want)
	}
	if _, err := img.file.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the copy can be written to")
	}
	r.prepare.Do(func() { r.prepareErr = r.prepareDirs() })
	p, fault := r.launch(context.Background(), specs("isolation.good.a")[0], img)
	if fault != nil {
		t.Fatal(fault)
	}
	p.discard()
}

// A file that somebody has open for writing cannot be executed by its path
// (ETXTBSY); the copy can.
func TestAnExecutableThatIsOpenForWritingStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.install("driver", "airlock-isolation-good")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.start("isolation.good.a")
	if s := r.status("isolation.good.a"); s.State != Healthy {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.start("isolation.good.a", "isolation.good.b", "isolation.good.c")
	a, b := r.await("isolation.good.a", "health", healthy), r.await("isolation.good.b", "health", healthy)
	c := r.await("isolation.good.c", "health", healthy)

	r.configure("isolation.good.a", map[string]any{"health": "degraded:as told"})
	r.configure("isolation.good.b", map[string]any{"fixed": "other"})
	r.configure("isolation.good.new", map[string]any{"faults": []string{"nonsense"}})
	errs := r.Apply(context.Background(), specs("isolation.good.new", "isolation.good.b", "isolation.good.a"))

	if s := r.await("isolation.good.a", "new health", func(s Status) bool { return s.State == Degraded }); s.PID != a.PID || s.Reason != "as told" {
		t.Errorf("a was not reconfigured live: %+v", s)
	}
	var restart *NeedsRestart
	if !errors.As(errs["isolation.good.b"], &restart) || restart.Attribute != "fixed" {
		t.Errorf("b: %v", errs["isolation.good.b"])
	}
	if s := r.status("isolation.good.b"); s.PID != b.PID || s.State != Healthy {
		t.Errorf("b did not stay as it was: %+v", s)
	}
	if !gone(c.PID) {
		t.Error("c was not ended")
	}
	if s := r.status("isolation.good.new"); s.Code != InvalidConfig || errs["isolation.good.new"] == nil {
		t.Errorf("new: %+v, %v", s, errs["isolation.good.new"])
	}
	if len(errs) != 2 || r.Status()[0].Ref != "isolation.good.new" || len(r.Status()) != 3 {
		t.Errorf("errors %v, status %+v", errs, r.Status())
	}

	r.configure("isolation.good.new", map[string]any{})
	r.configure("isolation.good.b", map[string]any{"faults": []string{"also nonsense"}})
	errs = r.Apply(context.Background(), specs("isolation.good.new", "isolation.good.b"))
	r.await("isolation.good.new", "recovery", healthy)
	if errs["isolation.good.b"] == nil || r.status("isolation.good.b").State != Healthy {
		t.Errorf("an invalid config replaced a good one: %v %+v", errs, r.status("isolation.good.b"))
	}
	if err := r.Reload(context.Background(), "isolation.good.b"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		// The spec is the old one, but its content comes from the rig and is
		// the new one here.
		t.Errorf("Reload with an invalid config: %v", err)
	}
}

func TestCheckChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.install("revoker", "airlock-revoker-rev")
	r.start("isolation.good.a")
	a := r.await("isolation.good.a", "health", healthy)
	r.configure("isolation.good.a", map[string]any{"faults": []string{"nonsense"}})
	r.configure("revoker.rev.x", map[string]any{"faults": []string{"Revoke=hang"}})
	diags := r.Check(context.Background(), specs("isolation.good.a", "revoker.rev.x", "runtime.absent.y"))
	if len(diags) != 2 || diags[0].Summary != "Unknown fault" || diags[0].Subject.Start.Line != 10 ||
		diags[1].Summary != "runtime.absent.y cannot be used" || diags[1].Subject.Start.Line != 12 {
		t.Errorf("diagnostics: %v", diags)
	}
	if s := r.status("isolation.good.a"); s.PID != a.PID || len(r.Status()) != 1 {
		t.Errorf("status: %+v", r.Status())
	}
}
