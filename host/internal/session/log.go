package session

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// slots is how many files a log is cut into; the oldest one goes when a new one
// is needed.
const slots = 4

// DefaultQuota is used for a quota of 0 or less.
const DefaultQuota = 64 << 20

// minSegment keeps a tiny quota from making a file per byte.
const minSegment = 256

// Log is the output log of one session. One goroutine may append while any
// number read. The same session must not be opened twice at a time.
type Log struct {
	dir, name string
	segSize   int64

	mu       sync.RWMutex
	segs     []*segment // by base; the last one is written to
	finished bool
	closed   bool
	broken   error // a sync failed: nothing is believed any more
	dirSafe  bool  // the directory entries are on disk
	buf      []byte

	waitMu  sync.Mutex
	changed chan struct{} // nil: nobody waits
}

// fileName is the name of a session's log file in one slot: ids are hashed
// wherever they name a file.
func fileName(sessionID string) string {
	sum := sha256.Sum256([]byte(sessionID))
	return hex.EncodeToString(sum[:])
}

// OpenLog opens or makes the log of a session below dir. The files have mode
// 0600. After a crash Next is the end of what was written whole; a torn tail is
// cut off, since it was never acknowledged. quota is in bytes of disk, 0 =
// DefaultQuota; when the log would grow beyond it, its oldest quarter goes.
func OpenLog(dir, sessionID string, quota int64) (*Log, error) {
	if quota <= 0 {
		quota = DefaultQuota
	}
	l := &Log{dir: dir, name: fileName(sessionID), segSize: max(quota/slots, minSegment)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open session log: %w", err)
	}
	if err := l.recover(); err != nil {
		_ = l.closeFiles()
		return nil, fmt.Errorf("open session log: %w", err)
	}
	if len(l.segs) == 0 {
		s, err := create(l.path(0), 0, 0)
		if err != nil {
			return nil, fmt.Errorf("open session log: %w", full(err))
		}
		l.segs = []*segment{s}
	}
	return l, nil
}

// RemoveLog deletes a session's log. The log must not be open.
func RemoveLog(dir, sessionID string) error {
	l := &Log{dir: dir, name: fileName(sessionID)}
	var errs []error
	for i := range slots {
		if err := os.Remove(l.path(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (l *Log) path(slot int) string {
	return filepath.Join(l.dir, fmt.Sprintf("%s.%d.log", l.name, slot))
}

// Next is the offset of the next byte.
func (l *Log) Next() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last().end
}

// Base is the offset from which on the log still holds output.
func (l *Log) Base() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segs[0].base
}

// Finished says that no more output follows.
func (l *Log) Finished() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.finished
}

func (l *Log) last() *segment { return l.segs[len(l.segs)-1] }

// Append adds output that begins at offset. What is there already is skipped;
// a hole is ErrHole. Readers see it at once; it is safe after Sync.
func (l *Log) Append(stream Stream, offset uint64, data []byte) error {
	if stream != Stdout && stream != Stderr {
		return fmt.Errorf("unknown output stream %d", stream)
	}
	l.mu.Lock()
	defer l.wake()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	next := l.last().end
	if offset > next {
		return fmt.Errorf("%w: at %d, next is %d", ErrHole, offset, next)
	}
	if offset+uint64(len(data)) <= next {
		return nil
	}
	if l.finished {
		return ErrFinished
	}
	data = data[next-offset:]
	most := int(min(maxRecord, l.segSize/2))
	for len(data) > 0 {
		n := min(len(data), most)
		if err := l.write(uint8(stream), data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// Gap says that the output from one offset up to another is gone for good. It
// may overlap what is there.
func (l *Log) Gap(from, to uint64) error {
	l.mu.Lock()
	defer l.wake()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	next := l.last().end
	switch {
	case from > next:
		return fmt.Errorf("%w: gap at %d, next is %d", ErrHole, from, next)
	case to <= next:
		return nil
	case l.finished:
		return ErrFinished
	}
	return l.write(kindGap, binary.LittleEndian.AppendUint64(nil, to))
}

// Finish says that no more output follows and makes all of it safe. Readers get
// io.EOF behind the end, even when writing that down fails.
func (l *Log) Finish() error {
	err := func() error {
		l.mu.Lock()
		defer l.wake()
		defer l.mu.Unlock()
		if l.finished {
			return nil
		}
		if err := l.writable(); err != nil {
			return err
		}
		err := l.write(kindFinish, nil)
		l.finished = true
		return err
	}()
	if err != nil {
		return err
	}
	return l.Sync()
}

func (l *Log) writable() error {
	if l.closed {
		return ErrClosed
	}
	return l.broken
}

// write adds one record. Either it is there whole or nothing has changed.
func (l *Log) write(kind uint8, data []byte) error {
	if need := int64(recordHead + len(data)); l.last().size+need > l.segSize && l.last().size > headerSize {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	s := l.last()
	l.buf = appendRecord(l.buf[:0], kind, s.end, data)
	if _, err := s.file.WriteAt(l.buf, s.size); err != nil {
		_ = s.file.Truncate(s.size)
		return fmt.Errorf("write session log: %w", full(err))
	}
	s.note(kind, data)
	return nil
}

// Close lets go of the files. Readers get ErrClosed. Nothing is synced.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.wake()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	return l.closeFiles()
}

func (l *Log) closeFiles() error {
	var errs []error
	for _, s := range l.segs {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}
