package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/store"
)

func stats(t *testing.T, s *store.Store, pending, undeliverable int) {
	t.Helper()
	p, u, err := s.OutboxStats(ctx)
	if err != nil || p != pending || u != undeliverable {
		t.Fatalf("%d pending, %d undeliverable, %v; want %d, %d", p, u, err, pending, undeliverable)
	}
}

func ids(items []store.OutboxItem) (out []int64) {
	for _, it := range items {
		out = append(out, it.ID)
	}
	return out
}

func TestTheOutboxKeepsOrderAndForgetsWhatWasDelivered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	a, b := newWorkload("a"), newWorkload("b")
	for range 5 {
		commit(t, s, a.next(time.Now()))
		commit(t, s, b.next(time.Now()))
	}
	all, err := s.Outbox(ctx, 0, 100)
	if err != nil || len(all) != 10 {
		t.Fatalf("%d items, %v", len(all), err)
	}
	for i, it := range all {
		if want := []string{"a", "b"}[i%2]; it.MissionID != want || it.Sequence != uint64(i/2+1) {
			t.Fatalf("item %d is %+v", i, it)
		}
	}
	page, err := s.Outbox(ctx, all[3].ID, 2)
	if err != nil || len(page) != 2 || page[0].ID != all[4].ID {
		t.Fatalf("%+v %v", page, err)
	}
	ofA, err := s.OutboxOf(ctx, "a")
	if err != nil || len(ofA) != 5 {
		t.Fatalf("%+v %v", ofA, err)
	}
	stats(t, s, 10, 0)
	if err := s.OutboxDone(ctx, append(ids(ofA[1:]), 999999)); err != nil {
		t.Fatal(err)
	}
	if err := s.OutboxDone(ctx, ids(ofA[1:])); err != nil { // twice is nothing
		t.Fatal(err)
	}
	stats(t, s, 6, 0)
	if ofA, err = s.OutboxOf(ctx, "a"); err != nil || len(ofA) != 1 {
		t.Fatalf("%+v %v", ofA, err)
	}
	if err := s.OutboxMarkUndeliverable(ctx, "b", "the orchestrator does not know it"); err != nil {
		t.Fatal(err)
	}
	stats(t, s, 1, 5)
	if left, err := s.Outbox(ctx, 0, 100); err != nil || len(left) != 1 || left[0].MissionID != "a" {
		t.Fatalf("%+v %v", left, err)
	}
	if left, err := s.OutboxOf(ctx, "b"); err != nil || len(left) != 0 {
		t.Fatalf("%+v %v", left, err)
	}
	closeStore(t, s)

	s = open(t, dir)
	stats(t, s, 1, 5)
	if ofA, err = s.OutboxOf(ctx, "a"); err != nil || len(ofA) != 1 {
		t.Fatalf("%+v %v", ofA, err)
	}
	last := all[9].ID
	if err := s.OutboxDone(ctx, ids(ofA)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // an empty outbox and a restart: ids still do not come again
		closeStore(t, s)
		s = open(t, dir)
		commit(t, s, a.next(time.Now()))
		items, err := s.Outbox(ctx, 0, 100)
		if err != nil || len(items) != 1 || items[0].ID <= last {
			t.Fatalf("%+v after id %d, %v", items, last, err)
		}
		last = items[0].ID
		if err := s.OutboxDone(ctx, ids(items)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMissionsArePagedNewestFirstThroughEveryFilter(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	type key struct {
		state, agent string
		live         bool
	}
	var all []key
	for i := range 130 {
		w := newWorkload(fmt.Sprintf("m-%03d", i))
		b := w.next(time.Now())
		state := []string{"running", "done", "failed", "hitl-required"}[i%4]
		agent := []string{"one", "two", "three"}[i%3]
		b.Mission.State, b.Mission.Agent, b.Mission.Terminal = "assigned", agent, false
		commit(t, s, b)
		b = w.next(time.Now())
		b.Mission.State, b.Mission.Agent, b.Mission.Terminal = state, agent, state == "done" || state == "failed"
		commit(t, s, b)
		all = append(all, key{state, agent, !b.Mission.Terminal})
	}
	has := func(list []string, s string) bool {
		for _, v := range list {
			if v == s {
				return true
			}
		}
		return len(list) == 0
	}
	for _, f := range []store.MissionFilter{
		{}, {Limit: 7}, {Limit: 100}, {States: []string{"running"}, Limit: 10}, {States: []string{"done", "hitl-required", "aborted"}, Limit: 9},
		{Agent: "two", Limit: 5}, {Agent: "two", States: []string{"done"}, Limit: 3}, {Live: true, Limit: 20}, {Live: true, Agent: "one", States: []string{"running", "failed"}, Limit: 4}, {Agent: "none"},
	} {
		var want []string
		for i := len(all) - 1; i >= 0; i-- {
			if k := all[i]; has(f.States, k.state) && (f.Agent == "" || f.Agent == k.agent) && (!f.Live || k.live) {
				want = append(want, fmt.Sprintf("m-%03d", i))
			}
		}
		var got []string
		for {
			rows, next, err := s.Missions(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				got = append(got, r.MissionID)
			}
			if next == "" {
				break
			}
			f.After = next
		}
		f.After = ""
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v: got %v, want %v", f, got, want)
		}
	}
	live, err := s.LiveMissions(ctx)
	if err != nil || len(live) != 65 || live[0].MissionID != "m-000" || live[64].MissionID != "m-128" {
		t.Fatalf("%d live, %v", len(live), err)
	}
	if _, _, err := s.Missions(ctx, store.MissionFilter{After: "x"}); !errors.Is(err, store.ErrInvalid) {
		t.Fatal(err)
	}
}

// The writer forgets tasks that it has not seen for long; nothing may depend on
// its memory.
func TestATaskTheWriterForgotIsReadAgain(t *testing.T) {
	t.Parallel()
	const remembers, parts = 64, 8
	s := open(t, t.TempDir(), func(o *store.Options) { *o = o.WithCache(remembers) })
	old := mission(t, s, "old", 2)
	done := make(chan error, parts)
	for p := range parts {
		go func() {
			for i := range remembers {
				w := newWorkload(fmt.Sprintf("m-%d-%d", p, i))
				b := w.next(time.Now())
				b.Mission.Terminal = i%2 == 0
				if err := s.Commit(ctx, b); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range parts {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	stale := old.peek()
	commit(t, s, old.next(time.Now()))
	if err := s.Commit(ctx, stale); !errors.Is(err, store.ErrConflict) {
		t.Fatal(err)
	}
	if err := s.VerifyTask(ctx, "old"); err != nil {
		t.Fatal(err)
	}
}
