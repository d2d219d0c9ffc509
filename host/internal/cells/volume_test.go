package cells

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func manager(t *testing.T, dataDir string) *Manager {
	t.Helper()
	agent := filepath.Join(t.TempDir(), "airlock-cell")
	if err := os.WriteFile(agent, []byte("agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := New(Options{DataDir: dataDir, RunDir: t.TempDir(), AgentPath: agent})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func copyFrom(t *testing.T, m *Manager, source string) (*Cell, error) {
	t.Helper()
	c, err := m.Prepare(Spec{Isolation: "isolation.x.y", Workspace: Workspace{Source: source, Mode: "copy"}})
	if err != nil {
		t.Fatal(err)
	}
	return c, m.Fill(t.Context(), c)
}

func TestAWorkspaceIsNotCopiedIntoItself(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	data := filepath.Join(top, "data")
	m := manager(t, data)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{data, top, link, m.volumesDir()} {
		if _, err := copyFrom(t, m, source); err == nil || !strings.Contains(err.Error(), "copy itself") {
			t.Errorf("copy of %s: %v", source, err)
		}
	}
}

func TestACopiedWorkspace(t *testing.T) {
	t.Parallel()
	m := manager(t, t.TempDir())
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "a"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := copyFrom(t, m, source)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(c.Workspace, "a"))
	if err != nil || string(got) != "text" {
		t.Errorf("copied file: %q, %v", got, err)
	}
	if err := m.dropVolume(c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.Workspace); err == nil {
		t.Error("the workspace of a cell that was destroyed is still there")
	}
	if _, err := copyFrom(t, m, filepath.Join(source, "missing")); err == nil || !strings.Contains(err.Error(), "no directory") {
		t.Errorf("copy of nothing: %v", err)
	}
	if left, err := os.ReadDir(m.volumesDir()); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
