package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// runDir is the run directory, taken for this process. Sockets of plugins and
// cells are in it, and a host empties parts of it when it starts; so it is
// locked before anything in it is touched, whatever the data directory is.
type runDir struct {
	path string
	lock *os.File
}

// takeRunDir makes the directory and locks it. The lock is the kernel's and
// ends with the process, however that ends.
func takeRunDir(path string) (*runDir, error) {
	if err := os.MkdirAll(path, 0o711); err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	f, err := os.OpenFile(filepath.Join(path, "host.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the run directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		who := "another host"
		if text, e := io.ReadAll(io.NewSectionReader(f, 0, 32)); e == nil && len(text) > 0 {
			who += " (pid " + strings.TrimSpace(string(text)) + ")"
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%s runs in run_dir %s; give this one a run_dir and a data_dir of its own, or stop the other", who, path)
		} else {
			err = fmt.Errorf("lock the run directory: %w", err)
		}
		return nil, errors.Join(err, f.Close())
	}
	// The pid is only there to be named.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &runDir{path: path, lock: f}, nil
}

// check says what is wrong when the directory is not the one that was taken any
// more.
func (r *runDir) check() error {
	ours, err := r.lock.Stat()
	if err != nil {
		return fmt.Errorf("run_dir %s: %w", r.path, err)
	}
	there, err := os.Stat(filepath.Join(r.path, "host.lock"))
	if err == nil && os.SameFile(ours, there) {
		return nil
	}
	return fmt.Errorf("run_dir %s was deleted or replaced while the host runs: its sockets are gone, no cell can be made and no command reaches it by the operator socket; restart the host", r.path)
}

// release gives the directory back. It unlocks and does not only close: a child
// that was forked and has not come to exec yet has the file open too.
func (r *runDir) release() error {
	return errors.Join(unix.Flock(int(r.lock.Fd()), unix.LOCK_UN), r.lock.Close())
}
