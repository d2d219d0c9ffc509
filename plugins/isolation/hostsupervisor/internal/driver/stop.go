package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		d.ask(ctx, r, grace)
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

// ask lets the agent end its sessions by itself. A cell that stands still
// cannot, and is not thawed for it.
func (d *Driver) ask(ctx context.Context, r *record, grace time.Duration) {
	if state, err := d.state(r); err != nil || state != pluginv1.CellState_CELL_STATE_RUNNING {
		return
	}
	h, err := proc.Open(r.Process)
	if err != nil {
		return
	}
	defer h.Close()
	if h.Signal(syscall.SIGTERM) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	_ = h.Wait(ctx) // what does not go is killed
}

// end kills whatever runs in a cell and says how it knows that nothing does.
func (d *Driver) end(ctx context.Context, r *record) (*pluginv1.Proof, error) {
	var seen []string
	method := pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	if r.Process.PID != 0 && r.Process.BootID != boot {
		return d.proof(pluginv1.ProofMethod_PROOF_METHOD_PID_NAMESPACE_GONE,
			"the machine was started anew since the cell was made"), nil
	}
	grouped := r.Groups.Tracks()
	if !grouped && r.Level == levelNone {
		// Before the agent dies: while it lives, orphans come back to it.
		if err := d.sweep(ctx, r); err != nil {
			return nil, err
		}
		method = pluginv1.ProofMethod_PROOF_METHOD_SUBREAPER_SWEEP
		seen = append(seen, "every process below the agent, and every one that carries the cell's mark, was killed")
	}
	if err := killInit(ctx, r); err != nil {
		return nil, err
	}
	if r.Process.PID != 0 {
		seen = append(seen, fmt.Sprintf("the agent, pid %d, is gone", r.Process.PID))
		if r.Level != levelNone {
			method = pluginv1.ProofMethod_PROOF_METHOD_PID_NAMESPACE_GONE
			seen = append(seen, "it was the init of "+r.PidNS)
		}
	}
	if grouped {
		if err := r.Groups.Kill(ctx); err != nil {
			return nil, plugin.Unavailable("kill the cell: %v", err)
		}
		method = pluginv1.ProofMethod_PROOF_METHOD_CGROUP_EMPTY
		seen = append(seen, "its control group was killed and is empty")
	}
	if method == pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN {
		// Never started: there was no process, and the stage of a start that was
		// interrupted gives up by itself before it runs the agent.
		seen = append(seen, "no process of it was ever started, as far as its record says")
	}
	return d.proof(method, strings.Join(seen, "; ")), nil
}

func (d *Driver) proof(m pluginv1.ProofMethod, detail string) *pluginv1.Proof {
	return &pluginv1.Proof{Method: m, Detail: detail, At: timestamppb.New(d.now())}
}

// killInit kills the cell's agent and waits for its end. As the init of a pid
// namespace it ends last.
func killInit(ctx context.Context, r *record) error {
	h, err := proc.Open(r.Process)
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
		return fmt.Errorf("kill the cell's agent: %w", err)
	}
	if !r.Groups.Tracks() || r.Groups.V2 != "" {
		return waitGone(ctx, h)
	}
	// A v1 freezer holds even the dying; Kill thaws after it has killed.
	if err := r.Groups.Kill(ctx); err != nil {
		return plugin.Unavailable("kill the cell: %v", err)
	}
	return waitGone(ctx, h)
}

func waitGone(ctx context.Context, h *proc.Handle) error {
	if err := h.Wait(ctx); err != nil {
		return fmt.Errorf("the cell's agent was killed and does not go: %w", err)
	}
	return nil
}

// sweep kills everything of a cell that is no more than plain processes. A
// process that escaped the agent and cleared its environment is not found.
func (d *Driver) sweep(ctx context.Context, r *record) error {
	h, err := proc.Open(r.Process)
	alive := err == nil
	if alive {
		defer h.Close()
		if err := h.Signal(syscall.SIGSTOP); err != nil && !errors.Is(err, proc.ErrGone) {
			return fmt.Errorf("stop the cell's agent: %w", err)
		}
	}
	for {
		var pids []int
		if alive && !h.Exited() {
			if pids, err = proc.Descendants(r.Process.PID); err != nil {
				return err
			}
		}
		var marked []int
		if r.Public != "" {
			if marked, err = proc.WithEnv(r.marker()); err != nil {
				return err
			}
		}
		left := 0
		for _, pid := range append(pids, marked...) {
			if pid == r.Process.PID {
				continue
			}
			left++
			if err := proc.Kill(pid); err != nil {
				return fmt.Errorf("kill the cell: %w", err)
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d processes of the cell are left: %w", left, ctx.Err())
		}
	}
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
	r, err := d.find(in, ref, false)
	if isNotFound(err) {
		return &pluginv1.DestroyResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if !req.GetForce() {
		state, err := d.state(r)
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

// clean ends a cell and removes its groups, its socket and its record, in this
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
	if r.Public != "" {
		// What the agent makes there; never a tree.
		for _, name := range []string{"ask.sock", "bin/airlock-cell", "bin", ""} {
			if err := os.Remove(filepath.Join(r.Public, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return plugin.Unavailable("remove the cell's public directory: %v", err)
			}
		}
	}
	d.records.Lock()
	defer d.records.Unlock()
	return in.forget(r.CellID)
}
