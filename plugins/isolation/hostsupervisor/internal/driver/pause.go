package driver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/airlock-host/airlock/plugins/internal/proc"
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

func (d *Driver) freeze(ctx context.Context, ref *pluginv1.CellRef, on bool) error {
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
	state, err := d.state(r)
	if err != nil {
		return err
	}
	switch {
	case state == pluginv1.CellState_CELL_STATE_EXITED:
		return plugin.FailedPrecondition("cell %s has ended", r.CellID)
	case r.Groups.CanFreeze() && on:
		return r.Groups.Freeze(ctx)
	case r.Groups.CanFreeze():
		return r.Groups.Thaw(ctx)
	case on:
		return d.stopTree(ctx, r)
	}
	return d.continueTree(r)
}

// paused says whether a living cell stands still.
func (d *Driver) paused(r *record) (bool, error) {
	if r.Groups.CanFreeze() {
		return r.Groups.Frozen()
	}
	return r.Process.PID != 0 && proc.Stopped(r.Process.PID), nil
}

// stopTree stops a cell without a freezer by SIGSTOP, the agent first: what it
// has started then gets no new brothers. It walks until nothing moves.
func (d *Driver) stopTree(ctx context.Context, r *record) error {
	for {
		pids, err := proc.Descendants(r.Process.PID)
		if err != nil {
			return err
		}
		moving := 0
		for _, pid := range append([]int{r.Process.PID}, pids...) {
			if !proc.Stopped(pid) {
				moving++
				if err := proc.Stop(pid); err != nil {
					return fmt.Errorf("pause the cell: %w", err)
				}
			}
		}
		if moving == 0 {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("pause the cell: %w", ctx.Err())
		}
	}
}

// continueTree lets a stopped cell run again, the agent last.
func (d *Driver) continueTree(r *record) error {
	pids, err := proc.Descendants(r.Process.PID)
	if err != nil {
		return err
	}
	slices.Reverse(pids)
	for _, pid := range append(pids, r.Process.PID) {
		if err := proc.Continue(pid); err != nil {
			return fmt.Errorf("resume the cell: %w", err)
		}
	}
	return nil
}
