package store

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// workTables are the workflow's tables that have a number; wf_keys is found by its
// owner.
func workTables() []string {
	return []string{"wf_goals", "wf_agents", "wf_endpoints", "wf_tasks", "wf_attempts", "wf_wakes", "wf_sessions", "wf_messages", "wf_invocations", "wf_runs"}
}

// How much is removed in one transaction, so that commits of others hardly wait.
const (
	sweepRows   = 500
	sweepSpan   = 5000 // rows of the workflow that are looked at
	vacuumPages = 256
	vacuumOver  = 1024 // free pages that are kept for what comes next
)

// Sweep removes what is left of tasks that are gone: events, payload files and
// rows of the workflow, a few at a time between the commits of others, and notes
// that nothing is left. It may be cut short anywhere and done again.
func (s *Store) Sweep(ctx context.Context, gone []Retired) error {
	for _, r := range gone {
		if err := s.sweepEvents(ctx, r.no); err != nil {
			return fmt.Errorf("remove the events of task %q: %w", r.TaskID, err)
		}
		for sum := range slices.Chunk(r.blobs, sha256.Size) {
			if err := s.dropBlob(ctx, sum); err != nil {
				return fmt.Errorf("remove a payload file of task %q: %w", r.TaskID, err)
			}
		}
	}
	if err := s.sweepWork(ctx, gone); err != nil {
		return fmt.Errorf("remove rows of the workflow: %w", err)
	}
	return s.change(ctx, func(w *writer) error {
		for _, r := range gone {
			if _, err := w.c.ints("UPDATE retired SET work = NULL, blobs = NULL WHERE task_no = ?", r.no); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) sweepEvents(ctx context.Context, no int64) error {
	for {
		var left []int64
		err := s.change(ctx, func(w *writer) (err error) {
			if _, err = w.c.ints("DELETE FROM events WHERE id IN (SELECT id FROM events WHERE task_no = ? ORDER BY seq LIMIT ?)", no, int64(sweepRows)); err != nil {
				return err
			}
			left, err = w.c.ints("SELECT EXISTS (SELECT 1 FROM events WHERE task_no = ?)", no)
			return err
		})
		if err != nil || len(left) == 0 || left[0] == 0 {
			return err
		}
	}
}

// dropBlob removes a payload file that no event refers to and nobody is about to
// refer to. It runs in the writer, so that no commit comes in between.
func (s *Store) dropBlob(ctx context.Context, sum []byte) error {
	return s.change(ctx, func(w *writer) error {
		if err := w.flush(); err != nil {
			return err
		}
		n, err := w.c.ints("SELECT EXISTS (SELECT 1 FROM events WHERE blob = ?)", sum)
		if err != nil || n[0] > 0 {
			return err
		}
		return s.blobs.held.unless(sum, func() error {
			if err := os.Remove(s.blobs.file(sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
	})
}

// sweepWork removes the workflow's rows of tasks, walking each table once in
// small steps: rows are not indexed by their owner.
func (s *Store) sweepWork(ctx context.Context, gone []Retired) error {
	if len(gone) == 0 {
		return nil
	}
	marks, owners := "", make([]driver.Value, 0, len(gone))
	for i, r := range gone {
		if i > 0 {
			marks += ", "
		}
		marks += "?"
		owner := workflow.Owner(r.TaskID).Digest()
		owners = append(owners, owner[:])
	}
	err := s.change(ctx, func(w *writer) error {
		_, err := w.c.ints("DELETE FROM wf_keys WHERE owner IN ("+marks+")", owners...)
		return err
	})
	if err != nil {
		return err
	}
	for _, table := range workTables() {
		for from := int64(0); ; from += sweepSpan {
			var last []int64
			err := s.change(ctx, func(w *writer) (err error) {
				args := append([]driver.Value{from, from + sweepSpan}, owners...)
				if _, err = w.c.ints("DELETE FROM "+table+" WHERE n > ? AND n <= ? AND owner IN ("+marks+")", args...); err != nil {
					return err
				}
				last, err = w.c.ints("SELECT coalesce(max(n), 0) FROM " + table)
				return err
			})
			if err != nil {
				return err
			}
			if from+sweepSpan >= last[0] {
				break
			}
		}
	}
	return nil
}

// Space says how many bytes of the store's file are in use and how many are
// free inside of it.
func (s *Store) Space(ctx context.Context) (used, free int64, err error) {
	var size, pages, unused int64
	err = s.readers.QueryRowContext(ctx, "SELECT (SELECT page_size FROM pragma_page_size), (SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count)").Scan(&size, &pages, &unused)
	return size * (pages - unused), size * unused, s.readError(err)
}

// Vacuum gives free space of the file back to the file system, a little at a
// time between the commits of others. Some is kept for what comes next.
func (s *Store) Vacuum(ctx context.Context) error {
	for {
		var before, after []int64
		err := s.change(ctx, func(w *writer) (err error) {
			if before, err = w.c.ints("SELECT freelist_count FROM pragma_freelist_count"); err != nil || before[0] <= vacuumOver {
				after = before
				return err
			}
			st, err := w.c.prepareOnce(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumPages), 0)
			if err != nil {
				return err
			}
			err = errors.Join(st.each(func([]driver.Value) {}), st.s.Close())
			if err == nil {
				after, err = w.c.ints("SELECT freelist_count FROM pragma_freelist_count")
			}
			return err
		})
		if err != nil || after[0] >= before[0] { // done, or a file that cannot shrink
			return err
		}
	}
}

// heldBlobs counts the commits under way that refer to a payload file.
type heldBlobs struct {
	mu sync.Mutex
	n  map[[sha256.Size]byte]int
}

func (h *heldBlobs) hold(sum [sha256.Size]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == nil {
		h.n = map[[sha256.Size]byte]int{}
	}
	h.n[sum]++
}

func (h *heldBlobs) release(sum [sha256.Size]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n[sum]--; h.n[sum] <= 0 {
		delete(h.n, sum)
	}
}

// unless runs f while nobody holds the file and nobody can come to hold it.
func (h *heldBlobs) unless(sum []byte, f func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n[[sha256.Size]byte(sum)] > 0 {
		return nil
	}
	return f()
}
