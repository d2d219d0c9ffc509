package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// version is of records and refs; a newer one is refused.
const version = 1

// record is all that is known of a cell. It holds no secret.
type record struct {
	V           int               `json:"v"`
	CellID      string            `json:"cell_id"`
	Incarnation uint64            `json:"incarnation"`
	HostID      string            `json:"host_id"`
	Labels      map[string]string `json:"labels,omitempty"`
	Link        string            `json:"link"`
	Public      string            `json:"public,omitempty"`
	StartedAt   time.Time         `json:"started_at"`
	Root        Process           `json:"root"`  // what was started
	Agent       Process           `json:"agent"` // the cell agent below it, or the same
	Facts       json.RawMessage   `json:"facts,omitempty"`
	Proof       string            `json:"proof"` // method
	Ready       bool              `json:"ready"`
	Ended       *end              `json:"ended,omitempty"`
	// Stopping: a stop has begun, so an agent that is gone has ended with
	// everything below it.
	Stopping bool `json:"stopping,omitempty"`
}

// end is how a cell was ended by Stop or Destroy.
type end struct {
	Method string    `json:"method"`
	Detail string    `json:"detail"`
	At     time.Time `json:"at"`
}

// handle is what a ref carries, to tell a ref of another driver, or of another
// cell, from a good one.
type handle struct {
	V           int    `json:"v"`
	CellID      string `json:"cell_id"`
	Incarnation uint64 `json:"incarnation"`
}

func (r *record) alive() bool { return r.Root.Alive() || r.Agent.Alive() }

func (r *record) ref() *pluginv1.CellRef {
	state, _ := json.Marshal(handle{version, r.CellID, r.Incarnation}) // strings and numbers
	return &pluginv1.CellRef{CellId: r.CellID, Incarnation: r.Incarnation, DriverState: state}
}

func (r *record) facts() *pluginv1.CellFacts {
	f := &pluginv1.CellFacts{}
	_ = protojson.Unmarshal(r.Facts, f) // it was written by this package
	return f
}

func (r *record) cell() *pluginv1.Cell {
	return &pluginv1.Cell{Ref: r.ref(), Link: r.Link, StartedAt: timestamppb.New(r.StartedAt), Facts: r.facts()}
}

// status looks at the processes, not at what was written down.
func (r *record) status() *pluginv1.CellStatus {
	st := &pluginv1.CellStatus{State: r.state(), StartedAt: timestamppb.New(r.StartedAt), Limits: r.facts().GetLimits()}
	switch {
	case st.State != pluginv1.CellState_CELL_STATE_EXITED:
	case r.Ended != nil:
		st.ExitReason, st.Detail = pluginv1.ExitReason_EXIT_REASON_KILLED, r.Ended.Detail
	default:
		st.ExitReason = pluginv1.ExitReason_EXIT_REASON_LOST
		st.Detail = "the cell agent has ended, and nobody had asked for it"
	}
	return st
}

func (r *record) state() pluginv1.CellState {
	switch {
	case !r.alive():
		return pluginv1.CellState_CELL_STATE_EXITED
	case r.Agent.Stopped():
		return pluginv1.CellState_CELL_STATE_PAUSED
	}
	return pluginv1.CellState_CELL_STATE_RUNNING
}

// checkHandle refuses a ref that this driver has not made for this cell. A ref
// without driver_state is good.
func checkHandle(ref *pluginv1.CellRef) error {
	if len(ref.GetDriverState()) == 0 {
		return nil
	}
	var h handle
	if err := json.Unmarshal(ref.GetDriverState(), &h); err != nil || h.V != version {
		return plugin.InvalidArgument("driver_state is not one of this driver")
	}
	if h.CellID != ref.GetCellId() || h.Incarnation != ref.GetIncarnation() {
		return plugin.InvalidArgument("driver_state belongs to cell %.80q", h.CellID)
	}
	return nil
}

// store keeps each record in a directory of its own.
type store struct{ dir string }

func (s store) path(id string, more ...string) string {
	return filepath.Join(append([]string{s.dir, id}, more...)...)
}

const recordFile = "cell.json"

// load is NotFound for a cell that there is no record of.
func (s store) load(id string) (*record, error) {
	b, err := os.ReadFile(s.path(id, recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, plugin.NotFound("no cell %s", id)
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of cell %s: %w", id, err)
	}
	r := &record{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("read the record of cell %s: %w", id, err)
	}
	return r, nil
}

// save replaces a record whole, and returns when it is on disk.
func (s store) save(r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.path(r.CellID), 0o700); err != nil {
		return err
	}
	next := s.path(r.CellID, recordFile+".new")
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the record of cell %s: %w", r.CellID, err)
	}
	return os.Rename(next, s.path(r.CellID, recordFile))
}

// remove takes a record and everything beside it away.
func (s store) remove(r *record) error {
	if strings.HasPrefix(filepath.Base(r.Public), publicPrefix) {
		_ = os.RemoveAll(r.Public)
	}
	if r.Link != "" {
		_ = os.Remove(r.Link)
	}
	return os.RemoveAll(s.path(r.CellID))
}

func (s store) ids() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, nil
}
