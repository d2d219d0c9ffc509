package cells

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// WorkspaceTarget is where a workspace is in a cell that has a root of its own.
const WorkspaceTarget = "/workspace"

// volume makes and fills the workspace of a cell.
func (m *Manager) volume(c *Cell) ([]*pluginv1.Volume, error) {
	v := &pluginv1.Volume{VolumeId: c.ID, Kind: pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE, Target: WorkspaceTarget, QuotaBytes: c.Spec.DiskBytes}
	switch c.Spec.Workspace.Mode {
	case "read-only", "read-write":
		v.HostPath, v.ReadOnly = c.Spec.Workspace.Source, c.Spec.Workspace.Mode == "read-only"
		if st, err := os.Stat(v.HostPath); err != nil || !st.IsDir() {
			return nil, fmt.Errorf("workspace source %s is no directory that can be read", v.HostPath)
		}
	default:
		c.Workspace = filepath.Join(m.volumesDir(), c.ID)
		v.HostPath = c.Workspace
		if err := os.MkdirAll(v.HostPath, 0o700); err != nil {
			return nil, err
		}
		if c.Spec.Workspace.Mode == "copy" {
			if within(m.volumesDir(), c.Spec.Workspace.Source) || within(c.Spec.Workspace.Source, m.volumesDir()) {
				return nil, fmt.Errorf("workspace source %s holds the host's own volumes (%s): copying it would copy itself", c.Spec.Workspace.Source, m.volumesDir())
			}
			if err := os.CopyFS(v.HostPath, os.DirFS(c.Spec.Workspace.Source)); err != nil && !os.IsExist(err) {
				_ = os.RemoveAll(v.HostPath) // half a copy is nobody's work
				return nil, fmt.Errorf("copy the workspace %s: %w", c.Spec.Workspace.Source, err)
			}
		}
		if c.UID != 0 {
			if err := chownTree(v.HostPath, int(c.UID)); err != nil {
				return nil, err
			}
		}
	}
	return []*pluginv1.Volume{v}, nil
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

func chownTree(root string, uid int) error {
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
}

// dropVolume removes a workspace in which the mission left nothing. One with
// files in it is kept: it is the mission's work.
func (m *Manager) dropVolume(c *Cell) {
	if c.Workspace != "" {
		_ = os.Remove(c.Workspace) // fails when it is not empty, as it should
	}
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
