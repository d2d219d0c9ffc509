package store

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// space is what is known about room on the disk. The ballast is a file that is
// given back to the file system when it has none left, for stop, revocation
// and ended events only (rulings 41).
type space struct {
	dir  string
	size int64
	full atomic.Bool // commits that are not reserved are refused
	held bool        // the ballast is there; the writer's
}

// room is what must be free, beside the ballast, before the store opens again.
const room = 4 << 20

func (s *space) path() string { return filepath.Join(s.dir, "ballast") }

// reserve makes the ballast.
func (s *space) reserve() error {
	if s.size <= 0 || s.held {
		return nil
	}
	f, err := os.OpenFile(s.path(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, s.size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fill(f, s.size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(s.path()))
	}
	s.held = true
	return nil
}

// fill is for file systems that cannot allocate ahead.
func fill(f *os.File, size int64) error {
	zero := make([]byte, 64<<10)
	for off := int64(0); off < size; off += int64(len(zero)) {
		if _, err := f.WriteAt(zero, off); err != nil {
			return err
		}
	}
	return nil
}

// free gives the ballast back. It says whether there was one.
func (s *space) free() bool {
	if !s.held {
		return false
	}
	s.held = false
	return os.Remove(s.path()) == nil
}

// recovered looks whether there is room again, and makes a new ballast.
func (s *space) recovered() bool {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return false
	}
	need := int64(room)
	if !s.held && s.size > 0 {
		need += s.size
	}
	if int64(st.Bavail)*st.Bsize < need || s.reserve() != nil {
		return false
	}
	s.full.Store(false)
	return true
}

// reserved says whether a batch may use the ballast: it has events, and all
// are of kinds that must get through.
func reserved(events []journal.Event) bool {
	for i := range events {
		if !events[i].Kind.Reserved() {
			return false
		}
	}
	return len(events) > 0
}
