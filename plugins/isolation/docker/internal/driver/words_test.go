package driver

import (
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"

	"github.com/airlock-host/airlock/plugins/isolation/docker/internal/kernel"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func infoOf(driver, files string) *system.Info {
	return &system.Info{Driver: driver, DriverStatus: [][2]string{{"Backing Filesystem", files}}}
}

func TestWhyACellEnded(t *testing.T) {
	t.Parallel()
	boot, err := kernel.BootID()
	if err != nil {
		t.Fatal(err)
	}
	const began, ended = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
	for name, tt := range map[string]struct {
		boot   string
		state  container.State
		reason pluginv1.ExitReason
		words  string
	}{
		"by itself":      {boot, container.State{ExitCode: 3, StartedAt: began, FinishedAt: ended}, pluginv1.ExitReason_EXIT_REASON_EXITED, "code 3 at 2026-01-02T03:04:06Z"},
		"killed":         {boot, container.State{ExitCode: 137, StartedAt: began}, pluginv1.ExitReason_EXIT_REASON_KILLED, "signal 9"},
		"memory":         {boot, container.State{ExitCode: 137, OOMKilled: true, StartedAt: began}, pluginv1.ExitReason_EXIT_REASON_OOM, "memory"},
		"not of memory":  {boot, container.State{ExitCode: 0, OOMKilled: true, StartedAt: began}, pluginv1.ExitReason_EXIT_REASON_EXITED, "code 0"},
		"another boot":   {"other", container.State{ExitCode: 137, StartedAt: began}, pluginv1.ExitReason_EXIT_REASON_LOST, "anew"},
		"never started":  {boot, container.State{StartedAt: "0001-01-01T00:00:00Z"}, pluginv1.ExitReason_EXIT_REASON_LOST, "never started"},
		"half removed":   {boot, container.State{Dead: true, StartedAt: began, Error: "busy"}, pluginv1.ExitReason_EXIT_REASON_LOST, "busy"},
		"a failed start": {boot, container.State{ExitCode: 127, Error: "exec", StartedAt: began}, pluginv1.ExitReason_EXIT_REASON_LOST, "exec"},
	} {
		b := &box{note: note{Boot: tt.boot}, state: tt.state}
		reason, detail := b.why()
		if reason != tt.reason || !strings.Contains(detail, tt.words) {
			t.Errorf("%s: %v, %q", name, reason, detail)
		}
	}
}

// A handle is believed only for its own cell, and never names groups of
// another container.
func TestHandlesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	good := handle{V: 1, CellID: "a", Incarnation: 1, Container: "c0ffee", Groups: kernel.Groups{"/sys/fs/cgroup/docker/c0ffee"}, LinkDir: "/l"}
	for name, tt := range map[string]struct {
		change func(*handle)
		ok     bool
	}{
		"its own":              {func(*handle) {}, true},
		"another cell":         {func(h *handle) { h.CellID = "b" }, false},
		"another incarnation":  {func(h *handle) { h.Incarnation = 2 }, false},
		"a later version":      {func(h *handle) { h.V = 2 }, false},
		"no version":           {func(h *handle) { h.V = 0 }, false},
		"groups of the engine": {func(h *handle) { h.Groups = kernel.Groups{"/sys/fs/cgroup"} }, false},
		"a way out":            {func(h *handle) { h.Groups = kernel.Groups{"/sys/fs/cgroup/c0ffee/../.."} }, false},
		"no container":         {func(h *handle) { h.Container = "" }, false},
		"a relative link":      {func(h *handle) { h.LinkDir = "l" }, false},
	} {
		h := good
		tt.change(&h)
		ref, err := h.ref()
		if err != nil {
			t.Fatal(err)
		}
		ref.CellId, ref.Incarnation = "a", 1
		if _, err := readHandle(ref); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnusableEnginesAreNamed(t *testing.T) {
	t.Parallel()
	for want, info := range map[string]*system.Info{
		"":         {OSType: "linux", SecurityOptions: []string{"name=seccomp,profile=default", "name=cgroupns"}},
		"windows":  {OSType: "windows"},
		"rootless": {OSType: "linux", SecurityOptions: []string{"name=seccomp,profile=default", "name=rootless"}},
	} {
		if got := unusable(info); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q", want, got)
		}
	}
	if !remapped(&system.Info{SecurityOptions: []string{"name=userns"}}) {
		t.Error("a remapping engine is not seen")
	}
}

func TestNamesOfTwoHostsDiffer(t *testing.T) {
	t.Parallel()
	if containerName("a", "x") == containerName("b", "x") || containerName("a", "x") == containerName("a", "y") {
		t.Error("two cells have one name")
	}
	in := &instance{hostID: "a"}
	labels, err := in.labels(&pluginv1.CellSpec{CellId: "x", Incarnation: 1, LinkDir: "/l"}, &pluginv1.CellFacts{}, "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.readNote(containerName("a", "x"), labels); err != nil {
		t.Error(err)
	}
	if _, err := in.readNote(containerName("a", "y"), labels); err == nil {
		t.Error("the label of another cell is believed")
	}
	if _, err := (&instance{hostID: "b"}).readNote(containerName("b", "x"), labels); err == nil {
		t.Error("the label of another host is believed")
	}
}
