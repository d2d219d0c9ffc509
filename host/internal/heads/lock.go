package heads

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// takeLock takes the file of heads for this process: two hosts that append to
// one file would each prove the other's journals wrong. The lock is the kernel's
// and ends with the process.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the file of heads: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%s is taken: another host writes these heads; give this one a governance.head.file of its own, or stop the other", path)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// unlock gives it back. It unlocks and does not only close: a child that was
// forked and has not come to exec yet has the file open too.
func unlock(f *os.File) { _ = errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close()) }
