package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// VerifyTask checks a task's whole chain: every digest and link, the projected
// head, and the trusted head outside the data directory if there is one. An
// error is a *journal.ChainError where the chain itself is bad.
func (s *Store) VerifyTask(ctx context.Context, taskID string) error {
	_, err := s.verify(ctx, taskID, false)
	return err
}

// Check is VerifyTask that also gives the last good place of the chain, and the
// trusted head that it was held against; nil: there is none.
func (s *Store) Check(ctx context.Context, taskID string) (good journal.Head, trusted *journal.Head, err error) {
	v, err := s.verify(ctx, taskID, false)
	if v.anchor {
		trusted = &v.trusted
	}
	return v.good, trusted, err
}

// VerifyRecent is VerifyTask from the trusted head on (rulings 43): what is
// before it was signed, and is only checked to be there. Without a trusted
// head the whole chain is checked.
func (s *Store) VerifyRecent(ctx context.Context, taskID string) error {
	_, err := s.verify(ctx, taskID, true)
	return err
}

// verdict is what verify found: the last good head, and the task.
type verdict struct {
	no      int64
	head    journal.Head // projected
	good    journal.Head // of the part that is good
	trusted journal.Head
	anchor  bool // there is a trusted head
}

func (s *Store) verify(ctx context.Context, taskID string, recent bool) (v verdict, err error) {
	// The trusted head first: heads are published after their commit, so one
	// that is read now is in the chain that is read next.
	if s.opts.Heads != nil {
		v.trusted, v.anchor = s.opts.Heads.Trusted(taskID)
		if err := s.opts.Heads.Doubt(taskID); err != nil {
			return v, fmt.Errorf("the trusted head of task %q cannot be relied on: %w", taskID, err)
		}
	}
	v.no, v.head, err = s.taskRow(ctx, taskID)
	if errors.Is(err, ErrNotFound) {
		if r, rerr := s.Retired(ctx, taskID); rerr == nil {
			return v, fmt.Errorf("task %q: %w: its journal is %s", taskID, ErrRetired, r.Bundle)
		}
	}
	if errors.Is(err, ErrNotFound) && v.anchor {
		return v, &journal.ChainError{Fault: journal.FaultTruncated, TaskID: taskID, Sequence: 1,
			Detail: fmt.Sprintf("the store does not know the task, its trusted head is at %d: the store was lost or put back from an older copy", v.trusted.Sequence)}
	}
	if err != nil {
		return v, err
	}
	v.good, err = s.verifyChain(ctx, v, recent)
	if err != nil {
		return v, fmt.Errorf("task %q: %w", taskID, err)
	}
	return v, nil
}

func (s *Store) verifyChain(ctx context.Context, v verdict, recent bool) (journal.Head, error) {
	genesis := journal.Genesis(v.head.TaskID, v.head.JournalUUID)
	var trusted *journal.Head
	if v.anchor {
		trusted = &v.trusted
	}
	chain, good := journal.NewChain(trusted), genesis
	if recent && v.anchor && v.trusted.Sequence > 1 && v.trusted.Sequence <= v.head.Sequence {
		from, err := s.signedPrefix(ctx, v, genesis)
		if err != nil {
			return good, err
		}
		chain, good = journal.ResumeChain(from, nil), from
	}
	for {
		events, unread := s.events(ctx, v.no, genesis, good.Sequence, pageMax)
		for i := range events {
			if id, err := openingOf(&events[i]); err == nil && id != v.head.JournalUUID {
				return good, &journal.ChainError{Fault: journal.FaultGenesis, TaskID: v.head.TaskID, Sequence: 1,
					Detail: fmt.Sprintf("task_opened names journal %s, the task's row %s", id, v.head.JournalUUID)}
			}
			if err := chain.Add(&events[i]); err != nil {
				return good, err
			}
			good = chain.Head()
		}
		if unread != nil {
			return good, unread
		}
		if len(events) == 0 || (len(events) < pageMax && good.Sequence >= v.head.Sequence) {
			break
		}
	}
	if err := chain.End(); err != nil {
		return good, restored(err, v)
	}
	// Commits may have come since the head was read; a chain that is shorter, or
	// another one at that place, is damage.
	if good.Sequence < v.head.Sequence {
		return good, &journal.ChainError{Fault: journal.FaultTruncated, TaskID: v.head.TaskID, Sequence: good.Sequence + 1,
			Detail: fmt.Sprintf("the events end at %d, the task's row says %d", good.Sequence, v.head.Sequence)}
	}
	return good, s.matchesRow(ctx, v, good)
}

// signedPrefix checks that the event at the trusted head is the signed one and
// that as many events as its sequence says are before it.
func (s *Store) signedPrefix(ctx context.Context, v verdict, genesis journal.Head) (journal.Head, error) {
	last, err := s.events(ctx, v.no, genesis, v.trusted.Sequence-1, 1)
	if err != nil {
		return genesis, err
	}
	fault := func(f journal.Fault, format string, args ...any) error {
		return &journal.ChainError{Fault: f, TaskID: v.head.TaskID, Sequence: v.trusted.Sequence, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case v.trusted.JournalUUID != v.head.JournalUUID:
		return genesis, fault(journal.FaultUntrusted, "the trusted head is of journal %s, the task's is %s", v.trusted.JournalUUID, v.head.JournalUUID)
	case len(last) == 0:
		return genesis, fault(journal.FaultGap, "the event of the trusted head is missing")
	case last[0].Digest != v.trusted.Digest:
		return genesis, fault(journal.FaultUntrusted, "the trusted head has digest %s, the journal has %s", v.trusted.Digest, last[0].Digest)
	case last[0].Sum() != last[0].Digest:
		return genesis, fault(journal.FaultChanged, "the content of the event at the trusted head does not match its digest")
	}
	var count uint64
	err = s.readers.QueryRowContext(ctx, "SELECT count(*) FROM events WHERE task_no = ? AND seq <= ?", v.no, int64(v.trusted.Sequence)).Scan(&count)
	if err == nil && count != v.trusted.Sequence {
		err = fault(journal.FaultGap, "there are %d events up to the trusted head", count)
	}
	return v.trusted, err
}

// matchesRow compares the chain with the projected head.
func (s *Store) matchesRow(ctx context.Context, v verdict, good journal.Head) error {
	fault := func(seq uint64, format string, args ...any) error {
		return &journal.ChainError{Fault: journal.FaultUntrusted, TaskID: v.head.TaskID, Sequence: seq, Detail: fmt.Sprintf(format, args...)}
	}
	at := good.Digest
	if good.Sequence != v.head.Sequence {
		// More events than the row says: commits since, or rows that no commit made.
		if _, now, err := s.taskRow(ctx, v.head.TaskID); err != nil || now.Sequence < good.Sequence {
			return errors.Join(err, fault(v.head.Sequence+1, "there are events up to %d, the task's row says %d", good.Sequence, v.head.Sequence))
		}
		events, err := s.events(ctx, v.no, journal.Genesis(v.head.TaskID, v.head.JournalUUID), v.head.Sequence-1, 1)
		if err != nil || len(events) == 0 {
			return err
		}
		at = events[0].Digest
	}
	if at != v.head.Digest {
		return fault(v.head.Sequence, "the event has digest %s, the task's row says %s", at, v.head.Digest)
	}
	return nil
}

// openingOf is the journal's id for a first event, and an error for others.
func openingOf(ev *journal.Event) (string, error) {
	if ev.Sequence != 1 {
		return "", errNotFirst
	}
	return journal.OpeningUUID(ev)
}

var errNotFirst = errors.New("not the first event")

// restored says in words what a chain that ends too early means.
func restored(err error, v verdict) error {
	var ce *journal.ChainError
	if errors.As(err, &ce) && ce.Fault == journal.FaultTruncated {
		ce.Detail += "; the store was cut, or put back from an older copy"
	}
	return err
}

// Trusted gives the task's last head outside the data directory, if the store
// was opened with one.
func (s *Store) Trusted(taskID string) (journal.Head, bool) {
	if s.opts.Heads == nil {
		return journal.Head{}, false
	}
	return s.opts.Heads.Trusted(taskID)
}
