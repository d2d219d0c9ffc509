package driver

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/airlock-host/airlock/plugins/internal/proc"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// find finds a cell by its ref: by its record, else by its handle, else by its
// control groups. A broken handle is refused when strict is set, and ignored
// where the record knows better when it is not.
func (d *Driver) find(in *instance, ref *pluginv1.CellRef, strict bool) (*record, error) {
	id := ref.GetCellId()
	if err := checkID(id); err != nil {
		return nil, err
	}
	var h *handle
	if len(ref.GetDriverState()) > 0 {
		got, err := in.readHandle(ref)
		if err != nil && strict {
			return nil, err
		}
		if err == nil {
			h = &got
		} else if _, e := in.load(id); errors.Is(e, errNoRecord) {
			return nil, err
		}
	}
	r, err := in.load(id)
	if err == nil {
		if want := ref.GetIncarnation(); want != 0 && r.Incarnation != 0 && want != r.Incarnation {
			return nil, plugin.FailedPrecondition("cell %s has incarnation %d, not %d", id, r.Incarnation, want)
		}
		return r, nil
	}
	if !errors.Is(err, errNoRecord) {
		return nil, err
	}
	gone := plugin.NotFound("no cell %s", id)
	if h != nil {
		// The record was lost; the kernel says whether the handle still means
		// anything.
		r := &record{handle: *h, Ready: true}
		alive, err := proc.Alive(h.Process)
		if err != nil {
			return nil, err
		}
		if !alive && in.groups.Find(id) == nil {
			return nil, gone
		}
		return r, nil
	}
	if g := in.groups.Find(id); g != nil {
		r := in.blank(id)
		r.Groups, r.Incarnation = g, ref.GetIncarnation()
		return r, nil
	}
	return nil, gone
}

// readHandle reads a ref's driver_state and refuses one that is not of this
// cell, or that names anything a cell of this driver cannot have.
func (in *instance) readHandle(ref *pluginv1.CellRef) (handle, error) {
	h, err := parseHandle(ref.GetDriverState())
	if err != nil {
		return h, plugin.InvalidArgument("cell %s: %v", ref.GetCellId(), err)
	}
	foreign := h.CellID != ref.GetCellId() || ref.GetIncarnation() != 0 && h.Incarnation != ref.GetIncarnation()
	if h.Groups != nil {
		for _, dir := range h.Groups.Dirs() {
			foreign = foreign || path.Clean(dir) != dir || path.Base(dir) != h.CellID || !in.groups.Contains(dir)
		}
	}
	if h.Public != "" && !strings.HasPrefix(path.Base(h.Public), publicPrefix) {
		foreign = true
	}
	if foreign || h.Link != "" && path.Base(h.Link) != "link.sock" {
		return h, plugin.InvalidArgument("driver_state is not one of cell %s", ref.GetCellId())
	}
	return h, nil
}

// Recover finds a cell again.
func (d *Driver) Recover(ctx context.Context, req *pluginv1.RecoverRequest) (*pluginv1.RecoverResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	release, err := d.cells.take(ctx, req.GetRef().GetCellId())
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := d.find(in, req.GetRef(), true)
	if err != nil {
		return nil, err
	}
	st, err := d.statusLocked(ctx, in, r)
	if err != nil {
		return nil, err
	}
	if st.GetState() != pluginv1.CellState_CELL_STATE_EXITED {
		if _, err := in.load(r.CellID); errors.Is(err, errNoRecord) {
			if err := in.open(r); err != nil {
				return nil, plugin.Unavailable("%v", err)
			}
		}
		d.watchOther(in, r)
	}
	cell, err := r.cell()
	if err != nil {
		return nil, err
	}
	return &pluginv1.RecoverResponse{Cell: cell, Status: st}, nil
}
