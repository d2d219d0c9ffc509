package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Needs of a runtime plugin that the host meets.
const (
	needCellDir       = "cell_dir"
	needWorkspaceFile = "workspace_file"
)

// maxWorkspaceFile is the largest file of a workspace that a plugin is shown.
const maxWorkspaceFile = 256 << 10

// needed lists what a runtime plugin needs of one kind.
func (e *Engine) needed(runtime, what string) []string {
	var out []string
	for _, n := range e.opts.Plugins.Needs(runtime) {
		if n.GetWhat() == what {
			out = append(out, n.GetValue())
		}
	}
	return out
}

// workspaceFiles reads the files of a workspace's source that the runtime plugin
// asks for. One that is not there, is no regular file, is too large or lies
// outside of the source, by a link too, is left out: a workspace may hold
// anything.
func (e *Engine) workspaceFiles(sp spec) ([]*pluginv1.WorkspaceFile, error) {
	names := e.needed(sp.Runtime, needWorkspaceFile)
	if len(names) == 0 || sp.Cell.Workspace.Source == "" {
		return nil, nil
	}
	root, err := os.OpenRoot(sp.Cell.Workspace.Source)
	if err != nil {
		return nil, fmt.Errorf("workspace source: %w", err)
	}
	defer root.Close()
	var files []*pluginv1.WorkspaceFile
	for _, name := range names {
		content, err := readInside(root, name)
		switch {
		case err == nil:
			files = append(files, &pluginv1.WorkspaceFile{Path: name, Content: content})
		case !errors.Is(err, fs.ErrNotExist):
			e.log.Warn("a file of the workspace is not shown to the runtime", "path", filepath.Join(root.Name(), name), "error", err)
		}
	}
	return files, nil
}

func readInside(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for its writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch st, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	}
	content, err := io.ReadAll(io.LimitReader(f, maxWorkspaceFile+1))
	if err == nil && len(content) > maxWorkspaceFile {
		err = fmt.Errorf("it is larger than %d bytes", maxWorkspaceFile)
	}
	return content, err
}
