package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
	"github.com/airlock-host/airlock/plugins/internal/proc"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// recordVersion is the version of records and handles. A reader takes every
// version up to its own.
const recordVersion = 1

// maxHandle is what the contract allows a driver_state.
const maxHandle = 4 << 10

// errNoRecord says that the state directory knows nothing of a cell.
var errNoRecord = errors.New("no record of the cell")

// handle is what finds a cell again; it is a ref's driver_state as JSON.
type handle struct {
	V           int             `json:"v"`
	CellID      string          `json:"cell_id"`
	Incarnation uint64          `json:"incarnation"`
	HostID      string          `json:"host_id"`
	VM          proc.ID         `json:"vm"`     // QEMU; pid 0: never started
	Helper      proc.ID         `json:"helper"` // pid 0: never started
	Groups      *cgroup.Group   `json:"groups,omitempty"`
	Link        string          `json:"link"`
	StartedAt   time.Time       `json:"started_at"`
	Facts       json.RawMessage `json:"facts,omitempty"` // pluginv1.CellFacts
}

// record is what the state directory holds of a cell.
type record struct {
	handle
	// Marker is in the environment of every process of the cell, and written
	// down before the first one: it finds what was started by a driver that
	// died before it could write down whom.
	Marker string `json:"marker,omitempty"`
	// Ready says that Create has finished.
	Ready  bool              `json:"ready"`
	Labels map[string]string `json:"labels,omitempty"`
	// User, Size, Volumes and Keys are what the VM was made with.
	User    ids               `json:"user"`
	Size    size              `json:"size"`
	Volumes []volume          `json:"volumes,omitempty"`
	Keys    map[string]string `json:"keys,omitempty"`
	End     *end              `json:"end,omitempty"`
}

// volume is a directory that a VM's helper serves.
type volume struct {
	Path     string `json:"path"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
	Quota    uint64 `json:"quota,omitempty"`
}

// end is how a cell ended.
type end struct {
	Reason pluginv1.ExitReason `json:"reason"`
	Detail string              `json:"detail"`
	At     time.Time           `json:"at"`
}

func (r *record) key() cellKey { return cellKey{r.CellID, r.Incarnation} }

func (r *record) ref() (*pluginv1.CellRef, error) {
	b, err := json.Marshal(r.handle)
	if err == nil && len(b) > maxHandle {
		h := r.handle
		h.Facts = nil
		b, err = json.Marshal(h)
	}
	if err != nil {
		return nil, fmt.Errorf("handle of cell %s: %w", r.CellID, err)
	}
	return &pluginv1.CellRef{CellId: r.CellID, Incarnation: r.Incarnation, DriverState: b}, nil
}

func (r *record) cell() (*pluginv1.Cell, error) {
	ref, err := r.ref()
	if err != nil {
		return nil, err
	}
	return &pluginv1.Cell{Ref: ref, Link: r.Link, StartedAt: timestamppb.New(r.StartedAt), Facts: r.facts()}, nil
}

// facts are never nil.
func (r *record) facts() *pluginv1.CellFacts {
	f := &pluginv1.CellFacts{}
	if len(r.Facts) > 0 {
		_ = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(r.Facts, f)
	}
	return f
}

func (r *record) setFacts(f *pluginv1.CellFacts) error {
	b, err := protojson.Marshal(f)
	if err != nil {
		return fmt.Errorf("facts of cell %s: %w", r.CellID, err)
	}
	r.Facts = b
	return nil
}

// open makes a cell's first record.
func (in *instance) open(r *record) error {
	if err := os.MkdirAll(in.cellDir(r.CellID), 0o700); err != nil {
		return fmt.Errorf("record of cell %s: %w", r.CellID, err)
	}
	return in.save(r)
}

// save writes a record so that a reader sees the old one or the new one; one
// that is gone stays gone. It is not synced: after a crash of the machine no
// cell is left to find.
func (in *instance) save(r *record) error {
	dir := in.cellDir(r.CellID)
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record of cell %s: %w", r.CellID, err)
	}
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return fmt.Errorf("record of cell %s: %w", r.CellID, err)
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, "cell.json"))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("record of cell %s: %w", r.CellID, err)
	}
	return nil
}

// load reads a record; errNoRecord when there is none. A record that cannot
// be read is one of a cell that was never started, by its id alone.
func (in *instance) load(id string) (*record, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(in.cellDir(id), "cell.json"))
	if errors.Is(err, os.ErrNotExist) {
		if _, e := os.Lstat(in.cellDir(id)); e == nil {
			return in.blank(id), nil
		}
		return nil, errNoRecord
	}
	if err != nil {
		return nil, fmt.Errorf("record of cell %s: %w", id, err)
	}
	r := &record{}
	if err := json.Unmarshal(b, r); err != nil || r.CellID != id {
		return in.blank(id), nil
	}
	return r, nil
}

func (in *instance) blank(id string) *record {
	return &record{handle: handle{V: recordVersion, CellID: id, HostID: in.hostID, Groups: in.groups.Find(id)}}
}

// forget removes a record and everything beside it.
func (in *instance) forget(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := os.RemoveAll(in.cellDir(id)); err != nil {
		return fmt.Errorf("record of cell %s: %w", id, err)
	}
	return nil
}

// known lists the ids that have a record.
func (in *instance) known() ([]string, error) {
	entries, err := os.ReadDir(in.cellsDir())
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && checkID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// parseHandle reads a driver_state.
func parseHandle(b []byte) (handle, error) {
	var h handle
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&h); err != nil {
		return h, fmt.Errorf("driver_state is not one of this driver: %w", err)
	}
	if h.V < 1 || h.V > recordVersion {
		return h, fmt.Errorf("driver_state has version %d; this driver knows 1 to %d", h.V, recordVersion)
	}
	return h, nil
}
