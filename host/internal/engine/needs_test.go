package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/cells"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// needing is a catalog whose runtime asks for files of the workspace.
type needing struct {
	Plugins
	paths []string
}

func (n needing) Needs(string) []*pluginv1.Need {
	var out []*pluginv1.Need
	for _, p := range n.paths {
		out = append(out, &pluginv1.Need{What: needWorkspaceFile, Value: p})
	}
	return out
}

func TestOnlySmallRegularFilesInsideOfTheWorkspaceAreShown(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(dir, "CLAUDE.md"), "be brief")
	put(filepath.Join(outside, "secret"), "secret")
	put(filepath.Join(dir, "big"), strings.Repeat("x", maxWorkspaceFile+1))
	must(os.Symlink("CLAUDE.md", filepath.Join(dir, "inside")))
	must(os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "absolute")))
	must(os.Symlink("../"+filepath.Base(outside)+"/secret", filepath.Join(dir, "climbing")))
	must(os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	must(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	e := &Engine{log: hclog.NewNullLogger(), opts: Options{Plugins: needing{paths: []string{
		"CLAUDE.md", "inside", "big", "absolute", "climbing", "../" + filepath.Base(outside) + "/secret", "directory", "fifo", "missing"}}}}
	got, err := e.workspaceFiles(spec{Cell: cells.Spec{Workspace: cells.Workspace{Source: dir}}})
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	for i, path := range []string{"CLAUDE.md", "inside"} {
		if got[i].GetPath() != path || string(got[i].GetContent()) != "be brief" {
			t.Errorf("file %d: %v", i, got[i])
		}
	}
}
