package session

import (
	"errors"
	"fmt"
	"os"
	"sort"
)

// recover reads the slots that exist. One segment is synced before the next is
// made, so only the last can have a torn tail from a crash: it is cut off, since
// it was never acknowledged. Damage in an older one came from outside; what is
// whole before and behind it stays, and readers see the offsets jump.
func (l *Log) recover() error {
	for i := range slots {
		s, err := open(l.path(i), i)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if s != nil {
			l.segs = append(l.segs, s)
		}
	}
	if len(l.segs) == 0 {
		return nil
	}
	sort.Slice(l.segs, func(i, j int) bool { return l.segs[i].base < l.segs[j].base })
	last := l.last()
	l.finished = last.finished
	if last.torn {
		return last.file.Truncate(last.size)
	}
	return nil
}

// rotate goes on in a new file. The old one is synced first, so that what is
// found after a crash has no hole.
func (l *Log) rotate() error {
	old := l.last()
	if err := l.syncSegment(old); err != nil {
		return err
	}
	slot := (old.slot + 1) % slots
	if len(l.segs) == slots {
		gone := l.segs[0]
		_ = gone.file.Close()
		l.segs = append([]*segment(nil), l.segs[1:]...)
		slot = gone.slot
	}
	s, err := create(l.path(slot), slot, old.end)
	if errors.Is(err, os.ErrNotExist) { // the directory was removed
		if err = os.MkdirAll(l.dir, 0o700); err == nil {
			s, err = create(l.path(slot), slot, old.end)
		}
	}
	if err != nil {
		return fmt.Errorf("continue session log: %w", full(err))
	}
	l.segs = append(l.segs, s)
	l.dirSafe = false
	return nil
}
