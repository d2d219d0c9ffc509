package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/airlock-host/airlock/plugins/internal/proc"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Stop ends everything in a cell. It takes no lock once the cell is made: a
// Stop that waits for its grace must not delay one that has none.
func (d *Driver) Stop(ctx context.Context, req *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	r, err := d.find(in, req.GetRef(), false)
	if err != nil {
		return nil, err
	}
	if !r.Ready {
		// A Create may be at work on it.
		release, err := d.cells.take(ctx, r.CellID)
		if err != nil {
			return nil, err
		}
		defer release()
		if r, err = d.find(in, req.GetRef(), false); err != nil {
			return nil, err
		}
	}
	defer d.announce(r.key())()
	if grace := req.GetGrace().AsDuration(); grace > 0 {
		d.ask(ctx, in, r, grace)
	}
	proof, err := d.end(ctx, r)
	if err != nil {
		return nil, err
	}
	d.writeEnd(in, r.key(), 0, false)
	return &pluginv1.StopResponse{Proof: proof}, nil
}

// announce marks a cell as being stopped on purpose.
func (d *Driver) announce(k cellKey) (done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopping[k]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.stopping[k]--; d.stopping[k] == 0 {
			delete(d.stopping, k)
		}
	}
}

// ask lets the agent end its sessions, and the VM turn itself off. A cell that
// stands still cannot, and is not thawed for it.
func (d *Driver) ask(ctx context.Context, in *instance, r *record, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if state, err := d.state(ctx, in, r); err != nil || state != pluginv1.CellState_CELL_STATE_RUNNING {
		return
	}
	h, err := proc.Open(r.VM)
	if err != nil {
		return
	}
	defer h.Close()
	ctl, err := in.control(ctx, r.CellID)
	if err != nil {
		return
	}
	defer ctl.Close()
	if ctl.Stop(ctx) != nil {
		return
	}
	_ = h.Wait(ctx) // what does not go is killed
}

// end kills whatever runs of a cell and says how it knows that nothing does.
func (d *Driver) end(ctx context.Context, r *record) (*pluginv1.Proof, error) {
	if boot := bootID(); r.VM.PID != 0 && r.VM.BootID != boot {
		return d.proof(pluginv1.ProofMethod_PROOF_METHOD_VM_GONE, "the machine was started anew since the cell was made"), nil
	}
	method := pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN
	var seen []string
	for _, p := range []struct {
		id   proc.ID
		name string
	}{{r.VM, "QEMU"}, {r.Helper, "its helper"}} {
		if p.id.PID == 0 {
			continue
		}
		if err := kill(ctx, p.id); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		method = pluginv1.ProofMethod_PROOF_METHOD_VM_GONE
		seen = append(seen, fmt.Sprintf("%s, pid %d, is gone by its pidfd", p.name, p.id.PID))
	}
	if r.Marker != "" && (r.VM.PID == 0 || r.Helper.PID == 0) {
		n, err := killMarked(ctx, r.Marker)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			method = pluginv1.ProofMethod_PROOF_METHOD_VM_GONE
			seen = append(seen, fmt.Sprintf("%d processes that bear its mark are gone by their pidfds", n))
		}
	}
	if r.Groups.Tracks() {
		if err := r.Groups.Kill(ctx); err != nil {
			return nil, plugin.Unavailable("kill the cell: %v", err)
		}
		if method == pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN {
			method = pluginv1.ProofMethod_PROOF_METHOD_CGROUP_EMPTY
		}
		seen = append(seen, "its control group was killed and is empty")
	}
	if len(seen) == 0 {
		seen = append(seen, "no process of it was ever started, as far as its record says")
	}
	return d.proof(method, strings.Join(seen, "; ")), nil
}

// killMarked kills every process that was started with a marker.
func killMarked(ctx context.Context, marker string) (n int, err error) {
	pids, err := proc.WithEnv(markerEnv + "=" + marker)
	if err != nil {
		return 0, fmt.Errorf("look for processes of the cell: %w", err)
	}
	for _, pid := range pids {
		id, err := proc.Identify(pid)
		if err != nil {
			continue // it is gone
		}
		// The pid could be another process's by now, but for this look.
		again, err := proc.WithEnv(markerEnv + "=" + marker)
		if err != nil || !slices.Contains(again, pid) {
			continue
		}
		if err := kill(ctx, id); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (d *Driver) proof(m pluginv1.ProofMethod, detail string) *pluginv1.Proof {
	return &pluginv1.Proof{Method: m, Detail: detail, At: timestamppb.New(d.now())}
}

// kill kills a process and waits for its end.
func kill(ctx context.Context, id proc.ID) error {
	h, err := proc.Open(id)
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
		return fmt.Errorf("kill it: %w", err)
	}
	if err := h.Wait(ctx); err != nil {
		return fmt.Errorf("it was killed and does not go: %w", err)
	}
	return nil
}

// Destroy removes a cell and every trace of it.
func (d *Driver) Destroy(ctx context.Context, req *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	ref := req.GetRef()
	if err := checkID(ref.GetCellId()); err != nil {
		return nil, err
	}
	release, err := d.cells.take(ctx, ref.GetCellId())
	if err != nil {
		return nil, err
	}
	defer release()
	if req.GetForce() {
		if err := in.forgetPoints(ref.GetCellId()); err != nil {
			return nil, plugin.Unavailable("remove the checkpoints of cell %s: %v", ref.GetCellId(), err)
		}
	}
	r, err := d.find(in, ref, false)
	if isNotFound(err) {
		return &pluginv1.DestroyResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if !req.GetForce() {
		state, err := d.state(ctx, in, r)
		if err != nil {
			return nil, err
		}
		if state != pluginv1.CellState_CELL_STATE_EXITED {
			return nil, plugin.FailedPrecondition("cell %s runs; stop it first, or destroy it with force", r.CellID)
		}
	}
	defer d.announce(r.key())()
	if err := d.clean(ctx, in, r); err != nil {
		return nil, err
	}
	return &pluginv1.DestroyResponse{}, nil
}

// clean ends a cell and removes its groups, its socket and its record with everything beside it, in this
// order: what is left after a failure is found again by the record. The
// cell's lock is held.
func (d *Driver) clean(ctx context.Context, in *instance, r *record) error {
	if _, err := d.end(ctx, r); err != nil {
		return err
	}
	groups := r.Groups
	if groups == nil {
		groups = in.groups.Find(r.CellID)
	}
	if groups != nil {
		if err := groups.Remove(ctx); err != nil {
			return plugin.Unavailable("%v", err)
		}
	}
	if r.Link != "" {
		if err := os.Remove(r.Link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return plugin.Unavailable("remove the cell's socket: %v", err)
		}
	}
	d.records.Lock()
	defer d.records.Unlock()
	return in.forget(r.CellID)
}
