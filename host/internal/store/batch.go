package store

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// batchRequest is a Batch in the queue.
type batchRequest struct {
	ticket
	b      *Batch
	worked Batch          // b after its Work
	blobs  map[int][]byte // of events whose payload is in a file
	held   [][]byte       // payload files that must not be removed meanwhile
	size   int
}

// release lets go of the payload files.
func (r *batchRequest) release(s *Store) {
	for _, sum := range r.held {
		s.blobs.held.release([sha256.Size]byte(sum))
	}
}

func (r *batchRequest) mayUseReserve() bool { return reserved(r.b.Events) }

// prepare does everything that needs no writer, on the caller's own time:
// checks the events' form, digests and links, and writes large payloads.
func (r *batchRequest) prepare(s *Store) error {
	b := r.b
	if b.Mission != nil {
		if b.Task == "" {
			b.Task = b.Mission.MissionID
		}
		if b.Task != b.Mission.MissionID {
			return fmt.Errorf("%w: events of task %q with the mission row of %q", ErrInvalid, b.Task, b.Mission.MissionID)
		}
		r.size += len(b.Mission.Data)
	}
	return r.prepareEvents(s, b)
}

// prepareEvents is prepare for the events alone.
func (r *batchRequest) prepareEvents(s *Store, b *Batch) error {
	if len(b.Events) > 0 && b.Task == "" {
		return fmt.Errorf("%w: events without a task", ErrInvalid)
	}
	inline := reserved(b.Events) // no file of its own when there may be no room for one
	for i := range b.Events {
		ev := &b.Events[i]
		if err := ev.Check(); err != nil {
			return fmt.Errorf("%w: event %d: %w", ErrInvalid, ev.Sequence, err)
		}
		switch {
		case ev.TaskID != b.Task:
			return fmt.Errorf("%w: an event of task %q in a batch of %q", ErrInvalid, ev.TaskID, b.Task)
		case ev.Sequence == 0 || ev.Sequence > math.MaxInt64:
			return fmt.Errorf("%w: sequence %d", ErrInvalid, ev.Sequence)
		case i > 0 && (ev.Sequence != b.Events[i-1].Sequence+1 || ev.PreviousHash != b.Events[i-1].Digest):
			return fmt.Errorf("%w: event %d does not follow the one before it", ErrInvalid, ev.Sequence)
		}
		if ev.Sequence == 1 {
			if id, err := journal.OpeningUUID(ev); err != nil || id != b.JournalUUID {
				return fmt.Errorf("%w: the first event must be task_opened with the batch's journal_uuid %q: %q, %w", ErrInvalid, b.JournalUUID, id, orNil(err))
			}
		}
		if len(ev.Payload) > s.opts.BlobOver && !inline {
			sum, err := s.putBlob(ev.Payload)
			if err != nil {
				return err
			}
			r.held = append(r.held, sum)
			if r.blobs == nil {
				r.blobs = map[int][]byte{}
			}
			r.blobs[i] = sum
			continue
		}
		r.size += len(ev.Payload)
	}
	return nil
}

// orNil keeps a nil error out of %w.
func orNil(err error) error {
	if err == nil {
		return errMismatch
	}
	return err
}

var errMismatch = fmt.Errorf("they differ")

// apply checks the batch against the heads in memory and stages it.
func (r *batchRequest) apply(w *writer) error {
	b := r.b
	var writes []workWrite
	if b.Work != nil {
		var err error
		if writes, err = r.work(w); err != nil {
			return err
		}
		b = &r.worked
	}
	if b.Task != "" && (len(b.Events) > 0 || b.Mission != nil) {
		if err := r.applyTask(w, b); err != nil {
			return err
		}
	}
	if err := w.writeWork(writes); err != nil {
		return err
	}
	for i := range b.Outbox {
		if err := w.addOutbox(&b.Outbox[i]); err != nil {
			return err
		}
	}
	for i := range b.Cells {
		c := &b.Cells[i]
		if err := w.sql.putCell.exec(c.CellID, int64(c.Incarnation), c.Instance, c.MissionID, int64(c.Generation), c.State, c.Data); err != nil {
			return err
		}
	}
	for _, id := range b.DropCells {
		if err := w.sql.dropCell.exec(id); err != nil {
			return err
		}
	}
	if b.RuntimeState != nil {
		t, err := w.existing(b.RuntimeState.MissionID)
		if err != nil {
			return err
		}
		rs := b.RuntimeState
		return w.sql.putRuntime.exec(t.staged.no, int64(rs.Generation), int64(rs.Offset), rs.State)
	}
	return nil
}

// work runs the batch's Work on a copy of the batch.
func (r *batchRequest) work(w *writer) (writes []workWrite, err error) {
	r.worked, r.blobs = *r.b, nil
	b := &r.worked
	b.Events, b.Outbox = slices.Clip(b.Events), slices.Clip(b.Outbox)
	if writes, err = w.work(b); err != nil {
		return nil, err
	}
	if b.Mission != nil && b.Mission.MissionID != b.Task {
		return nil, fmt.Errorf("%w: the mission row of %q in a batch of %q", ErrInvalid, b.Mission.MissionID, b.Task)
	}
	return writes, r.prepareEvents(w.s, b)
}

func (r *batchRequest) applyTask(w *writer, b *Batch) error {
	t, err := w.task(b.Task)
	if err != nil {
		return err
	}
	// Everything that can be refused is refused before anything is staged.
	if err := w.refersToKnown(b); err != nil {
		return err
	}
	head := t.staged.head
	if len(b.Events) > 0 {
		if head.JournalUUID == "" {
			head = journal.Genesis(b.Task, b.JournalUUID)
		} else if b.JournalUUID != "" && b.JournalUUID != head.JournalUUID {
			return fmt.Errorf("%w: task %q has journal %s, the batch is of %s", ErrConflict, b.Task, head.JournalUUID, b.JournalUUID)
		}
		first := &b.Events[0]
		if first.Sequence != head.Sequence+1 || first.PreviousHash != head.Digest {
			return fmt.Errorf("%w: task %q is at sequence %d, the batch begins at %d", ErrConflict, b.Task, head.Sequence, first.Sequence)
		}
	}
	w.touch(t)
	if t.staged.no == 0 {
		t.staged.no = w.nextNo
		w.nextNo++
	}
	for i := range b.Events {
		w.addEvent(t, &b.Events[i], r.blobs[i])
	}
	if n := len(b.Events); n > 0 {
		head.Sequence, head.Digest = b.Events[n-1].Sequence, b.Events[n-1].Digest
		t.staged.head = head
		w.newHead(head, b.Events)
	}
	if b.Mission != nil {
		t.mission = b.Mission
	}
	return nil
}

// refersToKnown checks the missions that outbox items and checkpoints name:
// each has a task, or the batch makes it.
func (w *writer) refersToKnown(b *Batch) error {
	for i := range b.Outbox {
		if id := b.Outbox[i].MissionID; id != b.Task {
			if _, err := w.existing(id); err != nil {
				return err
			}
		}
	}
	if rs := b.RuntimeState; rs != nil && rs.MissionID != b.Task {
		_, err := w.existing(rs.MissionID)
		return err
	}
	return nil
}

// nanos is how times of rows are kept: nanoseconds since 1970, 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
