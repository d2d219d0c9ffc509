package driver

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/airlock-host/airlock/plugins/isolation/docker/internal/kernel"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// handle is a ref's driver_state as JSON. A cell is found without it, by its
// name; it serves to end a cell whose engine does not answer.
type handle struct {
	V           int            `json:"v"`
	CellID      string         `json:"cell_id"`
	Incarnation uint64         `json:"incarnation"`
	Container   string         `json:"container"` // the engine's id
	Init        kernel.Process `json:"init,omitzero"`
	Groups      kernel.Groups  `json:"groups,omitempty"`
	LinkDir     string         `json:"link_dir,omitempty"`
}

// maxHandle is what the contract allows a driver_state.
const maxHandle = 4 << 10

func (h handle) ref() (*pluginv1.CellRef, error) {
	b, err := json.Marshal(h)
	if err == nil && len(b) > maxHandle {
		h.LinkDir, h.Groups = "", nil
		b, err = json.Marshal(h)
	}
	if err != nil {
		return nil, fmt.Errorf("handle of cell %s: %w", h.CellID, err)
	}
	return &pluginv1.CellRef{CellId: h.CellID, Incarnation: h.Incarnation, DriverState: b}, nil
}

// readHandle reads a ref's driver_state and refuses one that is not of this
// cell, or that names anything a cell of this driver cannot have. nil = the ref
// has none.
func readHandle(ref *pluginv1.CellRef) (*handle, error) {
	if len(ref.GetDriverState()) == 0 {
		return nil, nil
	}
	h := &handle{}
	if err := json.Unmarshal(ref.GetDriverState(), h); err != nil {
		return nil, plugin.InvalidArgument("cell %s: driver_state is not one of this driver: %v", ref.GetCellId(), err)
	}
	if h.V < 1 || h.V > noteVersion {
		return nil, plugin.InvalidArgument("cell %s: driver_state has version %d; this driver knows 1 to %d",
			ref.GetCellId(), h.V, noteVersion)
	}
	if h.CellID != ref.GetCellId() || ref.GetIncarnation() != 0 && h.Incarnation != ref.GetIncarnation() ||
		len(h.Groups) > 0 && !h.Groups.Own(h.Container) || h.LinkDir != "" && !filepath.IsAbs(h.LinkDir) {
		return nil, plugin.InvalidArgument("driver_state is not one of cell %s", ref.GetCellId())
	}
	return h, nil
}
