package cells

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/airlock-host/airlock/host/internal/result"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// WorkspaceTarget is where a workspace is in a cell that has a root of its own.
const WorkspaceTarget = "/workspace"

// StateTarget is where the mission's state directory is in such a cell. It
// outlives the cell and goes with the mission.
const StateTarget = "/airlock-state"

// volume says what a cell works on. The host makes the volume, fills it when a
// mission has claimed the cell (Fill), collects it and deletes it; a driver only
// attaches it.
func (m *Manager) volume(c *Cell) ([]*pluginv1.Volume, error) {
	state := &pluginv1.Volume{VolumeId: c.ID + "-state", Kind: pluginv1.VolumeKind_VOLUME_KIND_STATE, Target: StateTarget,
		HostPath: m.stateDir(c), QuotaBytes: c.Spec.DiskBytes}
	if err := m.makeDir(state.HostPath, c); err != nil {
		return nil, err
	}
	v := &pluginv1.Volume{VolumeId: c.ID, Kind: pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE, Target: WorkspaceTarget, QuotaBytes: c.Spec.DiskBytes}
	if w := c.Spec.Workspace; !ownsVolume(w.Mode) {
		v.HostPath, v.ReadOnly = w.Source, w.Mode == "read-only"
		if st, err := os.Stat(v.HostPath); err != nil || !st.IsDir() {
			return nil, fmt.Errorf("workspace source %s is no directory that can be read", v.HostPath)
		}
		return []*pluginv1.Volume{v, state}, nil
	}
	v.HostPath = m.volumeDir(c)
	return []*pluginv1.Volume{v, state}, m.makeVolume(c)
}

// ownsVolume says that a workspace is the mission's own: made for it, collected
// and deleted after it.
func ownsVolume(mode string) bool { return mode != "read-only" && mode != "read-write" }

// volumeDir is the workspace, baseline what it began as, stateDir what a runtime
// keeps from one session to the next.
func (m *Manager) volumeDir(c *Cell) string { return filepath.Join(m.volumesDir(), c.ID) }
func (m *Manager) baseline(c *Cell) string  { return m.volumeDir(c) + ".base" }
func (m *Manager) stateDir(c *Cell) string  { return m.volumeDir(c) + ".state" }

func (m *Manager) makeVolume(c *Cell) error {
	c.Workspace = m.volumeDir(c)
	return m.makeDir(c.Workspace, c)
}

func (m *Manager) makeDir(dir string, c *Cell) error {
	if err := os.MkdirAll(dir, 0o700); err != nil || c.UID == 0 {
		return err
	}
	return os.Lchown(dir, int(c.UID), int(c.UID))
}

// ownVolumes gives volumes to the workload's user where the driver has chosen
// it and the host is root.
func (m *Manager) ownVolumes(c *Cell) error {
	facts := c.CellFacts()
	if c.UID != 0 || os.Geteuid() != 0 || facts.GetUid() == 0 {
		return nil
	}
	dirs := []string{m.stateDir(c)}
	if ownsVolume(c.Spec.Workspace.Mode) {
		dirs = append(dirs, m.volumeDir(c))
	}
	for _, dir := range dirs {
		if err := os.Lchown(dir, int(facts.GetUid()), int(facts.GetGid())); err != nil {
			return err
		}
	}
	return nil
}

// within says that path is dir or lies below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(resolved(dir), resolved(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// Work says what there is to collect of a mission in its cell's workspace; ok is
// false when nothing can be there.
func (m *Manager) Work(c *Cell) (job result.Job, ok bool) {
	if !ownsVolume(c.Spec.Workspace.Mode) {
		return job, false
	}
	job = result.Job{MissionID: c.MissionID, CellID: c.ID, Generation: c.Generation,
		Mode: c.Spec.Workspace.Mode, Source: c.Spec.Workspace.Source, Root: m.volumeDir(c)}
	for _, uid := range []uint32{c.UID, c.CellFacts().GetUid()} {
		if uid != 0 {
			job.Owners = append(job.Owners, uid)
		}
	}
	if job.Mode == "copy" {
		job.Baseline = m.baseline(c)
		st, err := os.Stat(job.Root)
		return job, err == nil && st.IsDir()
	}
	d, err := os.Open(job.Root)
	if err != nil {
		return job, false
	}
	defer d.Close()
	names, err := d.Readdirnames(1)
	return job, len(names) > 0 || err != nil && !errors.Is(err, io.EOF)
}

// dropVolume deletes a cell's state and its workspace, whatever is in them.
func (m *Manager) dropVolume(c *Cell) error {
	if err := dropDir(m.stateDir(c)); err != nil {
		return fmt.Errorf("delete the state of cell %s: %w", c.ID, err)
	}
	if !ownsVolume(c.Spec.Workspace.Mode) {
		return nil
	}
	if err := dropDir(m.volumeDir(c)); err != nil {
		return fmt.Errorf("delete the workspace of cell %s: %w", c.ID, err)
	}
	if err := os.Remove(m.baseline(c)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// dropDir deletes a volume. From its first step on it cannot be taken for one
// that is still whole.
func dropDir(dir string) error {
	gone := dir + ".gone"
	if err := os.Rename(dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if err := removeTree(gone); err != nil { // of an attempt before
			return err
		}
		if err := os.Rename(dir, gone); err != nil {
			return err
		}
	}
	return removeTree(gone)
}

// removeTree deletes a tree; directories that their owner may not write to are
// no hindrance.
func removeTree(path string) error {
	err := os.RemoveAll(path)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, rerr := os.OpenRoot(path)
	if rerr != nil {
		return err
	}
	_ = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = root.Chmod(p, 0o700)
		}
		return nil
	})
	_ = root.Close()
	return os.RemoveAll(path)
}

// stageAgent copies the cell agent to dir/<sha256>, where a living cell's
// binary stays as long as the cell (an agent is never replaced in a cell).
func stageAgent(path, dir string) (staged, sum string, err error) {
	src, err := os.Open(path)
	if err != nil {
		return "", "", fmt.Errorf("cell agent: %w (build it with `make build`, or say where it is with --cell-agent)", err)
	}
	defer src.Close()
	h := sha256.New()
	if _, err := io.Copy(h, src); err != nil {
		return "", "", fmt.Errorf("cell agent %s: %w", path, err)
	}
	sum = hex.EncodeToString(h.Sum(nil))
	staged = filepath.Join(dir, sum)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", "", err
	}
	if _, err := os.Stat(staged); err == nil {
		return staged, sum, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != sum {
		return "", "", fmt.Errorf("cell agent %s changed while it was read", path)
	}
	if err := renameio.WriteFile(staged, data, 0o755); err != nil {
		return "", "", err
	}
	return staged, sum, nil
}
