package session

import (
	"context"
	"io"
)

// ReadAt reads from offset on, at most limit bytes (0 = 64 KiB) in pieces of
// one stream each. Below Base it begins at Base. At the end it answers nothing,
// or io.EOF once the log is finished.
func (l *Log) ReadAt(offset uint64, limit int) ([]Segment, error) {
	if limit <= 0 {
		limit = maxRecord
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, ErrClosed
	}
	var out []Segment
	for _, s := range l.segs {
		if s.end <= offset {
			continue
		}
		var got int
		var err error
		if out, got, err = s.read(out, offset, limit); err != nil {
			return nil, err
		}
		if limit -= got; limit <= 0 {
			return out, nil
		}
	}
	if len(out) == 0 && l.finished {
		return nil, io.EOF
	}
	return out, nil
}

// Wait returns once Next is more than offset or the log is finished.
func (l *Log) Wait(ctx context.Context, offset uint64) error {
	for {
		l.waitMu.Lock()
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.waitMu.Unlock()

		l.mu.RLock()
		done, closed := l.last().end > offset || l.finished, l.closed
		l.mu.RUnlock()
		switch {
		case closed:
			return ErrClosed
		case done:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wake tells everybody who waits to look again.
func (l *Log) wake() {
	l.waitMu.Lock()
	defer l.waitMu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Follow is ReadAt that waits until there is something to read: data at offset
// or behind it, or the end (io.EOF). A gap at the end of the log is waited out.
func (l *Log) Follow(ctx context.Context, offset uint64, limit int) ([]Segment, error) {
	for {
		next := max(l.Next(), offset)
		segs, err := l.ReadAt(offset, limit)
		if len(segs) > 0 || err != nil {
			return segs, err
		}
		if err := l.Wait(ctx, next); err != nil {
			return nil, err
		}
	}
}
