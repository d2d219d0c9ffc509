package store_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/store"
)

// zeroPage overwrites a page of a store that is closed: the root of a table or an
// index, or with an empty name the file's first.
func zeroPage(t *testing.T, dir, table string) {
	t.Helper()
	path := filepath.Join(dir, "data", "missions.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var size, page int64
	if err := errors.Join(db.QueryRow("PRAGMA page_size").Scan(&size),
		db.QueryRow("SELECT coalesce((SELECT rootpage FROM sqlite_schema WHERE name = ?), 1)", table).Scan(&page), db.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, size), (page-1)*size)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestADamagedFileIsNamedWithWhatToDo, at the start or at the first reading.
func TestADamagedFileIsNamedWithWhatToDo(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"", "tasks", "cells", "events", "meta"} {
		t.Run("page of "+table, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			mission(t, s, "m", 40)
			closeStore(t, s)
			zeroPage(t, dir, table)
			s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data")})
			if err == nil {
				defer closeStore(t, s)
				_, err = s.Events(ctx, "m", 0, 10)
				if err == nil {
					err = s.VerifyTask(ctx, "m")
				}
			}
			var file *store.FileError
			if !errors.As(err, &file) || !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("%v", err)
			}
			for _, word := range []string{filepath.Join(dir, "data", "missions.db"), "stop the host", "the newest good copy", "airlock journal repair"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q lacks %q", err, word)
				}
			}
		})
	}
}

// TestADamagedEventIsShownAmongTheOthers: one record is torn, changed or gone.
// It is marked, and the others come.
func TestADamagedEventIsShownAmongTheOthers(t *testing.T) {
	t.Parallel()
	const bad = 5
	for name, c := range map[string]struct{ query, says string }{
		"payload torn":    {"UPDATE events SET payload = substr(payload, 1, length(payload) - 2) WHERE seq = 5", "its digest does not fit"},
		"payload changed": {"UPDATE events SET payload = '{\"v\":9}' WHERE seq = 5", "its digest does not fit"},
		"payload empty":   {"UPDATE events SET payload = '' WHERE seq = 5", "its digest does not fit"},
		"digest torn":     {"UPDATE events SET digest = x'0011' WHERE seq = 5", "its stored digest is torn"},
		"record gone":     {"DELETE FROM events WHERE seq = 5", "the record is not in the store"},
		"blob gone":       {"UPDATE events SET payload = NULL, blob = zeroblob(32) WHERE seq = 5", "a file of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			mission(t, s, "m", 12)
			head, err := s.Head(ctx, "m")
			if err != nil {
				t.Fatal(err)
			}
			closeStore(t, s)
			tamper(t, dir, c.query)
			s = open(t, dir)
			var seen uint64
			for after := uint64(0); ; {
				page, err := s.Show(ctx, "m", after, 4)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				for _, ev := range page {
					if seen++; ev.Sequence != seen {
						t.Errorf("event %d came as the %dth", ev.Sequence, seen)
					}
					switch {
					case ev.Sequence == bad && !strings.Contains(ev.Damaged, c.says):
						t.Errorf("the damaged event: %q", ev.Damaged)
					case ev.Sequence != bad && ev.Damaged != "":
						t.Errorf("event %d: %q", ev.Sequence, ev.Damaged)
					}
					text, err := json.Marshal(ev)
					if err != nil || strings.Contains(string(text), `"damaged"`) != (ev.Sequence == bad) {
						t.Errorf("as JSON: %s %v", text, err)
					}
				}
				after = page[len(page)-1].Sequence
			}
			if seen != head.Sequence {
				t.Errorf("%d events came of %d", seen, head.Sequence)
			}
		})
	}
}

// TestEventsInWholePagesAreShownFromADamagedFile.
func TestEventsInWholePagesAreShownFromADamagedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	mission(t, s, "m", 400)
	head, err := s.Head(ctx, "m")
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	path := filepath.Join(dir, "data", "missions.db")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A page full of payloads, which is neither the root of anything nor an index.
	var pages []int
	for at := 4096 * 4; at+4096 <= len(text); at += 4096 {
		if text[at] == 13 && strings.Count(string(text[at:at+4096]), `"v":1`) > 2 {
			pages = append(pages, at)
		}
	}
	if len(pages) < 3 {
		t.Fatalf("pages of events: %v", pages)
	}
	page := pages[len(pages)/2]
	clear(text[page : page+4096])
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	good, bad := 0, 0
	for after := uint64(0); after < head.Sequence; after += 100 {
		events, err := s.Show(ctx, "m", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if ev.Damaged == "" {
				good++
			} else if bad++; ev.Sequence == 0 {
				t.Errorf("a damaged event without its place: %+v", ev)
			}
		}
	}
	if good < int(head.Sequence)/2 || bad == 0 || good+bad != int(head.Sequence) {
		t.Errorf("%d good and %d damaged events of %d", good, bad, head.Sequence)
	}
}
