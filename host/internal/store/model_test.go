package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/airlock-host/airlock/host/internal/store"
)

// TestTheStoreBehavesLikeItsModel runs random commits, conflicts, deliveries
// and restarts against a store and against maps.
func TestTheStoreBehavesLikeItsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		start := func() *store.Store {
			s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Ballast: -1, BlobOver: 300})
			if err != nil {
				rt.Fatal(err)
			}
			return s
		}
		s := start()
		defer func() { _ = s.Close() }()
		works := map[string]*workload{}
		states := map[string]string{}
		outbox := map[string]int{}
		pick := rapid.IntRange(0, 3)
		rt.Repeat(map[string]func(*rapid.T){
			"commit": func(rt *rapid.T) {
				id := fmt.Sprint("m", pick.Draw(rt, "mission"))
				if works[id] == nil {
					works[id] = newWorkload(id)
				}
				b := works[id].next(time.Now())
				for range pick.Draw(rt, "more") {
					b.Events = append(b.Events, works[id].next(time.Now()).Events...)
				}
				b.Mission.State = rapid.SampledFrom([]string{"running", "paused", "done"}).Draw(rt, "state")
				b.Mission.Terminal = b.Mission.State == "done"
				if err := s.Commit(ctx, b); err != nil {
					rt.Fatal(err)
				}
				states[id] = b.Mission.State
				outbox[id]++
			},
			"conflict": func(rt *rapid.T) {
				for id := range works {
					b := newWorkload(id).next(time.Now())
					if err := s.Commit(ctx, b); !errors.Is(err, store.ErrConflict) {
						rt.Fatal(err)
					}
				}
			},
			"deliver": func(rt *rapid.T) {
				id := fmt.Sprint("m", pick.Draw(rt, "mission"))
				items, err := s.OutboxOf(ctx, id)
				if err != nil {
					rt.Fatal(err)
				}
				n := rapid.IntRange(0, len(items)).Draw(rt, "n")
				if err := s.OutboxDone(ctx, ids(items[:n])); err != nil {
					rt.Fatal(err)
				}
				outbox[id] -= n
			},
			"restart": func(rt *rapid.T) {
				if pick.Draw(rt, "one in four") != 0 {
					return
				}
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				s = start()
			},
			"look": func(rt *rapid.T) {
				pending := 0
				live := map[string]bool{}
				rows, err := s.LiveMissions(ctx)
				if err != nil {
					rt.Fatal(err)
				}
				for _, r := range rows {
					live[r.MissionID] = true
				}
				for id, w := range works {
					m, err := s.Mission(ctx, id)
					if err != nil || m.Head != w.head || m.State != states[id] || live[id] == m.Terminal {
						rt.Fatalf("%s: %+v, want %+v in %s (%v)", id, m, w.head, states[id], err)
					}
					if err := s.VerifyTask(ctx, id); err != nil {
						rt.Fatal(err)
					}
					items, err := s.OutboxOf(ctx, id)
					if err != nil || len(items) != outbox[id] {
						rt.Fatalf("%s: %d items, want %d (%v)", id, len(items), outbox[id], err)
					}
					pending += outbox[id]
				}
				if n, _, err := s.OutboxStats(ctx); err != nil || n != pending {
					rt.Fatalf("%d pending, want %d (%v)", n, pending, err)
				}
			},
		})
	})
}
