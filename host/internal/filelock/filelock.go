// Package filelock takes a file for this process: the data directory, the run
// directory and the file of heads belong to one host each. It imports nothing of
// Airlock. The one idea: the lock is the kernel's and ends with the process,
// however that ends; the pid in the file is only there to be named.
package filelock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tries is how often, 10 ms apart, a lock is tried that another process has.
const tries = 100

// HeldError says that another process has the lock.
type HeldError struct {
	Path string
	PID  int // 0: not known
}

// Error implements error.
func (e HeldError) Error() string {
	if e.PID == 0 {
		return e.Path + " is locked by another process"
	}
	return fmt.Sprintf("%s is locked by another process (pid %d)", e.Path, e.PID)
}

// Take makes the file, mode 0600, and locks it. It fails with a HeldError when
// another process, or another Take of this one, has it.
func Take(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f, path, func() int { return owner(f) }); err != nil {
		return nil, err
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
	}
	return f, nil
}

// lock locks an open file, or closes it. Another process's lock is tried again: a
// pid that is not there has an owner that is about to write its own, or that was
// killed while a child of it had not come to exec yet; one that is there may be
// about to end, killed with the process that guards it. All pass.
func lock(f *os.File, path string, owner func() (pid int)) error {
	for try := 0; ; try++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		pid := owner()
		if pid == os.Getpid() || try >= tries {
			return errors.Join(HeldError{Path: path, PID: pid}, f.Close())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// owner reads the pid, 0 if there is no such process.
func owner(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return 0
	}
	return pid
}

// Release gives the file back. It unlocks and does not only close: a child that
// was forked and has not come to exec yet has the file open too.
func Release(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
