package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// vmCell is a cell with an open link.
type vmCell struct {
	r    *rig
	spec *pluginv1.CellSpec
	cell *pluginv1.Cell
	conn *cell.Conn
	n    int
}

func (r *rig) vm(id string, change func(*pluginv1.CellSpec)) *vmCell {
	r.t.Helper()
	s := r.spec(id)
	s.Uid, s.Gid = 71234, 71234
	if change != nil {
		change(s)
	}
	v := &vmCell{r: r, spec: s, cell: r.create(s)}
	v.dial()
	return v
}

func (v *vmCell) dial() {
	v.r.t.Helper()
	conn, err := cell.Dial(v.r.ctx(), v.cell.GetLink(), v.spec.GetLinkSecret())
	if err != nil {
		v.r.t.Fatal(err)
	}
	v.r.t.Cleanup(func() { _ = conn.Close() })
	v.conn = conn
	if err := conn.Bind(v.r.ctx(), "test", v.spec.GetIncarnation()); err != nil {
		v.r.t.Fatal(err)
	}
}

// begin starts a script.
func (v *vmCell) begin(script string) string {
	v.r.t.Helper()
	v.n++
	id := fmt.Sprintf("s%d-%d", v.spec.GetIncarnation(), v.n)
	_, err := v.conn.Start(v.r.ctx(), &cellv1.Start{
		SessionId: id, Generation: v.spec.GetIncarnation(), Argv: []string{"/bin/sh", "-c", script}, Cwd: "/workspace",
		Uid: 71234, Gid: 71234, OnFull: cellv1.OnFull_ON_FULL_DROP_OLDEST,
	})
	if err != nil {
		v.r.t.Fatal(err)
	}
	return id
}

// sh runs a script and gives its output.
func (v *vmCell) sh(script string) string {
	v.r.t.Helper()
	return v.output(v.begin(script))
}

func (v *vmCell) output(id string) string {
	v.r.t.Helper()
	r, err := v.conn.ReadOutput(v.r.ctx(), id, 0)
	if err != nil {
		v.r.t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) || err == nil && f.GetEnd() != nil {
			return strings.TrimSpace(b.String())
		}
		if err != nil {
			v.r.t.Fatal(err)
		}
		b.Write(f.GetData().GetData())
	}
}

func (v *vmCell) inspect() *pluginv1.CellStatus {
	v.r.t.Helper()
	r, err := v.r.client.Inspect(v.r.ctx(), &pluginv1.InspectRequest{Ref: v.cell.GetRef()})
	if err != nil {
		v.r.t.Fatal(err)
	}
	return r.GetStatus()
}

func (v *vmCell) file(name string) string {
	b, _ := os.ReadFile(filepath.Join(v.spec.GetVolumes()[0].GetHostPath(), name))
	return strings.TrimSpace(string(b))
}

func TestAKilledQEMUIsSeen(t *testing.T) {
	needVM(t)
	r := newRig(t, nil)
	v := r.vm("killed", nil)
	h := handleOf(t, v.cell.GetRef())
	if err := syscall.Kill(h.VM.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end to be seen", func() bool { return v.inspect().GetState() == pluginv1.CellState_CELL_STATE_EXITED })
	if st := v.inspect(); st.GetExitReason() != pluginv1.ExitReason_EXIT_REASON_KILLED || !strings.Contains(st.GetDetail(), "signal 9") {
		t.Errorf("inspect says %v", st)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/cmdline", h.Helper.PID)); err == nil {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", h.Helper.PID))
		if len(b) > 0 {
			t.Errorf("its helper is left: %q", b)
		}
	}
	r.destroy("killed")
}

func TestAHelperThatDiesIsReplaced(t *testing.T) {
	needVM(t)
	r := newRig(t, nil)
	v := r.vm("helper", nil)
	h := handleOf(t, v.cell.GetRef())
	if err := syscall.Kill(h.Helper.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the link to open again", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		conn, err := cell.Dial(ctx, v.cell.GetLink(), v.spec.GetLinkSecret())
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
	v.dial()
	if got := v.sh("cd / && cd /workspace && echo again > there && cat there"); got != "again" || v.file("there") != "again" {
		t.Errorf("the workspace of a cell with a new helper: %q, %q", got, v.file("there"))
	}
	r.destroy("helper")
}

// The memory of a process, its open file and its place in the workspace come
// back; the clock is right, and the random numbers are new.
func TestACheckpointKeepsWhatRuns(t *testing.T) {
	needVM(t)
	r := newRig(t, nil)
	v := r.vm("point", nil)
	v.begin("exec 3>>log; i=0; while :; do i=$((i+1)); echo $i >&3; echo $i > n; sleep 0.05; done")
	waitFor(t, "the counter to run", func() bool { n, _ := strconv.Atoi(v.file("n")); return n > 3 })
	ref := v.cell.GetRef()
	got, err := r.client.Checkpoint(r.ctx(), &pluginv1.CheckpointRequest{Ref: ref, CheckpointId: "p/../1"})
	if err != nil {
		t.Fatal(err)
	}
	before, _ := strconv.Atoi(v.file("n"))
	if st := v.inspect(); st.GetState() != pluginv1.CellState_CELL_STATE_EXITED {
		t.Fatalf("after a checkpoint inspect says %v", st)
	}
	r.restart(context.Background())
	if _, err := r.client.Destroy(r.ctx(), &pluginv1.DestroyRequest{Ref: ref}); err != nil {
		t.Fatal(err)
	}
	next := v.spec
	next.Incarnation, next.LinkSecret = 2, bytes.Repeat([]byte("n"), secretSize)
	wrong := r.spec("other")
	wrong.Uid, wrong.Gid, wrong.Incarnation = 71234, 71234, 2
	wrong.Resources = &pluginv1.Resources{MemoryBytes: 96 << 20}
	if _, err := r.client.Restore(r.ctx(), &pluginv1.RestoreRequest{Spec: wrong, Checkpoint: got.GetCheckpoint()}); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("a restore with other memory: %v", err)
	}
	begun := time.Now()
	restored, err := r.client.Restore(r.ctx(), &pluginv1.RestoreRequest{Spec: next, Checkpoint: got.GetCheckpoint()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("restored in %v", time.Since(begun))
	v.cell = restored.GetCell()
	waitFor(t, "the counter to go on", func() bool { n, _ := strconv.Atoi(v.file("n")); return n > before+3 })
	lines := strings.Fields(v.file("log"))
	for i, l := range lines {
		if l != strconv.Itoa(i+1) {
			t.Fatalf("line %d of the log is %q", i+1, l)
		}
	}
	if conn, err := cell.Dial(t.Context(), v.cell.GetLink(), []byte(strings.Repeat("s", secretSize))); err == nil {
		_ = conn.Close()
		t.Error("the link still opens to the secret of the saved cell")
	}
	v.dial()
	// One generation at a time: what was restored ends before another one begins.
	if err := v.conn.Kill(r.ctx(), "s1-1", 0, next.Incarnation); err != nil {
		t.Fatal(err)
	}
	said := strings.Fields(v.sh("date +%s; cat /etc/machine-id; head -c 16 /dev/urandom | md5sum"))
	if len(said) < 3 {
		t.Fatalf("the restored cell says %q", said)
	}
	if at, _ := strconv.ParseInt(said[0], 10, 64); time.Since(time.Unix(at, 0)).Abs() > time.Minute {
		t.Errorf("the clock of a restored cell says %v", time.Unix(at, 0))
	}
	if len(said[1]) != 32 {
		t.Errorf("its machine id is %q", said[1])
	}
	if entries, _ := os.ReadDir(filepath.Join(r.state(), "checkpoints")); len(entries) > 0 {
		t.Errorf("of the checkpoint is left %v", entries)
	}
	if _, err := r.client.Checkpoint(r.ctx(), &pluginv1.CheckpointRequest{Ref: v.cell.GetRef(), CheckpointId: "2"}); err != nil {
		t.Fatal(err)
	}
	r.destroy("point") // for good
	if entries, _ := os.ReadDir(filepath.Join(r.state(), "checkpoints")); len(entries) > 0 {
		t.Errorf("of the checkpoint of a cell that was destroyed is left %v", entries)
	}
}

// Two cells that begin with one template share neither numbers nor names.
func TestCellsOfOneTemplateDiffer(t *testing.T) {
	needVM(t)
	r := newRig(t, nil)
	a, b := r.vm("one", nil), r.vm("two", nil)
	const who = "cat /etc/machine-id /proc/sys/kernel/hostname; head -c 16 /dev/urandom | md5sum | cut -c1-32; cat /proc/sys/kernel/random/uuid"
	x, y := strings.Fields(a.sh(who)), strings.Fields(b.sh(who))
	if len(x) != 4 || len(y) != 4 {
		t.Fatalf("they say %q and %q", x, y)
	}
	for i := range x {
		if x[i] == y[i] {
			t.Errorf("both have %q", x[i])
		}
	}
	r.destroy("one")
	r.destroy("two")
}

func TestForkBombAndFullDiskStayInside(t *testing.T) {
	needVM(t)
	r := newRig(t, nil)
	v := r.vm("bomb", func(s *pluginv1.CellSpec) { s.Resources = &pluginv1.Resources{Pids: 64, DiskBytes: 16 << 20} })
	if got := v.sh("head -c 40000000 /dev/zero > /tmp/big 2>&1; head -c 40000000 /dev/zero > big 2>&1; du -k big | cut -f1; rm -f big /tmp/big; echo room > r; cat r"); !strings.HasSuffix(got, "room") {
		t.Errorf("after a full disk: %q", got)
	}
	bomb := v.begin("b() { b | b & }; b; sleep 1; b; wait")
	stop, err := r.client.Stats(r.ctx(), &pluginv1.StatsRequest{Ref: v.cell.GetRef(), Interval: durationpb.New(200 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stop.Recv(); err != nil || m.GetPids() > 100 {
		t.Errorf("at the host it is %d threads (%v)", m.GetPids(), err)
	}
	if err := v.conn.Kill(r.ctx(), bomb, 0, 0); err != nil {
		t.Errorf("kill a fork bomb: %v", err)
	}
	if got := v.sh("echo alive"); got != "alive" {
		t.Errorf("after a fork bomb: %q", got)
	}
	r.destroy("bomb")
}

// What the probe calls good is not believed when no VM boots with it.
func TestKVMThatBootsNothingIsGivenUp(t *testing.T) {
	needVM(t)
	if _, err := os.Stat("/dev/kvm"); err == nil {
		t.Log("/dev/kvm is there; whether it is given up is QEMU's to say")
	}
	t.Setenv(fakeEnv, "1")
	r := newRig(t, nil)
	v := r.vm("given-up", nil)
	if _, err := os.Stat("/dev/kvm"); err != nil {
		if f := strings.Join(v.cell.GetFacts().GetConfinement(), "; "); !strings.Contains(f, "TCG") {
			t.Errorf("the facts say %q", f)
		}
		if h := r.health(); h.GetAttributes()["accel"] != accelTCG || !strings.Contains(h.GetReason(), "no VM boots with it") {
			t.Errorf("health says %v", h)
		}
	}
	r.destroy("given-up")
}

func TestCyclesLeaveNothing(t *testing.T) {
	needVM(t)
	r := newRig(t, nil)
	for i := range 4 {
		id := fmt.Sprintf("cycle-%d", i)
		r.vm(id, nil)
		r.destroy(id)
	}
	if entries, err := os.ReadDir(filepath.Join(r.state(), "cells")); err != nil || len(entries) > 0 {
		t.Errorf("the state directory holds %v (%v)", entries, err)
	}
	if ids := r.list(r.ctx()); len(ids) > 0 {
		t.Errorf("list shows %v", ids)
	}
}
