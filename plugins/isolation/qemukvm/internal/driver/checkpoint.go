package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/airlock-host/airlock/plugins/internal/proc"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/helper"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/qmp"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// maxPointID bounds what the host may call a checkpoint.
const maxPointID = 512

// Checkpoint writes a cell to disk and stops it.
func (d *Driver) Checkpoint(ctx context.Context, req *pluginv1.CheckpointRequest) (*pluginv1.CheckpointResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	id := req.GetCheckpointId()
	if id == "" || len(id) > maxPointID {
		return nil, plugin.InvalidArgument("checkpoint_id has %d bytes; 1 to %d are allowed", len(id), maxPointID)
	}
	release, err := d.cells.take(ctx, req.GetRef().GetCellId())
	if err != nil {
		return nil, err
	}
	defer release()
	if p, err := in.loadPoint(id); err == nil {
		if p.CellID != req.GetRef().GetCellId() {
			return nil, plugin.FailedPrecondition("checkpoint %q is one of cell %s", id, p.CellID)
		}
		return p.response(), nil
	} else if !isNotFound(err) {
		return nil, err
	}
	r, err := d.find(in, req.GetRef(), true)
	if err != nil {
		return nil, err
	}
	state, err := d.state(ctx, in, r)
	if err != nil {
		return nil, err
	}
	if p, err := in.readPoint(id, wholeFile); err == nil && p.CellID == r.CellID { // only its end was interrupted
		defer d.announce(r.key())()
		if err := d.endAs(ctx, in, r, p); err != nil {
			return nil, err
		}
		return p.response(), nil
	}
	if state == pluginv1.CellState_CELL_STATE_EXITED || !r.Ready {
		return nil, plugin.FailedPrecondition("cell %s does not run", r.CellID)
	}
	p := &point{
		V: 1, ID: id, CellID: r.CellID, Incarnation: r.Incarnation, Accel: r.Keys["accel"], User: r.User, Size: r.Size,
		Volumes: r.Volumes, Keys: r.Keys, dir: in.pointDir(id),
	}
	done := d.announce(r.key())
	defer done()
	if err := d.write(ctx, in, r, p, state == pluginv1.CellState_CELL_STATE_PAUSED); err != nil {
		if _, whole := in.readPoint(id, wholeFile); whole != nil { // else the same call again ends what this one has begun
			_ = os.RemoveAll(p.dir)
		}
		return nil, err
	}
	return p.response(), nil
}

func (p *point) response() *pluginv1.CheckpointResponse {
	return &pluginv1.CheckpointResponse{Checkpoint: &pluginv1.CellCheckpoint{CheckpointId: p.ID, Keys: p.Keys}}
}

// write makes the checkpoint. Up to the moment when the VM's state is on disk
// whole, a failure lets the cell go on.
func (d *Driver) write(ctx context.Context, in *instance, r *record, p *point, paused bool) (err error) {
	if err := p.begin(); err != nil {
		return plugin.Unavailable("checkpoint: %v", err)
	}
	q, err := in.qmp(ctx, r.CellID)
	if err != nil {
		return plugin.Unavailable("checkpoint: %v", err)
	}
	defer q.Close()
	if paused { // its init has to see to the files first
		if err := q.Run(ctx, "cont", nil, nil); err != nil {
			return plugin.Unavailable("checkpoint: %v", err)
		}
	}
	ctl, err := in.control(ctx, r.CellID)
	if err != nil {
		return plugin.Unavailable("checkpoint: %v", err)
	}
	defer ctl.Close()
	if err := ctl.Hold(ctx); err != nil {
		return plugin.Unavailable("checkpoint: %v", err)
	}
	if err := save(ctx, q, filepath.Join(p.dir, stateFile)); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		_ = q.Run(undo, "migrate_cancel", nil, nil)
		_ = q.Run(undo, "cont", nil, nil)
		err = errors.Join(err, ctl.Unhold(undo))
		return plugin.Unavailable("checkpoint: %v", err)
	}
	// From here on the VM is the file.
	if len(r.Volumes) > 0 {
		if err := d.saveFiles(ctx, in, r, p); err != nil {
			return plugin.Unavailable("checkpoint: %v", err)
		}
	}
	if err := p.whole(); err != nil {
		return plugin.Unavailable("checkpoint: %v", err)
	}
	return d.endAs(ctx, in, r, p)
}

// endAs ends the VM of a checkpoint that is whole.
func (d *Driver) endAs(ctx context.Context, in *instance, r *record, p *point) error {
	if _, err := d.end(ctx, r); err != nil {
		return err
	}
	d.writeEndAs(in, r.key(), "written to checkpoint "+p.ID)
	if err := p.finish(in); err != nil {
		return plugin.Unavailable("checkpoint: %v", err)
	}
	return nil
}

// look is the pause between two looks at a migration.
const look = 5 * time.Millisecond

// save stops a VM and writes its state to a file.
func save(ctx context.Context, q *qmp.Client, file string) error {
	if err := q.Run(ctx, "stop", nil, nil); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := q.PassFD(ctx, f, "checkpoint"); err != nil {
		return err
	}
	// Without it QEMU holds itself back, as for a network.
	if err := q.Run(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": int64(1) << 40}, nil); err != nil {
		return err
	}
	if err := q.Run(ctx, "migrate", map[string]string{"uri": "fd:checkpoint"}, nil); err != nil {
		return err
	}
	return migrated(ctx, q)
}

// migrated waits until a migration, in or out, is over.
func migrated(ctx context.Context, q *qmp.Client) error {
	for {
		var m struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := q.Run(ctx, "query-migrate", nil, &m); err != nil {
			return err
		}
		switch m.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("QEMU: the migration %s: %s", m.Status, m.Error)
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// saveFiles asks the helper to write down what the VM knows of its files.
func (d *Driver) saveFiles(ctx context.Context, in *instance, r *record, p *point) error {
	h, err := proc.Open(r.Helper)
	if err != nil {
		return fmt.Errorf("the helper: %w", err)
	}
	defer h.Close()
	if err := h.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("the helper: %w", err)
	}
	if err := h.Wait(ctx); err != nil {
		return fmt.Errorf("the helper does not end: %w", err)
	}
	return os.Rename(filepath.Join(in.runDir(r.CellID), helper.SavedFiles), filepath.Join(p.dir, helper.SavedFiles))
}

// Restore makes a cell from a checkpoint, at most once.
func (d *Driver) Restore(ctx context.Context, req *pluginv1.RestoreRequest) (*pluginv1.RestoreResponse, error) {
	in, err := d.ready()
	if err != nil {
		return nil, err
	}
	spec := req.GetSpec()
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	release, err := d.cells.take(ctx, spec.GetCellId())
	if err != nil {
		return nil, err
	}
	defer release()
	old, err := d.makeRoom(ctx, in, spec.GetCellId())
	if err != nil {
		return nil, err
	}
	if old != nil {
		if old.Incarnation < spec.GetIncarnation() {
			return nil, plugin.FailedPrecondition("cell %s exists with incarnation %d; destroy it first", old.CellID, old.Incarnation)
		}
		again, err := d.again(old, spec)
		return &pluginv1.RestoreResponse{Cell: again.GetCell()}, err
	}
	p, err := in.loadPoint(req.GetCheckpoint().GetCheckpointId())
	if err != nil {
		return nil, err
	}
	if spec.GetIncarnation() <= p.Incarnation {
		return nil, plugin.FailedPrecondition("incarnation %d is not higher than %d, which was saved", spec.GetIncarnation(), p.Incarnation)
	}
	r, err := d.make(ctx, in, spec, p)
	if err != nil {
		return nil, err
	}
	if err := p.remove(); err != nil {
		d.log.Warn("what is left of a restored checkpoint cannot be removed", "checkpoint", p.ID, "error", err)
	}
	cell, err := r.cell()
	return &pluginv1.RestoreResponse{Cell: cell}, err
}

// resume lets a restored VM run, after it was told that it is another one now.
func (v *start) resume(ctx context.Context, vm *child) error {
	ctx, cancel := context.WithTimeout(ctx, v.in.config.bootTime())
	defer cancel()
	q, err := v.in.qmp(ctx, v.r.CellID)
	if err != nil {
		return errors.Join(vm.exited(), err)
	}
	defer q.Close()
	if err := migratedIn(ctx, q, vm); err != nil {
		return err
	}
	ctl, err := v.in.control(ctx, v.r.CellID)
	if err != nil {
		return err
	}
	defer ctl.Close()
	reset, err := v.reset()
	if err != nil {
		return err
	}
	reset.Secret = v.spec.GetLinkSecret()
	v.from.used = true
	if err := q.Run(ctx, "cont", nil, nil); err != nil {
		return err
	}
	return ctl.Restored(ctx, &reset)
}

// migratedIn waits until QEMU has read the state.
func migratedIn(ctx context.Context, q *qmp.Client, vm *child) error {
	for {
		state, err := q.State(ctx)
		if err != nil {
			return errors.Join(vm.exited(), err)
		}
		switch state {
		case "inmigrate":
		case "paused", "prelaunch", "postmigrate":
			return nil
		default:
			return fmt.Errorf("the restored VM is %q", state)
		}
		select {
		case <-time.After(look):
		case <-vm.done:
			return vm.exited()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
