package store

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// Events reads events with a sequence above after, in order, at most limit
// (1 to 100). ErrNotFound when there is no such task.
func (s *Store) Events(ctx context.Context, task string, after uint64, limit int) ([]journal.Event, error) {
	no, head, err := s.taskRow(ctx, task)
	if err != nil {
		return nil, err
	}
	if after >= head.Sequence {
		return nil, nil
	}
	events, err := s.events(ctx, no, journal.Genesis(task, head.JournalUUID), after, page(limit))
	if err != nil {
		return nil, err
	}
	return events, nil
}

// events reads a page. The previous digest is not stored with an event: it is
// the digest of the one before, which is read along. With an error come the
// events before the one that cannot be read.
func (s *Store) events(ctx context.Context, no int64, genesis journal.Head, after uint64, limit int) ([]journal.Event, error) {
	if after > math.MaxInt64-uint64(limit) {
		return nil, nil
	}
	rows, err := s.eventRows(ctx, no, genesis.TaskID, int64(after), int64(after)+int64(limit))
	if err != nil {
		return nil, err
	}
	out := make([]journal.Event, 0, len(rows))
	previous := genesis.Digest
	for i := range rows {
		r := &rows[i]
		if r.bad != nil {
			return out, r.bad
		}
		if r.ev.Sequence > after {
			if r.blob != nil {
				if r.ev.Payload, err = s.getBlob(r.blob); err != nil {
					return out, fmt.Errorf("event %d of task %q: %w", r.ev.Sequence, genesis.TaskID, err)
				}
			}
			r.ev.PreviousHash = previous
			out = append(out, r.ev)
		}
		previous = r.ev.Digest
	}
	return out, nil
}

// eventRows reads the rows of events from one sequence to another.
func (s *Store) eventRows(ctx context.Context, no int64, task string, from, to int64) ([]storedEvent, error) {
	return queryAll(ctx, s, "SELECT seq, event_id, at, kind, payload, blob, digest FROM events WHERE task_no = ? AND seq >= ? AND seq <= ? ORDER BY seq",
		[]any{no, from, to}, func(rows *sql.Rows) (r storedEvent, err error) {
			var at int64
			var payload sql.NullString
			var digest []byte
			ev := &r.ev
			err = rows.Scan(&ev.Sequence, &ev.EventID, &at, &ev.Kind, &payload, &r.blob, &digest)
			ev.TaskID, ev.Timestamp, ev.Payload = task, time.UnixMilli(at).UTC(), payload.String
			if len(digest) != len(ev.Digest) {
				r.bad = fmt.Errorf("%w: event %d of task %q has a digest of %d bytes", ErrDamaged, ev.Sequence, task, len(digest))
			}
			copy(ev.Digest[:], digest)
			return r, err
		})
}

type storedEvent struct {
	ev   journal.Event
	blob []byte
	bad  error
}

// ExportTask writes the task's chain as JSON lines that journal.Verify reads.
// What is written is one whole chain: the head as it was at the call.
func (s *Store) ExportTask(ctx context.Context, task string, w io.Writer) error {
	no, head, err := s.taskRow(ctx, task)
	if err != nil {
		return err
	}
	out := journal.NewWriter(w)
	genesis := journal.Genesis(task, head.JournalUUID)
	for after := uint64(0); after < head.Sequence; {
		events, err := s.events(ctx, no, genesis, after, pageMax)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return fmt.Errorf("%w: task %q has no event after %d, its head is at %d", ErrDamaged, task, after, head.Sequence)
		}
		for i := range events {
			if events[i].Sequence > head.Sequence {
				break
			}
			if err := out.Write(&events[i]); err != nil {
				return fmt.Errorf("export task %q: %w", task, err)
			}
		}
		after = events[len(events)-1].Sequence
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("export task %q: %w", task, err)
	}
	return nil
}
