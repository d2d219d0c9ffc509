package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func inspect(t *testing.T, r *rig, ref string) error {
	t.Helper()
	client, err := r.Isolation(ref)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Inspect(context.Background(), &pluginv1.InspectRequest{Ref: &pluginv1.CellRef{CellId: "none"}})
	return err
}

func TestAHealthyPluginServes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.install("runtime", "airlock-runtime-run")
	r.install("revoker", "airlock-revoker-rev")
	r.configure("isolation.good.a", map[string]any{"labels": map[string]string{"engine": "1.2\x1b[0m"}})
	r.start("isolation.good.a", "runtime.run.b", "revoker.rev.c")

	s := r.await("isolation.good.a", "health", healthy)
	if s.Version != "0.1.0" || s.PID == 0 || len(s.SHA256) != 64 || s.Attributes["engine"] != `1.2\x1b[0m` || len(s.Schema) == 0 {
		t.Errorf("status: %+v", s)
	}
	if caps, err := r.Capabilities("isolation.good.a"); err != nil || len(caps) != 1 || caps[0] != "isolation:fake" {
		t.Errorf("capabilities: %v %v", caps, err)
	}
	if f := r.Features("isolation.good.a"); len(f) != 1 || f[0] != "pause" {
		t.Errorf("features: %v", f)
	}
	if err := inspect(t, r, "isolation.good.a"); status.Code(err) != codes.NotFound || !strings.HasPrefix(status.Convert(err).Message(), "isolation.good.a: no cell none") {
		t.Errorf("Inspect: %v", err)
	}
	runtime, err := r.Runtime("runtime.run.b")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := runtime.Plan(context.Background(), &pluginv1.PlanRequest{Mission: &pluginv1.MissionSpec{Objective: "true"}})
	if err != nil || plan.GetPlan().GetArgv()[2] != "true" {
		t.Errorf("Plan: %v %v", plan, err)
	}
	revoker, err := r.Revoker("revoker.rev.c")
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := revoker.Verify(context.Background(), &pluginv1.VerifyRequest{Grants: []string{"g"}}); err != nil || reply.GetResult() != pluginv1.VerifyResult_VERIFY_RESULT_REFUSED_BY_ISSUER {
		t.Errorf("Verify: %v %v", reply, err)
	}
	if _, err := r.Runtime("isolation.good.a"); err == nil {
		t.Error("an isolation instance served as a runtime")
	}
	if _, err := r.Isolation("isolation.nope.x"); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown ref: %v", err)
	}
}

func TestAPluginGetsNothingFromTheHostsEnvironment(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.start("isolation.good.a")
	pid := r.await("isolation.good.a", "health", healthy).PID
	data, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "environ"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00") {
		name, _, _ := strings.Cut(entry, "=")
		if name != "PATH" && name != "LANG" && !strings.HasPrefix(name, "PLUGIN_") && name != "AIRLOCK_PLUGIN" {
			t.Errorf("the plugin sees %s", entry)
		}
	}
	if in, err := os.Readlink(filepath.Join("/proc", itoa(pid), "fd/0")); err != nil || in != os.DevNull {
		t.Errorf("standard input is %s (%v)", in, err)
	}
	cmdline, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline"))
	if err != nil || string(cmdline) != "airlock-isolation-good\x00" {
		t.Errorf("it runs as %q (%v)", cmdline, err)
	}
	fds, err := os.ReadDir(filepath.Join("/proc", itoa(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join("/proc", itoa(pid), "fd", fd.Name())); err == nil && strings.HasPrefix(to, "/memfd:") {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
}

func TestAKilledPluginComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.install("driver", "airlock-isolation-other")
	r.configure("isolation.good.a", map[string]any{"labels": map[string]string{"which": "a"}})
	r.start("isolation.good.a", "isolation.other.b")
	before := r.await("isolation.good.a", "health", healthy)
	other := r.await("isolation.other.b", "health", healthy)

	_ = syscall.Kill(before.PID, syscall.SIGKILL)
	after := r.await("isolation.good.a", "recovery", func(s Status) bool { return s.State == Healthy && s.PID != before.PID })
	if after.Restarts != 1 || after.LastExit != "signal 9, killed" || after.Attributes["which"] != "a" {
		t.Errorf("after the crash: %+v", after)
	}
	if err := inspect(t, r, "isolation.good.a"); status.Code(err) != codes.NotFound {
		t.Errorf("a call after the crash: %v", err)
	}
	if s := r.status("isolation.other.b"); s.PID != other.PID || s.State != Healthy {
		t.Errorf("the other one was touched: %+v", s)
	}
}

func TestACallDuringARelaunchWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Deadlines.Wait = time.Minute })
	r.install("driver", "airlock-isolation-good")
	r.start("isolation.good.a")
	pid := r.await("isolation.good.a", "health", healthy).PID
	client, err := r.Isolation("isolation.good.a")
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	r.await("isolation.good.a", "end", func(s Status) bool { return s.PID != pid }) // before it, the call would go to the dying one
	_, err = client.Inspect(context.Background(), &pluginv1.InspectRequest{})
	if status.Code(err) != codes.NotFound {
		t.Errorf("Inspect while it came back: %v", err)
	}
}

func TestACallThatLosesItsPluginSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.configure("isolation.good.a", map[string]any{"faults": []string{"Inspect=exit"}})
	r.start("isolation.good.a")
	err := inspect(t, r, "isolation.good.a")
	want := "isolation.good.a: the plugin ended during Inspect (exit code 7)"
	if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestAPanicInAHandlerIsAnErrorAndAStackInTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.configure("isolation.good.a", map[string]any{"faults": []string{"Inspect=panic"}})
	r.start("isolation.good.a")
	pid := r.await("isolation.good.a", "health", healthy).PID
	if err := inspect(t, r, "isolation.good.a"); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "told to panic in Inspect") {
		t.Errorf("Inspect: %v", err)
	}
	if s := r.status("isolation.good.a"); s.PID != pid || s.Restarts != 0 {
		t.Errorf("the process did not live on: %+v", s)
	}
	eventually(t, "the stack is in the host's log", func() bool {
		for _, entry := range r.log.lines() {
			stack, _ := entry["stack"].(string)
			if entry["plugin"] == "isolation.good.a" && strings.Contains(stack, "fake.(*Driver).Inspect") {
				return true
			}
		}
		return false
	})
}

func TestACrashLoopEndsInQuarantineWithTheLastWords(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Deadlines.MaxRestarts = 3 })
	r.install("misfit", "airlock-isolation-crash-loop")
	r.start("isolation.crash-loop.x")
	s := r.await("isolation.crash-loop.x", "quarantine", func(s Status) bool { return s.State == Quarantined })
	want := r.dir + "/airlock-isolation-crash-loop ended (exit code 2), for the 4th time within "
	if s.Code != CrashLoop || !strings.HasPrefix(s.Reason, want) || !strings.Contains(s.Reason, `its last words: "panic: I cannot go on"`) {
		t.Errorf("%s: %s", s.Code, s.Reason)
	}
	if s.Restarts != 3 || s.RetryAt == nil {
		t.Errorf("status: %+v", s)
	}
	r.install("driver", "airlock-isolation-crash-loop")
	if err := r.Reload(context.Background(), "isolation.crash-loop.x"); err != nil {
		t.Fatal(err)
	}
	r.await("isolation.crash-loop.x", "recovery", healthy)
}

func TestAStoppedPluginIsUnavailableAndHarmsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) {
		o.Deadlines.Call, o.Deadlines.Hold = 500*time.Millisecond, 10*time.Millisecond
		o.Deadlines.Describe, o.Deadlines.Probe = 20*time.Second, 100*time.Millisecond
		o.Deadlines.Still, o.Deadlines.Deaf, o.Deadlines.Hang = time.Hour, time.Hour, time.Hour
	})
	r.install("driver", "airlock-isolation-good")
	r.install("driver", "airlock-isolation-other")
	r.start("isolation.good.a", "isolation.other.b")
	pid := r.await("isolation.good.a", "health", healthy).PID
	r.await("isolation.other.b", "health", healthy)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitStopped(t, pid)
	err := inspect(t, r, "isolation.good.a")
	if status.Code(err) != codes.DeadlineExceeded || !strings.HasPrefix(status.Convert(err).Message(), "isolation.good.a: ") {
		t.Errorf("a call of a stopped plugin: %v", err)
	}
	s := r.status("isolation.good.a")
	if s.State != Unavailable || !strings.HasPrefix(s.Reason, "it does not answer: Inspect passed its deadline of ") {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
	if _, err := r.Capabilities("isolation.good.a"); err == nil {
		t.Error("it still takes work")
	}
	if _, err := r.Capabilities("isolation.other.b"); err != nil {
		t.Errorf("the other one: %v", err)
	}
	client, err := r.Isolation("isolation.good.a")
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.List(context.Background(), &pluginv1.ListRequest{})
	if err == nil {
		_, err = list.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("List of a stopped plugin: %v", err)
	}
	_ = syscall.Kill(pid, syscall.SIGCONT)
	if s := r.await("isolation.good.a", "recovery", healthy); s.PID != pid {
		t.Error("it was restarted although it came back by itself")
	}
}

func TestAPluginWithoutASignOfLifeIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) {
		o.Deadlines.Describe, o.Deadlines.Probe, o.Deadlines.Hang = 5*time.Second, 50*time.Millisecond, 6*time.Second
		o.Deadlines.Still, o.Deadlines.Deaf = time.Hour, time.Hour
	})
	r.install("driver", "airlock-isolation-good")
	r.start("isolation.good.a")
	pid := r.await("isolation.good.a", "health", healthy).PID
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	s := r.await("isolation.good.a", "replacement", func(s Status) bool { return s.State == Healthy && s.PID != pid })
	if s.LastExit != "killed by the host: no sign of life for 6s" {
		t.Errorf("last exit: %s", s.LastExit)
	}
}

func TestHealthOfAPluginIsShown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		health string
		state  State
		reason string
		works  bool
	}{
		"healthy":     {"", Healthy, "", true},
		"degraded":    {"degraded:no limits\nhere", Degraded, `no limits\x0ahere`, true},
		"unavailable": {"unavailable:the engine is down", Unavailable, "the engine is down", false},
		"no reason":   {"unavailable", Unavailable, "the plugin gives no reason", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.install("driver", "airlock-isolation-good")
			r.configure("isolation.good.a", map[string]any{"health": c.health})
			r.start("isolation.good.a")
			if s := r.status("isolation.good.a"); s.State != c.state || s.Reason != c.reason {
				t.Errorf("%s: %q", s.State, s.Reason)
			}
			if _, err := r.Capabilities("isolation.good.a"); (err == nil) != c.works {
				t.Errorf("capabilities: %v", err)
			}
		})
	}
}

func TestCloseEndsEveryPlugin(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.configure("isolation.good.b", map[string]any{"faults": []string{"Shutdown=deaf"}})
	r.start("isolation.good.a", "isolation.good.b")
	a, b := r.await("isolation.good.a", "health", healthy).PID, r.await("isolation.good.b", "health", healthy).PID
	r.Close(context.Background())
	if !gone(a) || !gone(b) {
		t.Error("a plugin outlived Close")
	}
	if left, err := os.ReadDir(r.socketDir); err != nil || len(left) != 0 {
		t.Errorf("sockets are left: %v %v", left, err)
	}
	if _, err := r.Isolation("isolation.good.a"); err == nil {
		t.Error("a client after Close")
	}
}

func TestTwoInstancesOfADriverAreTwoProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("driver", "airlock-isolation-good")
	r.start("isolation.good.a", "isolation.good.b")
	a, b := r.await("isolation.good.a", "health", healthy), r.await("isolation.good.b", "health", healthy)
	if a.PID == b.PID || a.SHA256 != b.SHA256 {
		t.Errorf("%+v\n%+v", a, b)
	}
	_ = syscall.Kill(a.PID, syscall.SIGKILL)
	r.await("isolation.good.a", "recovery", func(s Status) bool { return s.State == Healthy && s.PID != a.PID })
	if s := r.status("isolation.good.b"); s.PID != b.PID {
		t.Error("the other instance was replaced")
	}
}

// awaitStopped waits until every thread of a process has stopped, which the
// signal's sender does not.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		stopped := 0
		for _, task := range tasks {
			if text, err := os.ReadFile(task); err == nil && strings.Contains(string(text), ") T ") {
				stopped++
			}
		}
		if stopped > 0 && stopped == len(tasks) {
			return
		}
	}
	t.Fatal("the process does not stop")
}
