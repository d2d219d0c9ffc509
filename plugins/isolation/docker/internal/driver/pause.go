package driver

import (
	"context"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Pause freezes a cell.
func (d *Driver) Pause(ctx context.Context, req *pluginv1.PauseRequest) (*pluginv1.PauseResponse, error) {
	return &pluginv1.PauseResponse{}, d.freeze(ctx, req.GetRef(), true)
}

// Resume thaws a cell.
func (d *Driver) Resume(ctx context.Context, req *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error) {
	return &pluginv1.ResumeResponse{}, d.freeze(ctx, req.GetRef(), false)
}

// freeze brings a cell into the state that is asked for, if it is not in it.
func (d *Driver) freeze(ctx context.Context, ref *pluginv1.CellRef, frozen bool) error {
	in, err := d.configured()
	if err != nil {
		return err
	}
	b, err := in.find(ctx, ref, true)
	if err != nil {
		return err
	}
	if err := already(b, frozen); err != nil || b.state.Paused == frozen {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if frozen {
		_, err = in.engine.client().ContainerPause(call, b.id, client.ContainerPauseOptions{})
	} else {
		_, err = in.engine.client().ContainerUnpause(call, b.id, client.ContainerUnpauseOptions{})
	}
	if err == nil {
		return nil
	}
	if cerrdefs.IsConflict(err) || cerrdefs.IsInternal(err) {
		// Somebody else was faster, or it has ended.
		now, e := in.inspect(ctx, b.CellID)
		if e != nil {
			return e
		}
		if e := already(now, frozen); e != nil || now.state.Paused == frozen {
			return e
		}
	}
	return in.engine.fault("freeze or thaw cell "+b.CellID, err)
}

// already refuses a cell that has ended.
func already(b *box, frozen bool) error {
	if b.running() {
		return nil
	}
	if frozen {
		return plugin.FailedPrecondition("cell %s has ended; there is nothing to freeze", b.CellID)
	}
	return plugin.FailedPrecondition("cell %s has ended; there is nothing to thaw", b.CellID)
}
