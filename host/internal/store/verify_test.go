package store_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

func withHeads(l *heads.Log) func(*store.Options) {
	return func(o *store.Options) { o.Heads = l }
}

func TestEveryDamagedRowIsSeen(t *testing.T) {
	t.Parallel()
	const of = " WHERE task_no = (SELECT no FROM tasks WHERE task_id = 'm') AND seq = 150"
	for name, c := range map[string]struct {
		query string
		fault journal.Fault
		seq   uint64
	}{
		"payload":         {"UPDATE events SET payload = replace(payload, 'ran', 'rat')" + of, journal.FaultChanged, 150},
		"one bit of time": {"UPDATE events SET at = at + 1" + of, journal.FaultChanged, 150},
		"kind":            {"UPDATE events SET kind = 'question'" + of, journal.FaultChanged, 150},
		"event id":        {"UPDATE events SET event_id = event_id || 'x'" + of, journal.FaultChanged, 150},
		"digest":          {"UPDATE events SET digest = zeroblob(32)" + of, journal.FaultChanged, 150},
		"gone":            {"DELETE FROM events" + of, journal.FaultGap, 150},
		"a page gone":     {"DELETE FROM events WHERE task_no = (SELECT no FROM tasks WHERE task_id = 'm') AND seq BETWEEN 101 AND 210", journal.FaultTruncated, 101},
		"first gone":      {"DELETE FROM events WHERE task_no = (SELECT no FROM tasks WHERE task_id = 'm') AND seq = 1", journal.FaultGap, 1},
		"tail cut":        {"DELETE FROM events WHERE task_no = (SELECT no FROM tasks WHERE task_id = 'm') AND seq > 240", journal.FaultTruncated, 241},
		"swapped":         {"UPDATE events SET payload = CASE seq WHEN 150 THEN (SELECT payload FROM events WHERE seq = 1 AND task_no = 1) ELSE payload END" + of, journal.FaultChanged, 150},
		"other task's":    {"UPDATE events SET task_no = (SELECT no FROM tasks WHERE task_id = 'm'), seq = 251 WHERE task_no = (SELECT no FROM tasks WHERE task_id = 'n') AND seq = 2", journal.FaultChanged, 251},
		"head's digest":   {"UPDATE tasks SET head_digest = zeroblob(32) WHERE task_id = 'm'", journal.FaultUntrusted, 250},
		"head too low":    {"UPDATE tasks SET head_seq = 200 WHERE task_id = 'm'", journal.FaultUntrusted, 201},
		"head zero":       {"UPDATE tasks SET head_seq = 0 WHERE task_id = 'm'", journal.FaultUntrusted, 1},
		"head too high":   {"UPDATE tasks SET head_seq = 260 WHERE task_id = 'm'", journal.FaultTruncated, 251},
		"journal's id":    {"UPDATE tasks SET journal_uuid = 'other' WHERE task_id = 'm'", journal.FaultGenesis, 1},
		"relabelled":      {"UPDATE tasks SET task_id = CASE task_id WHEN 'm' THEN 'x' ELSE 'm' END WHERE task_id IN ('m', 'n') AND (task_id = 'm' OR NOT EXISTS (SELECT 1 FROM tasks WHERE task_id = 'm'))", journal.FaultChanged, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			n := mission(t, s, "n", 2)
			w := newWorkload("m")
			b := w.next(time.Now())
			for len(b.Events) < 250 {
				b.Events = append(b.Events, w.next(time.Now()).Events...)
			}
			commit(t, s, b)
			if err := s.VerifyTask(ctx, "m"); err != nil {
				t.Fatal(err)
			}
			closeStore(t, s)
			tamper(t, dir, c.query)
			s = open(t, dir)
			task := "m"
			if name == "relabelled" {
				task = "x"
			}
			err := s.VerifyTask(ctx, task)
			var ce *journal.ChainError
			if !errors.As(err, &ce) || ce.Fault != c.fault || ce.Sequence != c.seq {
				t.Fatalf("got %v", err)
			}
			if name != "other task's" && name != "relabelled" { // a bad chain harms no other task
				commit(t, s, n.next(time.Now()))
				if err := s.VerifyTask(ctx, "n"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestAStorePutBackFromAnOlderCopyIsFoundOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := openHeads(t, dir)
	s := open(t, dir, withHeads(log))
	w := mission(t, s, "m", 3)
	closeStore(t, s)
	path := filepath.Join(dir, "data", "missions.db")
	copied, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, withHeads(log))
	commit(t, s, w.next(time.Now()))
	commit(t, s, w.with(journal.Stop, `{"v":1}`))
	mission(t, s, "later", 1)
	if err := log.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for _, verify := range []func(string) error{verifyTask(s), verifyRecent(s)} {
		if err := verify("m"); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	if err := os.WriteFile(path, copied, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, withHeads(log))
	for _, verify := range []func(string) error{verifyTask(s), verifyRecent(s)} {
		for _, task := range []string{"m", "later"} {
			err := verify(task)
			var ce *journal.ChainError
			if !errors.As(err, &ce) || ce.Fault != journal.FaultTruncated || !strings.Contains(err.Error(), "older copy") {
				t.Fatalf("%s: %v", task, err)
			}
		}
	}
	if _, err := s.Repair(ctx, "m", store.Repair{Actor: "op", EventID: "r", At: time.Now()}); !errors.Is(err, store.ErrNotRepairable) {
		t.Fatalf("repaired past the trusted head: %v", err)
	}
	// A whole new history over the old one is no better.
	fork := newWorkload("m")
	fork.head, fork.n = allHead(t, s, "m"), 100
	for range 4 {
		commit(t, s, fork.next(time.Now().Add(time.Hour)))
	}
	var ce *journal.ChainError
	if err := s.VerifyTask(ctx, "m"); !errors.As(err, &ce) || (ce.Fault != journal.FaultUntrusted && ce.Fault != journal.FaultTruncated) {
		t.Fatalf("a rewritten history: %v", err)
	}
}

func allHead(t *testing.T, s *store.Store, task string) journal.Head {
	t.Helper()
	h, err := s.Head(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func verifyTask(s *store.Store) func(string) error {
	return func(task string) error { return s.VerifyTask(ctx, task) }
}

func verifyRecent(s *store.Store) func(string) error {
	return func(task string) error { return s.VerifyRecent(ctx, task) }
}

func TestVerifyRecentChecksFromTheTrustedHeadOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seq  string
		seen bool
	}{"in the signed prefix": {"5", false}, "at the trusted head": {"10", true}, "behind it": {"12", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			key, err := heads.LoadOrCreateKey(filepath.Join(dir, "key", "host.key"))
			if err != nil {
				t.Fatal(err)
			}
			opts := heads.Options{File: filepath.Join(dir, "heads.jsonl"), Key: key, Interval: time.Hour}
			log, err := heads.Open(opts)
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, dir, withHeads(log))
			w := mission(t, s, "m", 10)
			if err := log.Close(); err != nil { // the head at 10 is the last one signed
				t.Fatal(err)
			}
			for range 5 {
				commit(t, s, w.next(time.Now()))
			}
			closeStore(t, s)
			tamper(t, dir, "UPDATE events SET payload = '{}' WHERE seq = "+c.seq)
			if log, err = heads.Open(opts); err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			s = open(t, dir, withHeads(log))
			if head, ok := s.Trusted("m"); !ok || head.Sequence != 10 {
				t.Fatalf("%+v %v", head, ok)
			}
			if err := s.VerifyRecent(ctx, "m"); (err != nil) != c.seen {
				t.Errorf("recent: %v", err)
			}
			if err := s.VerifyTask(ctx, "m"); err == nil {
				t.Error("the whole chain verifies")
			}
		})
	}
}

func TestADoubtfulTrustedHeadFailsItsTask(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := openHeads(t, dir)
	s := open(t, dir, withHeads(log))
	mission(t, s, "m", 3)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	path := filepath.Join(dir, "heads", "heads.jsonl")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(b, []byte(`"sequence":3`), []byte(`"sequence":1`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, withHeads(openHeads(t, dir)))
	if err := s.VerifyTask(ctx, "m"); err == nil || !strings.Contains(err.Error(), "heads.jsonl line ") {
		t.Fatalf("%v", err)
	}
}

func TestRepairCutsTheBadEndAndSaysSo(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{
		"changed event":    "UPDATE events SET payload = '{}' WHERE seq = 120",
		"digest cut short": "UPDATE events SET digest = x'00' WHERE seq = 120",
		"missing event":    "DELETE FROM events WHERE seq = 120",
		"rows nobody made": "UPDATE tasks SET head_seq = 119, head_digest = (SELECT digest FROM events WHERE seq = 119)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			log := openHeads(t, dir)
			s := open(t, dir, withHeads(log))
			mission(t, s, "m", 110)
			if err := log.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			closeStore(t, s)
			s = open(t, dir) // these heads are not published
			w := newWorkload("m")
			w.head, w.n = allHead(t, s, "m"), 110
			for range 15 {
				commit(t, s, w.next(time.Now()))
			}
			closeStore(t, s)
			tamper(t, dir, query)
			s = open(t, dir, withHeads(log))
			if err := s.VerifyTask(ctx, "m"); err == nil {
				t.Fatal("the damage is not seen")
			}
			at := time.Now()
			ev, err := s.Repair(ctx, "m", store.Repair{Actor: "operator-1", Reason: "disk", EventID: "repair-1", At: at})
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind != journal.Repaired || ev.Sequence != 120 || !strings.Contains(ev.Payload, `"actor":"operator-1"`) || !strings.Contains(ev.Payload, `"cut_after":119`) {
				t.Fatalf("%+v", ev)
			}
			if err := s.VerifyTask(ctx, "m"); err != nil {
				t.Fatal(err)
			}
			kept, err := filepath.Glob(filepath.Join(dir, "data", "repaired", "*.jsonl"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("%v %v", kept, err)
			}
			if b, err := os.ReadFile(kept[0]); err != nil || bytes.Count(b, []byte("\n")) < 5 {
				t.Fatalf("%s %v", b, err)
			}
			if _, err := s.Repair(ctx, "m", store.Repair{Actor: "op", EventID: "r2", At: at}); !errors.Is(err, store.ErrNotRepairable) {
				t.Fatalf("a sound chain was repaired: %v", err)
			}
			w.head, w.n = allHead(t, s, "m"), 500
			commit(t, s, w.next(time.Now()))
			if err := s.VerifyTask(ctx, "m"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestRepairNeverCutsWhatTheTrustedHeadCovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := openHeads(t, dir)
	s := open(t, dir, withHeads(log))
	mission(t, s, "m", 10)
	if err := log.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	tamper(t, dir, "UPDATE events SET payload = '{}' WHERE seq = 7")
	s = open(t, dir, withHeads(log))
	if _, err := s.Repair(ctx, "m", store.Repair{Actor: "op", EventID: "r", At: time.Now()}); !errors.Is(err, store.ErrNotRepairable) || !strings.Contains(err.Error(), "trusted head is at 10") {
		t.Fatalf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "repaired")); err == nil {
		t.Fatal("something was cut")
	}
}

func TestAnExportIsTheSameEachTimeAndVerifies(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	w := mission(t, s, "m", 1)
	b := w.next(time.Now())
	for len(b.Events) < 333 {
		b.Events = append(b.Events, w.next(time.Now()).Events...)
	}
	commit(t, s, b)
	var first, second bytes.Buffer
	for _, out := range []io.Writer{&first, &second} {
		if err := s.ExportTask(ctx, "m", out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Fatal("two exports differ")
	}
	if head, err := journal.Verify(&first, &w.head); err != nil || head != w.head {
		t.Fatalf("%+v %v", head, err)
	}
}
