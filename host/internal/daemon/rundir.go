package daemon

import (
	"errors"
	"fmt"
	"os"

	"github.com/airlock-host/airlock/host/internal/filelock"
)

// runDir is the run directory, taken for this process. Sockets of plugins and
// cells are in it, and a host empties parts of it when it starts; so it is
// locked before anything in it is touched, whatever the data directory is.
type runDir struct {
	path string
	lock *filelock.Dir
}

// takeRunDir makes the directory and locks it.
func takeRunDir(path string) (*runDir, error) {
	if err := os.MkdirAll(path, 0o711); err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	f, err := filelock.TakeDir(path, "host.lock")
	var held filelock.HeldError
	switch {
	case errors.As(err, &held):
		who := "another host"
		if held.PID != 0 {
			who = fmt.Sprintf("another host (pid %d)", held.PID)
		}
		return nil, fmt.Errorf("%s runs in run_dir %s; give this one a run_dir and a data_dir of its own, or stop the other", who, path)
	case err != nil:
		return nil, fmt.Errorf("lock the run directory: %w", err)
	}
	return &runDir{path: path, lock: f}, nil
}

// check says what is wrong when the directory is not the one that was taken any
// more.
func (r *runDir) check() error {
	if r.lock.Check() == nil {
		return nil
	}
	return fmt.Errorf("run_dir %s was deleted or replaced while the host runs: its sockets are gone, no cell can be made and no command reaches it by the operator socket; restart the host", r.path)
}

// release gives the directory back.
func (r *runDir) release() error { return r.lock.Release() }
