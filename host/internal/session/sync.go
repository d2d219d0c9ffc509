package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// file is what a segment needs of its file. Tests put faulty ones in.
type file interface {
	ReadAt(b []byte, off int64) (int, error)
	WriteAt(b []byte, off int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
	Name() string
}

// dataFile is an os.File that syncs its data only.
type dataFile struct{ *os.File }

// Sync is fdatasync. The descriptor is held for as long as that takes, so a
// Close meanwhile does no harm.
func (f dataFile) Sync() error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		for {
			if serr = unix.Fdatasync(int(fd)); !errors.Is(serr, unix.EINTR) { //nolint:gosec // a descriptor
				return
			}
		}
	})
	return errors.Join(err, serr)
}

// Sync makes everything that was appended before safe on disk; the caller may
// then acknowledge it. Appending and reading go on meanwhile. After an error
// other than ErrClosed the log takes nothing more, since what the kernel did
// with the pages is not known: it is cut back to what was safe, and opening it
// again goes on from there.
func (l *Log) Sync() error {
	l.mu.RLock()
	if err := l.writable(); err != nil {
		l.mu.RUnlock()
		return err
	}
	s, dirSafe := l.last(), l.dirSafe
	size, end := s.size, s.end
	l.mu.RUnlock()

	err := s.file.Sync()
	if err == nil && !dirSafe {
		err = syncDir(l.dir)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, fs.ErrClosed):
		return l.writable() // the file was synced before it was let go, or the log is closed
	case err != nil:
		return l.fail(s, err)
	}
	if size > s.synced {
		s.synced, s.syncedEnd = size, end
	}
	s.dirty = s.dirty && s.size != size
	if s == l.last() {
		l.dirSafe = true
	}
	return nil
}

// syncSegment is Sync for one file; the caller holds the lock.
func (l *Log) syncSegment(s *segment) error {
	if !s.dirty {
		return nil
	}
	if err := s.file.Sync(); err != nil {
		return l.fail(s, err)
	}
	s.synced, s.syncedEnd, s.dirty = s.size, s.end, false
	return nil
}

func (l *Log) fail(s *segment, err error) error {
	if l.broken == nil {
		l.broken = fmt.Errorf("sync session log: %w", full(err))
		s.cut()
	}
	return l.broken
}

// cut goes back to what is known to be on disk.
func (s *segment) cut() {
	s.size, s.end = max(s.synced, headerSize), s.syncedEnd
	_ = s.file.Truncate(s.size)
	for len(s.marks) > 0 && s.marks[len(s.marks)-1].pos >= s.size {
		s.marks = s.marks[:len(s.marks)-1]
	}
}

// full turns what the kernel says of a full disk into ErrFull.
func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
