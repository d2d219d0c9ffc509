package store

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// Show is Events for a reader who is to see what there is: an event that is
// damaged or not there comes marked, and those behind it come too. What it lets
// pass was not verified; VerifyTask does that.
func (s *Store) Show(ctx context.Context, task string, after uint64, limit int) ([]journal.Shown, error) {
	no, head, err := s.taskRow(ctx, task)
	if err != nil || after >= head.Sequence || after > math.MaxInt64-uint64(pageMax) {
		return nil, err
	}
	last := min(after+uint64(page(limit)), head.Sequence)
	rows, err := s.eventRows(ctx, no, task, int64(after), int64(last)) //nolint:gosec // bounded above
	byNo := map[uint64]storedEvent{}
	var file *FileError
	if errors.As(err, &file) { // some of them may be in pages that are whole
		for n := after; n <= last; n++ {
			one, err := s.eventRows(ctx, no, task, int64(n), int64(n)) //nolint:gosec // bounded above
			if err != nil && !errors.As(err, &file) {
				return nil, err
			}
			rows = append(rows, one...)
		}
	} else if err != nil {
		return nil, err
	}
	for _, r := range rows {
		byNo[r.ev.Sequence] = r
	}
	out := make([]journal.Shown, 0, last-after)
	for n := after + 1; n <= last; n++ {
		out = append(out, s.shown(task, n, byNo, journal.Genesis(task, head.JournalUUID).Digest, file))
	}
	return out, nil
}

// shown is one event of a page that holds the one before it too.
func (s *Store) shown(task string, n uint64, rows map[uint64]storedEvent, genesis journal.Digest, file *FileError) journal.Shown {
	r, there := rows[n]
	if !there {
		lost := journal.Shown{Event: journal.Event{Sequence: n, TaskID: task}, Damaged: "the record is not in the store"}
		if file != nil {
			lost.Damaged = "the record cannot be read: " + file.Error()
		}
		return lost
	}
	sh := journal.Shown{Event: r.ev}
	if r.bad != nil {
		sh.Damaged = "its stored digest is torn: the record was changed"
	}
	if r.blob != nil {
		var err error
		if sh.Payload, err = s.getBlob(r.blob); err != nil {
			sh.Damaged = fmt.Sprintf("its payload is kept in a file of its own, which cannot be used: %v", err)
		}
	}
	before, known := rows[n-1]
	switch {
	case n == 1:
		sh.PreviousHash = genesis
	case known:
		sh.PreviousHash = before.ev.Digest
	default:
		return sh // what it follows is not known, so its digest says nothing
	}
	if sh.Damaged == "" && (before.bad == nil || n == 1) && sh.Sum() != sh.Digest {
		sh.Damaged = "its digest does not fit what is stored: the record, or the digest of the one before it, was changed"
	}
	return sh
}
