package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

func sessionRow(owner workflow.Owner, id, state, data string) workflow.Row {
	return workflow.Row{Table: workflow.TableSessions, ID: id, Owner: owner.Digest(), State: state, Data: []byte(data)}
}

func work(t testing.TB, s *store.Store, f func(tx workflow.Tx, b *store.Batch) error) {
	t.Helper()
	if err := s.Commit(ctx, store.Batch{Work: f}); err != nil {
		t.Fatal(err)
	}
}

func TestWorkReadsWhatOthersInTheSameTransactionHaveWritten(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	work(t, s, func(tx workflow.Tx, _ *store.Batch) error {
		tx.Insert(sessionRow("o", "s", "active", `{"n":0}`))
		return nil
	})
	const clients, each = 16, 50
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				err := s.Commit(ctx, store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error {
					row, err := tx.Get(workflow.TableSessions, "s")
					if err != nil {
						return err
					}
					var v struct{ N int }
					if err := json.Unmarshal(row.Data, &v); err != nil {
						return err
					}
					tx.Update(sessionRow("o", "s", "active", fmt.Sprintf(`{"n":%d}`, v.N+1)))
					return nil
				}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	err := s.ViewWork(ctx, func(r workflow.Reader) error {
		row, err := r.Get(workflow.TableSessions, "s")
		if err == nil && string(row.Data) != fmt.Sprintf(`{"n":%d}`, clients*each) {
			t.Errorf("%s", row.Data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestARefusalOfWorkChangesNothingAndHurtsNobodyElse(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	refused := errors.New("no")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			id := fmt.Sprintf("s-%d", i)
			err := s.Commit(ctx, store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error {
				tx.Insert(sessionRow("o", id, "active", `{}`))
				if i%2 == 0 {
					return refused
				}
				if i%5 == 0 { // SQLite refuses it: a row that is not there, and an id twice
					tx.Update(sessionRow("o", "nobody", "active", `{}`))
				}
				if i%7 == 0 {
					tx.Insert(sessionRow("o", id, "active", `{}`))
				}
				return nil
			}})
			bad := i%5 == 0 || i%7 == 0
			switch {
			case i%2 == 0 && !errors.Is(err, refused), i%2 == 1 && bad && !errors.Is(err, store.ErrInvalid), i%2 == 1 && !bad && err != nil:
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	err := s.ViewWork(ctx, func(r workflow.Reader) error {
		rows, err := r.List(workflow.Query{Table: workflow.TableSessions, By: workflow.ByOwner, Owner: workflow.Owner("o").Digest()})
		want := 0
		for i := range 40 {
			if i%2 == 1 && i%5 != 0 && i%7 != 0 {
				want++
			}
		}
		if len(rows) != want {
			t.Errorf("%d rows, want %d", len(rows), want)
		}
		return err
	})
	if err != nil || s.Healthy() != nil {
		t.Fatal(err, s.Healthy())
	}
}

// What follows from work is in the journal in the same transaction, or neither.
func TestWorkMayAddEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	w := mission(t, s, "m", 2)
	b := w.with(journal.Progress, `{"v":1,"text":"given"}`)
	runs := 0
	b.Work = func(tx workflow.Tx, b *store.Batch) error {
		runs++
		tx.Insert(sessionRow("m", "s", "active", `{}`))
		ev, _ := w.head.Next("0b4f5f6e-8f3c-4f55-9d0c-999999999999", time.Now(), journal.Progress, `{"v":1,"text":"found"}`)
		b.Events = append(b.Events, ev)
		return nil
	}
	commit(t, s, b)
	if got := allEvents(t, s, "m"); len(got) != 4 || got[3].Payload != `{"v":1,"text":"found"}` {
		t.Fatalf("%d events", len(got))
	}
	// An event that does not follow takes the rows with it.
	bad := store.Batch{Task: "m", Work: func(tx workflow.Tx, b *store.Batch) error {
		tx.Insert(sessionRow("m", "other", "active", `{}`))
		ev, _ := w.head.Next("0b4f5f6e-8f3c-4f55-9d0c-999999999998", time.Now(), journal.Progress, `{"v":1}`)
		b.Events = []journal.Event{ev} // a sequence that is taken
		return nil
	}}
	if err := s.Commit(ctx, bad); !errors.Is(err, store.ErrConflict) {
		t.Fatal(err)
	}
	if err := s.VerifyTask(ctx, "m"); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = open(t, dir)
	err := s.ViewWork(ctx, func(r workflow.Reader) error {
		n, err := r.Count(workflow.Query{Table: workflow.TableSessions, By: workflow.ByOwner, Owner: workflow.Owner("m").Digest()})
		if n != 1 {
			t.Errorf("%d rows", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The file refuses what no code may ever write.
func TestTheSchemaHoldsTheInvariants(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	row := func(table workflow.Table, id, parent, state, data string) workflow.Row {
		return workflow.Row{Table: table, ID: id, Owner: workflow.Owner("o").Digest(), Parent: parent, State: state, Data: []byte(data)}
	}
	for name, rows := range map[string][]workflow.Row{
		"two live attempts":   {row("attempts", "a1", "t", "active", "{}"), row("attempts", "a2", "t", "active", "{}")},
		"two queued wakes":    {row("wakes", "w1", "g", "pending", "{}"), row("wakes", "w2", "g", "claimed", "{}")},
		"two sent wakes":      {row("wakes", "w3", "g", "prepared", "{}"), row("wakes", "w4", "g", "delivery_unknown", "{}")},
		"an id twice":         {row("runs", "r", "", "", "{}"), row("runs", "r", "", "", "{}")},
		"active and terminal": {row("goals", "g1", "", "active", `{"summary":{"terminal_at_unix_ms":5}}`)},
		"ended at no time":    {row("goals", "g2", "", "completed", `{"summary":{}}`)},
	} {
		err := s.Commit(ctx, store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error {
			for _, r := range rows {
				tx.Insert(r)
			}
			return nil
		}})
		if err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if err := s.Healthy(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestAnUncertainCommitSaysSo(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken disk")
	for _, p := range []store.Point{store.PointApplied, store.PointCommitted} {
		on := false
		s := open(t, t.TempDir(), func(o *store.Options) {
			o.Hook = func(at store.Point) error {
				if on && at == p {
					return broken
				}
				return nil
			}
		})
		work(t, s, func(workflow.Tx, *store.Batch) error { return nil })
		err := s.Commit(ctx, store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error {
			on = true
			tx.Insert(sessionRow("o", "s", "active", `{}`))
			return nil
		}})
		if !errors.Is(err, store.ErrPoisoned) || errors.Is(err, store.ErrUncertain) != (p == store.PointCommitted) {
			t.Errorf("%s: %v", p, err)
		}
		later := s.Commit(ctx, store.Batch{Work: func(workflow.Tx, *store.Batch) error { return nil }})
		if !errors.Is(later, store.ErrPoisoned) || errors.Is(later, store.ErrUncertain) {
			t.Errorf("%s: a later commit is certain: %v", p, later)
		}
	}
}

// As many callers as there are connections hold one each and then read for the
// first time; none of them waits for a connection that another one holds.
func TestFirstReadsAtOnceDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var inside, wg sync.WaitGroup
	inside.Add(store.ReaderMax)
	errs := make(chan error, store.ReaderMax)
	for range store.ReaderMax {
		wg.Go(func() {
			errs <- s.ViewWork(ctx, func(r workflow.Reader) error {
				inside.Done()
				inside.Wait()
				_, err := r.Count(workflow.Query{Table: workflow.TableGoals, By: workflow.ByState, Key: "x"})
				return err
			})
		})
	}
	wg.Wait()
	for range store.ReaderMax {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}
