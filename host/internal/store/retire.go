package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// ErrRetired: the task was archived and removed; its id stays taken.
var ErrRetired = errors.New("archived and removed")

// Retirement takes a task that is over out of the store.
type Retirement struct {
	TaskID string
	Head   journal.Head // that its bundle ends at; another one is ErrConflict
	// PayloadDigest answers a dispatch of the same id later.
	PayloadDigest string
	Bundle        string // where it is archived
	At            time.Time
	// Work is what the caller has to remove beside the store; it is kept until
	// Sweep is through.
	Work []byte
}

// Retired is a task that is gone.
type Retired struct {
	TaskID        string
	Head          journal.Head
	Origin        string
	Agent         string
	State         string
	PayloadDigest string
	At            time.Time
	Bundle        string
	Work          []byte // nil: nothing is left to be removed

	no    int64
	blobs []byte
}

// OverCursor is a place in the list of what is over.
type OverCursor struct{ at, no int64 }

// Over lists missions that are over and have not changed since before, those
// that ended first first, behind a cursor; at most limit (1 to 100).
func (s *Store) Over(ctx context.Context, before time.Time, after OverCursor, limit int) (out []MissionRow, next OverCursor, err error) {
	rows, err := queryAll(ctx, s, missionColumns+"WHERE terminal = 1 AND data IS NOT NULL AND updated_at < ? AND (updated_at, no) > (?, ?) ORDER BY updated_at, no LIMIT ?",
		[]any{nanos(before), after.at, after.no, page(limit)}, scanMission)
	for _, r := range rows {
		out = append(out, r.row)
		next = OverCursor{nanos(r.row.UpdatedAt), r.no}
	}
	return out, next, err
}

// Retire removes a task's row in one transaction and notes that it is gone; its
// events go with Sweep. It refuses (ErrConflict) what is not over, has grown
// since, has a cell, or owes the orchestrator an event.
func (s *Store) Retire(ctx context.Context, r Retirement) error {
	if r.Work == nil {
		r.Work = []byte("{}")
	}
	return s.change(ctx, func(w *writer) error { return w.retire(&r) })
}

func (w *writer) retire(r *Retirement) error {
	if err := w.flush(); err != nil { // what others of this transaction did to it counts
		return err
	}
	t, err := w.existing(r.TaskID)
	if err != nil {
		return err
	}
	no := t.staged.no
	conflict := func(why string) error { return fmt.Errorf("%w: task %q %s", ErrConflict, r.TaskID, why) }
	switch {
	case !t.staged.row || !t.staged.ended:
		return conflict("is not over")
	case t.staged.head != r.Head:
		return conflict("has other events than were archived")
	}
	if _, owes := w.s.pending.of(no); owes {
		return conflict("owes the orchestrator events")
	}
	for _, a := range w.tx.added {
		if a.no == no {
			return conflict("owes the orchestrator events")
		}
	}
	n, err := w.c.ints("SELECT (SELECT count(*) FROM cells WHERE mission_id = ?), (SELECT count(*) FROM undeliverable WHERE task_no = ?)", r.TaskID, no)
	if err != nil {
		return err
	}
	if n[0] > 0 {
		return conflict("still has a cell")
	}
	blobs, err := w.blobsOf(no)
	if err != nil {
		return err
	}
	for _, q := range []struct {
		query string
		args  []driver.Value
	}{
		{`INSERT INTO retired (task_no, task_id, journal_uuid, head_seq, head_digest, origin, agent, state, payload, at, bundle, work, blobs)
			SELECT no, task_id, journal_uuid, head_seq, head_digest, origin, agent, state, ?, ?, ?, ?, ? FROM tasks WHERE no = ?`,
			[]driver.Value{r.PayloadDigest, nanos(r.At), r.Bundle, r.Work, blobs, no}},
		{"DELETE FROM runtime_state WHERE task_no = ?", []driver.Value{no}},
		{"DELETE FROM undeliverable WHERE task_no = ?", []driver.Value{no}},
		{"DELETE FROM tasks WHERE no = ?", []driver.Value{no}},
		// Cursors of the feed must not come again when the newest events are gone.
		{"INSERT OR REPLACE INTO meta (key, value) VALUES ('events_to', ?)", []driver.Value{strconv.FormatInt(w.nextEvent-1, 10)}},
	} {
		if _, err := w.c.ints(q.query, q.args...); err != nil {
			return err
		}
	}
	w.tx.undeliverable -= n[1]
	w.tx.heads = append(w.tx.heads, journal.NewHead{Head: r.Head, Ended: true}) // nothing follows, for the file of heads
	delete(w.tasks, r.TaskID)
	return nil
}

// blobsOf gives the payload files of a task, one after the other.
func (w *writer) blobsOf(no int64) ([]byte, error) {
	st, err := w.c.prepareOnce("SELECT DISTINCT blob FROM events WHERE task_no = ? AND blob IS NOT NULL", 1)
	if err != nil {
		return nil, err
	}
	defer st.s.Close()
	out := []byte{}
	err = st.query([]driver.Value{no}, func(v []driver.Value) bool {
		if sum, _ := v[0].([]byte); len(sum) == sha256.Size {
			out = append(out, sum...)
		}
		return true
	})
	return out, err
}

const retiredColumns = "SELECT task_no, task_id, journal_uuid, head_seq, head_digest, origin, agent, state, payload, at, bundle, work, blobs FROM retired "

func scanRetired(rows *sql.Rows) (r Retired, err error) {
	var at int64
	var digest []byte
	err = rows.Scan(&r.no, &r.TaskID, &r.Head.JournalUUID, &r.Head.Sequence, &digest, &r.Origin, &r.Agent, &r.State, &r.PayloadDigest, &at, &r.Bundle, &r.Work, &r.blobs)
	r.At, r.Head.TaskID = fromNanos(at), r.TaskID
	r.Head = fullHead(r.Head, digest)
	return r, err
}

// Retired reads what is kept of a task that is gone; ErrNotFound when there is
// no such task.
func (s *Store) Retired(ctx context.Context, taskID string) (Retired, error) {
	rows, err := queryAll(ctx, s, retiredColumns+"WHERE task_id = ?", []any{taskID}, scanRetired)
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%w: task %q", ErrNotFound, taskID)
	}
	if err != nil {
		return Retired{}, err
	}
	return rows[0], nil
}

// Unswept lists tasks that are gone and of which something is still to be
// removed; at most limit (1 to 100).
func (s *Store) Unswept(ctx context.Context, limit int) ([]Retired, error) {
	return queryAll(ctx, s, retiredColumns+"WHERE work IS NOT NULL ORDER BY task_no LIMIT ?", []any{page(limit)}, scanRetired)
}
