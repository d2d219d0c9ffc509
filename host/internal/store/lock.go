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
	for tries := 0; ; tries++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock the data directory: %w", err), f.Close())
		}
		// A pid that is not there: the owner is about to write its own, or it was
		// killed while a child of it had not come to exec yet. Both pass.
		pid := owner(f)
		if pid == 0 && tries < 30 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		return nil, errors.Join(ErrLocked{Dir: dir, PID: pid}, f.Close())
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

// unlock gives the directory back. It unlocks and does not only close: a child
// that was forked and has not come to exec yet has the file open too.
func unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
