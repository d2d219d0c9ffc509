package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// anyTask is the key under which those wait who follow every task; a task's id
// is never empty.
const anyTask = ""

// Changed gives a channel that is closed at the next commit of events to any
// task, or when the store is closed.
func (s *Store) Changed() <-chan struct{} { return s.EventsChanged(anyTask) }

// FeedEnd is the cursor of the newest event of all tasks; 0 when there is none.
func (s *Store) FeedEnd(ctx context.Context) (int64, error) {
	ids, err := queryAll(ctx, s, "SELECT coalesce(max(id), 0) FROM events", nil, func(rows *sql.Rows) (id int64, err error) {
		return id, rows.Scan(&id)
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return ids[0], nil
}

// Feed reads the events of all tasks in the order of their commits, behind a
// cursor, at most limit (1 to 100). cursors[i] is the place of events[i].
func (s *Store) Feed(ctx context.Context, after int64, limit int) (events []journal.Event, cursors []int64, err error) {
	const query = `SELECT e.id, t.task_id, t.journal_uuid, e.seq, e.event_id, e.at, e.kind, e.payload, e.blob, e.digest,
		(SELECT p.digest FROM events p WHERE p.task_no = e.task_no AND p.seq = e.seq - 1)
		FROM events e JOIN tasks t ON t.no = e.task_no WHERE e.id > ? ORDER BY e.id LIMIT ?`
	rows, err := queryAll(ctx, s, query, []any{after, page(limit)}, func(rows *sql.Rows) (r feedRow, err error) {
		var at int64
		var payload sql.NullString
		var digest, previous []byte
		ev := &r.ev
		err = rows.Scan(&r.cursor, &ev.TaskID, &r.journal, &ev.Sequence, &ev.EventID, &at, &ev.Kind, &payload, &r.blob, &digest, &previous)
		ev.Timestamp, ev.Payload = time.UnixMilli(at).UTC(), payload.String
		copy(ev.Digest[:], digest)
		if previous == nil {
			ev.PreviousHash = journal.Genesis(ev.TaskID, r.journal).Digest
		} else {
			copy(ev.PreviousHash[:], previous)
		}
		return r, err
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range rows {
		r := &rows[i]
		if r.blob != nil {
			if r.ev.Payload, err = s.getBlob(r.blob); err != nil { // the others are to come all the same; this one has no payload
				s.log.Error("the payload of an event cannot be read", "task", r.ev.TaskID, "sequence", r.ev.Sequence, "error", err)
			}
		}
		events, cursors = append(events, r.ev), append(cursors, r.cursor)
	}
	return events, cursors, nil
}

type feedRow struct {
	ev      journal.Event
	cursor  int64
	journal string
	blob    []byte
}
