package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/helper"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Names in a checkpoint's directory.
const (
	pointFile  = "checkpoint.json"
	wholeFile  = "whole.json" // the manifest of one whose VM may not have ended yet
	pointOwner = "cell"       // whose checkpoint it is, from the first moment on
	stateFile  = "state"
)

// point is a checkpoint: a directory with the state of a VM, its own disk, and
// what its kernel knows of the files of its volumes.
type point struct {
	V           int               `json:"v"`
	ID          string            `json:"checkpoint_id"`
	CellID      string            `json:"cell_id"`
	Incarnation uint64            `json:"incarnation"`
	Accel       string            `json:"accel"`
	User        ids               `json:"user"`
	Size        size              `json:"size"`
	Volumes     []volume          `json:"volumes"`
	Keys        map[string]string `json:"keys"`

	dir   string   // where it lies
	state *os.File // open to be read, while it is restored
	taken bool     // its files are the cell's now
	used  bool     // the VM has run again
}

// keys are what a checkpoint and the VM that is made of it must agree on.
func (in *instance) keys(r *record, c choice, agent string) map[string]string {
	return map[string]string{
		"image": in.root.SHA256, "kernel": in.kernel.SHA256, "agent": agent, "engine": in.engine.version,
		"machine": in.engine.machine, "accel": c.accel, "memory": fmt.Sprint(r.Size.Memory), "cpus": fmt.Sprint(r.Size.CPUs),
		"disk": fmt.Sprint(r.Size.Disk), "format": "1",
	}
}

// pointDir is where a checkpoint of this id lies, whatever the id is.
func (in *instance) pointDir(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(in.pointsDir(), hex.EncodeToString(sum[:16]))
}

// loadPoint finds a checkpoint. NotFound = there is none, or it was used.
func (in *instance) loadPoint(id string) (*point, error) {
	return in.readPoint(id, pointFile)
}

func (in *instance) readPoint(id, manifest string) (*point, error) {
	p := &point{dir: in.pointDir(id)}
	b, err := os.ReadFile(filepath.Join(p.dir, manifest))
	if errors.Is(err, os.ErrNotExist) {
		return nil, plugin.NotFound("no checkpoint %q, or it was restored already", id)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, p); err != nil || p.V != 1 || p.ID != id {
		return nil, plugin.FailedPrecondition("checkpoint %q cannot be read", id)
	}
	return p, nil
}

// begin makes an empty checkpoint; whatever a try before has left goes.
func (p *point) begin() error {
	_ = os.RemoveAll(p.dir)
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.dir, pointOwner), []byte(p.CellID), 0o600)
}

// whole says that the VM's state is on disk: it may end now, and finish can be
// done later.
func (p *point) whole() error {
	return writeWhole(filepath.Join(p.dir, wholeFile), 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(p) })
}

// finish takes the disk of a VM that has ended and puts the manifest in its
// place: from then on the checkpoint is one.
func (p *point) finish(in *instance) error {
	err := os.Rename(in.upper(p.CellID), filepath.Join(p.dir, upperName))
	if errors.Is(err, os.ErrNotExist) { // a finish that was interrupted had it
		_, err = os.Stat(filepath.Join(p.dir, upperName))
	}
	if err != nil {
		return err
	}
	return os.Rename(filepath.Join(p.dir, wholeFile), filepath.Join(p.dir, pointFile))
}

// forgetPoints deletes the checkpoints of a cell that is destroyed for good.
func (in *instance) forgetPoints(cell string) error {
	dirs, err := os.ReadDir(in.pointsDir())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, d := range dirs {
		dir := filepath.Join(in.pointsDir(), d.Name())
		if owner, rerr := os.ReadFile(filepath.Join(dir, pointOwner)); rerr == nil && string(owner) == cell {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// fits refuses a cell that is not made like the one that was saved.
func (p *point) fits(r *record) error {
	var differ []string
	for _, k := range slices.Sorted(maps.Keys(p.Keys)) {
		if r.Keys[k] != p.Keys[k] {
			differ = append(differ, fmt.Sprintf("%s (%s, now %s)", k, p.Keys[k], r.Keys[k]))
		}
	}
	switch {
	case len(differ) > 0:
		return plugin.FailedPrecondition("checkpoint %s was made with another %s", p.ID, differ)
	case r.User != p.User:
		return plugin.FailedPrecondition("checkpoint %s is of a cell with uid %d, not %d", p.ID, p.User.UID, r.User.UID)
	case len(r.Volumes) != len(p.Volumes):
		return plugin.FailedPrecondition("checkpoint %s has %d volumes, the cell %d", p.ID, len(p.Volumes), len(r.Volumes))
	}
	for i, v := range r.Volumes {
		if v.Target != p.Volumes[i].Target || v.ReadOnly != p.Volumes[i].ReadOnly {
			return plugin.FailedPrecondition("checkpoint %s has a volume at %s where the cell has %s", p.ID, p.Volumes[i].Target, v.Target)
		}
	}
	return nil
}

// take gives the checkpoint's files to a cell. The manifest goes first: whoever
// comes later finds no checkpoint.
func (p *point) take(in *instance, r *record) error {
	aside := filepath.Join(in.cellDir(r.CellID), pointFile)
	if err := os.Rename(filepath.Join(p.dir, pointFile), aside); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return plugin.NotFound("no checkpoint %q, or it was restored already", p.ID)
		}
		return err
	}
	p.taken = true
	for _, f := range p.moves(in, r.CellID) {
		if err := os.Rename(f[0], f[1]); err != nil {
			return err
		}
	}
	var err error
	p.state, err = os.Open(filepath.Join(p.dir, stateFile))
	return err
}

func (p *point) moves(in *instance, cell string) [][2]string {
	return [][2]string{
		{filepath.Join(p.dir, upperName), in.upper(cell)},
		{filepath.Join(p.dir, helper.SavedFiles), filepath.Join(in.runDir(cell), helper.SavedFiles)},
	}
}

// giveBack undoes take for a VM that has not run.
func (p *point) giveBack(in *instance, cell string) {
	if p.state != nil {
		_ = p.state.Close()
	}
	if !p.taken || p.used {
		return
	}
	for _, f := range p.moves(in, cell) {
		_ = os.Rename(f[1], f[0])
	}
	_ = os.Rename(filepath.Join(in.cellDir(cell), pointFile), filepath.Join(p.dir, pointFile))
}

// remove deletes what is left of a checkpoint that was restored.
func (p *point) remove() error {
	_ = p.state.Close()
	return os.RemoveAll(p.dir)
}
