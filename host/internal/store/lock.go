package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockDir takes the data directory for this process. The lock is the kernel's
// and ends with the process, however that ends; the pid in the file is only
// there to be named.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked{Dir: dir, PID: owner(f)}
		}
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		return nil, errors.Join(fmt.Errorf("lock the data directory: %w", err), f.Close())
	}
	return f, nil
}

// owner reads the pid. The other process may be about to write it.
func owner(f *os.File) int {
	for range 20 {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
		if err != nil {
			return 0
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && unix.Kill(pid, 0) != unix.ESRCH {
			return pid
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0
}
