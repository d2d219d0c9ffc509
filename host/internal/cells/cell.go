// Package cells makes, finds, keeps ready and ends cells through isolation
// drivers. It imports proto, sdk/cell, config's spec and store rows; it knows
// nothing of missions but their ids.
//
// The one idea: a cell's row is durable before a driver is asked for it, so
// that after a crash every cell is either known by its row or an orphan that
// the driver lists.
package cells

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/airlock-host/airlock/host/internal/store"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// States of a cell's row.
const (
	StateCreating = "creating" // the driver may have been asked; no session was
	StateWarm     = "warm"     // ready and unbound
	StateBound    = "bound"    // the session of a mission may have been started in it
	StateParked   = "parked"   // ended at the driver; its volumes wait for the next session of the mission
	StateSaving   = "saving"   // bound, and the driver was asked for a checkpoint
	StateSaved    = "saved"    // the cell is a checkpoint
	StateLoading  = "loading"  // the driver was asked to restore the checkpoint
	StateEnding   = "ending"   // to be destroyed
)

// Spec is what a cell is made from; it is part of an agent's resolved spec.
type Spec struct {
	Agent       string    `json:"agent"`
	Isolation   string    `json:"isolation"` // instance ref
	CPU         float64   `json:"cpu,omitempty"`
	MemoryBytes uint64    `json:"memory_bytes,omitempty"`
	Pids        uint64    `json:"pids,omitempty"`
	DiskBytes   uint64    `json:"disk_bytes,omitempty"`
	Network     string    `json:"network"` // none | gateway | open
	Workspace   Workspace `json:"workspace"`
}

// Workspace says what files a mission works on.
type Workspace struct {
	Source string `json:"source,omitempty"`
	Mode   string `json:"mode"` // copy | read-only | read-write | empty
}

// Cell is a cell that was asked for.
type Cell struct {
	ID          string
	Incarnation uint64
	Instance    string
	State       string
	MissionID   string
	Generation  uint64
	details
}

// details is the part of a row that is stored as JSON.
type details struct {
	Ref       []byte `json:"ref,omitempty"`   // pluginv1.CellRef
	Facts     []byte `json:"facts,omitempty"` // pluginv1.CellFacts
	Link      string `json:"link,omitempty"`
	LinkDir   string `json:"link_dir"`
	Secret    []byte `json:"secret"`
	UID       uint32 `json:"uid,omitempty"`
	Spec      Spec   `json:"spec"`
	Workspace string `json:"workspace,omitempty"` // host path of the workspace volume
	AgentSHA  string `json:"agent_sha256,omitempty"`
	// FileDirs are the directories in which files of root are placed.
	FileDirs []string `json:"file_dirs,omitempty"`
	Plan     []byte   `json:"plan,omitempty"` // pluginv1.LaunchPlan of the session, without secrets
	// Checkpoint is what the cell is, in the states saved and loading
	// (pluginv1.CellCheckpoint), or shall be (its id only).
	Checkpoint []byte `json:"checkpoint,omitempty"`
	// Worked: a session of the mission has run in it, so there may be files to
	// collect.
	Worked bool `json:"worked,omitempty"`
	// Uncollected: the cell is stopped, and its workspace must not be deleted
	// before the mission's files are stored.
	Uncollected bool `json:"uncollected,omitempty"`
}

// Row gives the cell's row.
func (c *Cell) Row() (store.CellRow, error) {
	data, err := json.Marshal(c.details)
	if err != nil {
		return store.CellRow{}, err
	}
	return store.CellRow{CellID: c.ID, Incarnation: c.Incarnation, Instance: c.Instance,
		MissionID: c.MissionID, Generation: c.Generation, State: c.State, Data: data}, nil
}

// FromRow reads a cell back.
func FromRow(r store.CellRow) (*Cell, error) {
	c := &Cell{ID: r.CellID, Incarnation: r.Incarnation, Instance: r.Instance,
		State: r.State, MissionID: r.MissionID, Generation: r.Generation}
	if err := json.Unmarshal(r.Data, &c.details); err != nil {
		return nil, fmt.Errorf("row of cell %s: %w", r.CellID, err)
	}
	return c, nil
}

// CellRef gives the driver's reference; before the driver has answered it
// names the cell without driver state.
func (c *Cell) CellRef() *pluginv1.CellRef {
	ref := &pluginv1.CellRef{}
	if len(c.Ref) > 0 && proto.Unmarshal(c.Ref, ref) == nil && ref.GetCellId() == c.ID {
		return ref
	}
	return &pluginv1.CellRef{CellId: c.ID, Incarnation: c.Incarnation}
}

// CellFacts gives what the driver said of the cell; never nil.
func (c *Cell) CellFacts() *pluginv1.CellFacts {
	facts := &pluginv1.CellFacts{}
	_ = proto.Unmarshal(c.Facts, facts)
	return facts
}

// took stores the driver's answer.
func (c *Cell) took(got *pluginv1.Cell) error {
	var err error
	if c.Ref, err = proto.Marshal(got.GetRef()); err != nil {
		return err
	}
	if c.Facts, err = proto.Marshal(got.GetFacts()); err != nil {
		return err
	}
	c.Link = got.GetLink()
	return nil
}

// newID makes a cell id: short, since it is part of a socket's path.
func newID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	return "c" + hex.EncodeToString(b[:])
}

func newSecret() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}
