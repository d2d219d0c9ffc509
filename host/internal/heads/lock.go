package heads

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// takeLock takes the file of heads for this process: two hosts that append to
// one file would each prove the other's journals wrong. The lock is the kernel's
// and ends with the process; the pid in the file is only there to be named.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the file of heads: %w", err)
	}
	for tries := 0; ; tries++ {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock the file of heads: %w", err), f.Close())
		}
		pid := owner(path)
		// A process that is gone: it was killed while a child of it had not come to
		// exec yet, which passes.
		if alive := pid > 0 && unix.Kill(pid, 0) != unix.ESRCH; !alive && tries < 100 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		return nil, errors.Join(fmt.Errorf("%s is taken: another host (process %d) writes these heads; give this one a governance.head.file of its own, or stop the other", path, pid), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		return nil, errors.Join(fmt.Errorf("lock the file of heads: %w", err), f.Close())
	}
	return f, nil
}

// owner is the process that the file names; 0: none.
func owner(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// unlock gives it back. It unlocks and does not only close: a child that was
// forked and has not come to exec yet has the file open too.
func unlock(f *os.File) { _ = errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close()) }
