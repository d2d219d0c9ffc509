package driver

import (
	"context"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Pause freezes a cell.
func (d *Driver) Pause(ctx context.Context, req *pluginv1.PauseRequest) (*pluginv1.PauseResponse, error) {
	return &pluginv1.PauseResponse{}, d.freeze(ctx, req.GetRef(), "stop")
}

// Resume thaws a cell.
func (d *Driver) Resume(ctx context.Context, req *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error) {
	return &pluginv1.ResumeResponse{}, d.freeze(ctx, req.GetRef(), "cont")
}

func (d *Driver) freeze(ctx context.Context, ref *pluginv1.CellRef, command string) error {
	in, err := d.configured()
	if err != nil {
		return err
	}
	release, err := d.cells.take(ctx, ref.GetCellId())
	if err != nil {
		return err
	}
	defer release()
	r, err := d.find(in, ref, true)
	if err != nil {
		return err
	}
	state, err := d.state(ctx, in, r)
	if err != nil {
		return err
	}
	if state == pluginv1.CellState_CELL_STATE_EXITED {
		return plugin.FailedPrecondition("cell %s has ended", r.CellID)
	}
	q, err := in.qmp(ctx, r.CellID)
	if err != nil {
		return plugin.Unavailable("%v", err)
	}
	defer q.Close()
	return q.Run(ctx, command, nil, nil)
}
