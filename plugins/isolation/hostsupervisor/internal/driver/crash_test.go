package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
	"github.com/airlock-host/airlock/plugins/internal/proc"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func (r *rig) inspect(id string) *pluginv1.CellStatus {
	r.t.Helper()
	got, err := r.client.Inspect(r.ctx(), &pluginv1.InspectRequest{Ref: &pluginv1.CellRef{CellId: id, Incarnation: 1}})
	if err != nil {
		r.t.Fatal(err)
	}
	return got.GetStatus()
}

// processes of a cell, by the cgroup or by the names of its directories.
func (r *rig) processes(word string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "stat"))
		dead := strings.Contains(string(stat), ") Z ") || len(stat) == 0
		if strings.Contains(string(b), word) && !dead {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// TestAKilledAgentTakesAllAlong is fault F3, on every level: no status says
// that a cell has ended while anything of it runs.
func TestAKilledAgentTakesAllAlong(t *testing.T) {
	asRoot(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		uid    uint32
		config map[string]any
		mode   pluginv1.NetworkMode
	}{
		"root":          {0, nil, pluginv1.NetworkMode_NETWORK_MODE_NONE},
		"root, plain":   {0, map[string]any{"namespaces": "none"}, pluginv1.NetworkMode_NETWORK_MODE_OPEN},
		"ordinary user": {nobody, nil, pluginv1.NetworkMode_NETWORK_MODE_NONE},
		"plain":         {nobody, map[string]any{"namespaces": "none"}, pluginv1.NetworkMode_NETWORK_MODE_OPEN},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tt.uid, tt.config)
			spec := r.spec("doomed")
			spec.Network.Mode = tt.mode
			c := r.create(spec)
			conn := r.link(c)
			mark := r.host
			r.begin(conn, c, "s", "(setsid sh -c 'sleep 1000; : "+mark+"' &); (sh -c 'trap \"\" TERM HUP; sleep 1000; : "+mark+"' &); sleep 1000; : "+mark)
			until(t, "three shells", func() bool { return len(r.processes(": "+mark)) >= 3 })
			h, err := proc.Open(handleOf(t, c.GetRef()).Process)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if err := h.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			var st *pluginv1.CellStatus
			until(t, "the cell to have ended", func() bool {
				st = r.inspect("doomed")
				return st.GetState() == pluginv1.CellState_CELL_STATE_EXITED
			})
			if left := r.processes(": " + mark); len(left) > 0 {
				t.Errorf("processes %v run after the cell was said to have ended", left)
			}
			if st.GetExitReason() != pluginv1.ExitReason_EXIT_REASON_KILLED || !strings.Contains(st.GetDetail(), "signal 9") {
				t.Errorf("status %v", st)
			}
			r.destroy("doomed")
		})
	}
}

// TestADriverThatDiesWhileItStartsCells kills it at many moments. Whatever it
// leaves is listed, starts nothing later, and goes with a destroy.
func TestADriverThatDiesWhileItStartsCells(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	for round := range 12 {
		var wg sync.WaitGroup
		var ids []string
		for i := range 4 {
			id := fmt.Sprintf("k%d-%d", round, i)
			ids = append(ids, id)
			spec := r.spec(id)
			wg.Go(func() {
				_, _ = r.client.Create(context.Background(), &pluginv1.CreateRequest{Spec: spec})
			})
		}
		time.Sleep(time.Duration(round) * 4 * time.Millisecond) // another moment each round
		r.kill()
		wg.Wait()
		r.start()
		listed := map[string]bool{}
		for _, id := range r.list(r.ctx()) {
			listed[id] = true
		}
		for _, id := range ids {
			if pids := r.processes(id); len(pids) > 0 && !listed[id] {
				t.Errorf("round %d: processes %v of cell %s run, and list does not show it", round, pids, id)
			}
		}
		// The host calls again with the same spec, or gives up.
		for i, id := range ids {
			if i%2 == 0 {
				r.destroy(id)
				continue
			}
			c := r.create(respec(r, id))
			if got := r.say(r.link(c), c, "s", "echo yes"); got != "yes\n" {
				t.Errorf("round %d: the cell that was made again says %q", round, got)
			}
			r.destroy(id)
		}
		if left := r.list(r.ctx()); len(left) > 0 {
			t.Fatalf("round %d: %v is left", round, left)
		}
	}
}

// respec is a spec of directories that exist.
func respec(r *rig, id string) *pluginv1.CellSpec {
	_ = os.RemoveAll(filepath.Join(r.dir, id+"-w"))
	_ = os.Remove(filepath.Join(r.dir, id, "link.sock"))
	_ = os.Remove(filepath.Join(r.dir, id))
	return r.spec(id)
}

// TestARecycledPidIsLeftAlone is fault F13: another program under the pid of a
// record, and a record from before a reboot.
func TestARecycledPidIsLeftAlone(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	bystander := exec.Command("sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	is, err := proc.Identify(bystander.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other, rebooted := is, is
	other.StartTicks--
	rebooted.BootID = "00000000-0000-0000-0000-000000000000"
	for id, who := range map[string]proc.ID{"recycled": other, "rebooted": rebooted} {
		rec := record{Ready: true, handle: handle{V: 1, CellID: id, Incarnation: 1, HostID: r.host, Level: levelRoot,
			Process: who, Link: filepath.Join(r.dir, id, "link.sock"), StartedAt: time.Now()}}
		b, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(r.state(), "cells", id)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "cell.json"), b, 0o600)); err != nil {
			t.Fatal(err)
		}
		ref, err := rec.ref()
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.client.Recover(r.ctx(), &pluginv1.RecoverRequest{Ref: ref})
		if err != nil || got.GetStatus().GetState() != pluginv1.CellState_CELL_STATE_EXITED {
			t.Errorf("%s: recover answers %v, %v", id, got, err)
		}
		if got.GetStatus().GetExitReason() != pluginv1.ExitReason_EXIT_REASON_LOST || got.GetStatus().GetDetail() == "" {
			t.Errorf("%s: status %v", id, got.GetStatus())
		}
		if _, err := r.client.Stop(r.ctx(), &pluginv1.StopRequest{Ref: ref, Grace: durationpb.New(time.Second)}); err != nil {
			t.Errorf("%s: stop: %v", id, err)
		}
		r.destroy(id)
	}
	if alive, err := proc.Alive(is); err != nil || !alive {
		t.Errorf("the bystander is gone (%v)", err)
	}
}

func TestAHandleCannotLeadOutOfACell(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	layout, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*handle){
		"the groups of something else": func(h *handle) { h.Groups = &cgroup.Group{V2: layout.V2 + "/system.slice"} },
		"a directory that is no group": func(h *handle) { h.Groups = &cgroup.Group{V2: "/home/odd"} },
		"a way up":                     func(h *handle) { h.Groups = &cgroup.Group{V2: layout.V2 + "/x/../../odd"} },
		"another file":                 func(h *handle) { h.Link = "/etc/passwd" },
		"another directory":            func(h *handle) { h.Public = "/etc" },
		"another cell":                 func(h *handle) { h.CellID = "even" },
		"another incarnation":          func(h *handle) { h.Incarnation = 2 },
		"a later version":              func(h *handle) { h.V = recordVersion + 1 },
	} {
		h := handle{V: 1, CellID: "odd", Incarnation: 1, HostID: r.host, Link: "/tmp/odd/link.sock"}
		change(&h)
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		ref := &pluginv1.CellRef{CellId: "odd", Incarnation: 1, DriverState: b}
		if _, err := r.client.Destroy(r.ctx(), &pluginv1.DestroyRequest{Ref: ref, Force: true}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: destroy answers %v", name, err)
		}
		if _, err := r.client.Recover(r.ctx(), &pluginv1.RecoverRequest{Ref: ref}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: recover answers %v", name, err)
		}
	}
}

// TestACellIsFoundByItsHandleAlone: the state directory was lost, the host's
// row was not.
func TestACellIsFoundByItsHandleAlone(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	c := r.create(r.spec("rowonly"))
	r.kill()
	if err := os.RemoveAll(filepath.Join(r.state(), "cells")); err != nil {
		t.Fatal(err)
	}
	r.start()
	got, err := r.client.Recover(r.ctx(), &pluginv1.RecoverRequest{Ref: c.GetRef()})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetStatus().GetState() != pluginv1.CellState_CELL_STATE_RUNNING || got.GetCell().GetFacts().GetWorkspace() != "/workspace" {
		t.Errorf("recover answers %v", got)
	}
	if ids := r.list(r.ctx()); len(ids) != 1 || ids[0] != "rowonly" {
		t.Errorf("list shows %v", ids)
	}
	r.destroy("rowonly")
}

// TestGroupsWithoutARecordAreListed: the record was lost, and the row too.
func TestGroupsWithoutARecordAreListed(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	c := r.create(r.spec("stray"))
	pid := handleOf(t, c.GetRef()).Process
	if err := os.RemoveAll(filepath.Join(r.state(), "cells", "stray")); err != nil {
		t.Fatal(err)
	}
	if ids := r.list(r.ctx()); len(ids) != 1 || ids[0] != "stray" {
		t.Fatalf("list shows %v", ids)
	}
	if st := r.inspect("stray"); st.GetState() != pluginv1.CellState_CELL_STATE_RUNNING {
		t.Errorf("inspect says %v", st)
	}
	r.destroy("stray")
	if alive, err := proc.Alive(pid); err != nil || alive {
		t.Errorf("the agent still runs (%v)", err)
	}
}

func TestAnExitWhileNobodyLooksIsKnownByTheKernel(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	c := r.create(r.spec("adopted"))
	if _, err := r.restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	h, err := proc.Open(handleOf(t, c.GetRef()).Process)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Signal(syscall.SIGTERM); err != nil { // the agent ends by itself
		t.Fatal(err)
	}
	var st *pluginv1.CellStatus
	until(t, "the cell to have ended", func() bool {
		st = r.inspect("adopted")
		return st.GetState() == pluginv1.CellState_CELL_STATE_EXITED
	})
	if _, known := h.ExitStatus(); known && (st.GetExitReason() != pluginv1.ExitReason_EXIT_REASON_EXITED || !strings.Contains(st.GetDetail(), "code 0")) {
		t.Errorf("status %v", st)
	}
	r.destroy("adopted")
}
