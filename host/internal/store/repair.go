package store

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// ErrNotRepairable: the damage cannot be cut off, or there is none.
var ErrNotRepairable = errors.New("the journal cannot be repaired")

// Repair asks for the bad end of a chain to be cut off.
type Repair struct {
	Actor, Reason string
	EventID       string    // of the repaired event
	At            time.Time // of the repaired event
}

// RepairPlan is what Repair would do.
type RepairPlan struct {
	Fault       error  // what is wrong with the chain
	CutAfter    uint64 // sequence of the last good event
	CutEvents   int    // rows behind it
	WasSequence uint64 // of the head that the task's row names
	Trusted     uint64 // sequence of the trusted head; 0: there is none
}

// PlanRepair says what Repair would do and changes nothing. The plan's fault is
// set with ErrNotRepairable too, where the chain is bad.
func (s *Store) PlanRepair(ctx context.Context, taskID string) (RepairPlan, error) {
	v, good, bad, err := s.cutAfter(ctx, taskID)
	plan := RepairPlan{Fault: bad, CutAfter: good.Sequence, WasSequence: v.head.Sequence, Trusted: v.trusted.Sequence}
	if err != nil {
		return plan, err
	}
	err = s.readers.QueryRowContext(ctx, "SELECT count(*) FROM events WHERE task_no = ? AND seq > ?", v.no, int64(good.Sequence)).Scan(&plan.CutEvents)
	return plan, s.readError(err)
}

// cutAfter finds the last good event, what is wrong behind it, and whether that
// may be cut off.
func (s *Store) cutAfter(ctx context.Context, taskID string) (v verdict, good journal.Head, bad, err error) {
	v, bad = s.verify(ctx, taskID, false)
	var ce *journal.ChainError
	var file *FileError
	switch {
	case errors.As(bad, &file): // nothing may be cut out of a file that cannot be read
		return v, good, bad, fmt.Errorf("%w: %w", ErrNotRepairable, bad)
	case bad == nil:
		return v, good, nil, fmt.Errorf("%w: task %q verifies", ErrNotRepairable, taskID)
	case v.no == 0 || (!errors.As(bad, &ce) && !errors.Is(bad, ErrDamaged)):
		return v, good, bad, fmt.Errorf("%w: %w", ErrNotRepairable, bad)
	}
	good = v.good
	if good.Sequence > v.head.Sequence && v.head.Sequence > 0 { // rows that no commit made
		events, err := s.events(ctx, v.no, journal.Genesis(taskID, v.head.JournalUUID), v.head.Sequence-1, 1)
		if err != nil || len(events) == 0 {
			return v, good, bad, fmt.Errorf("%w: %w", ErrNotRepairable, errors.Join(bad, err))
		}
		good.Sequence, good.Digest = v.head.Sequence, events[0].Digest
	}
	switch {
	case good.Sequence == 0:
		return v, good, bad, fmt.Errorf("%w: no event is good: %w", ErrNotRepairable, bad)
	case v.anchor && good.Sequence < v.trusted.Sequence:
		return v, good, bad, fmt.Errorf("%w: the last good event is %d, the trusted head is at %d and nothing up to it may be cut: %w", ErrNotRepairable, good.Sequence, v.trusted.Sequence, bad)
	}
	return v, good, bad, nil
}

// Repair cuts a task's chain after its last good event and appends a repaired
// event that says so (rulings 22). It never cuts what the trusted head covers:
// then ErrNotRepairable. What is cut is kept in DIR/repaired. Mission row and
// outbox stay as they are; the caller reduces the task anew. Nobody may commit
// to the task meanwhile (ErrConflict).
func (s *Store) Repair(ctx context.Context, taskID string, r Repair) (journal.Event, error) {
	v, good, bad, err := s.cutAfter(ctx, taskID)
	if err != nil {
		return journal.Event{}, err
	}
	kept, n, err := s.keepCut(ctx, v.no, taskID, good.Sequence, r.At)
	if err != nil {
		return journal.Event{}, fmt.Errorf("keep what is cut: %w", err)
	}
	payload, err := json.Marshal(map[string]any{
		"v": 1, "actor": r.Actor, "reason": r.Reason, "fault": bad.Error(),
		"cut_after": good.Sequence, "cut_events": n, "was_sequence": v.head.Sequence, "was_digest": v.head.Digest, "kept": kept,
	})
	if err != nil {
		return journal.Event{}, err
	}
	good.TaskID, good.JournalUUID = taskID, v.head.JournalUUID
	ev, head := good.Next(r.EventID, r.At, journal.Repaired, string(payload))
	if err := ev.Check(); err != nil {
		return journal.Event{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return ev, s.change(ctx, func(w *writer) error { return w.cut(v, good, ev, head) })
}

// cut replaces the end of the chain in the writer's transaction.
func (w *writer) cut(v verdict, good journal.Head, ev journal.Event, head journal.Head) error {
	if err := w.flush(); err != nil {
		return err
	}
	row, err := w.c.ints("SELECT head_seq FROM tasks WHERE no = ?", v.no)
	if err != nil {
		return err
	}
	if len(row) != 1 || uint64(row[0]) != v.head.Sequence {
		return fmt.Errorf("%w: task %q was written meanwhile", ErrConflict, ev.TaskID)
	}
	t, err := w.existing(ev.TaskID)
	if err != nil {
		return err
	}
	if _, err := w.c.ints("DELETE FROM events WHERE task_no = ? AND seq > ?", v.no, int64(good.Sequence)); err != nil {
		return err
	}
	w.touch(t)
	w.addEvent(t, &ev, nil)
	t.staged.head = head
	w.newHead(head, []journal.Event{ev})
	return nil
}

// keepCut writes the rows that will be cut to a file, as they are.
func (s *Store) keepCut(ctx context.Context, no int64, task string, after uint64, at time.Time) (name string, n int, err error) {
	dir := filepath.Join(s.opts.Dir, "repaired")
	if err := privateDir(dir); err != nil {
		return "", 0, err
	}
	sum := sha256.Sum256([]byte(task))
	name = fmt.Sprintf("%s-%s.jsonl", hex.EncodeToString(sum[:8]), at.UTC().Format("20060102T150405.000"))
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", 0, err
	}
	out := bufio.NewWriter(f)
	enc := json.NewEncoder(out)
	for id := int64(0); err == nil; {
		var rows []cutRow
		rows, err = queryAll(ctx, s, "SELECT id, seq, event_id, at, kind, payload, blob, digest FROM events WHERE task_no = ? AND seq > ? AND id > ? ORDER BY id LIMIT ?",
			[]any{no, int64(after), id, pageMax}, func(r *sql.Rows) (c cutRow, err error) {
				err = r.Scan(&c.ID, &c.Seq, &c.EventID, &c.At, &c.Kind, &c.Payload, &c.Blob, &c.Digest)
				c.Task = task
				return c, err
			})
		for _, r := range rows {
			id = r.ID
			n++
			err = errors.Join(err, enc.Encode(r))
		}
		if len(rows) < pageMax {
			break
		}
	}
	return name, n, errors.Join(err, out.Flush(), f.Sync(), f.Close(), syncDir(dir))
}

// cutRow is a row as it was, sound or not.
type cutRow struct {
	ID      int64   `json:"id"`
	Task    string  `json:"task_id"`
	Seq     int64   `json:"sequence"`
	EventID string  `json:"event_id"`
	At      int64   `json:"at_ms"`
	Kind    string  `json:"kind"`
	Payload *string `json:"payload"`
	Blob    []byte  `json:"blob,omitempty"`
	Digest  []byte  `json:"digest"`
}
