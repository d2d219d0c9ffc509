package store_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

// accept is the batch of a new mission: two events, its row, an outbox item.
func accept(id string) store.Batch {
	w := newWorkload(id)
	b := w.next(time.Now())
	second := w.next(time.Now())
	b.Events = append(b.Events, second.Events...)
	return b
}

// stock fills a store with missions that are over.
func stock(b *testing.B, s *store.Store, n int) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				batch := accept(fmt.Sprintf("%08x-stored-mission", uint32(i)*2654435761))
				batch.Mission.State, batch.Mission.Terminal, batch.Outbox = "done", true, nil
				if err := s.Commit(ctx, batch); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkAcceptStored is one caller at a time with few and with many missions
// stored, turn by turn so that other load hits both alike.
func BenchmarkAcceptStored(b *testing.B) {
	few, many := openBench(b, b.TempDir()), openBench(b, b.TempDir())
	stock(b, few, 100)
	stock(b, many, 100_000)
	var lat [2][]time.Duration
	b.ResetTimer()
	for i := range b.N {
		for k, s := range []*store.Store{few, many} {
			batch := accept(fmt.Sprintf("%08x-new-mission", uint32(i)*2654435761))
			t := time.Now()
			if err := s.Commit(ctx, batch); err != nil {
				b.Fatal(err)
			}
			lat[k] = append(lat[k], time.Since(t))
		}
	}
	b.StopTimer()
	p50few, p50many := median(lat[0]), median(lat[1])
	b.ReportMetric(float64(p50few.Microseconds()), "p50-100-µs")
	b.ReportMetric(float64(p50many.Microseconds()), "p50-100000-µs")
	b.ReportMetric(float64(p50many)/float64(p50few), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkOpen opens a store of 100,000 missions in a process of its own, and
// says how long it took and how much memory.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("stored=%d", n), func(b *testing.B) {
			dir := b.TempDir()
			s, err := store.Open(store.Options{Dir: dir + "/data"})
			if err != nil {
				b.Fatal(err)
			}
			stock(b, s, n)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			var took, kib []time.Duration
			for b.Loop() {
				out, err := child(b, "rss", dir).Output()
				if err != nil {
					b.Fatal(err)
				}
				var k, us int
				if _, err := fmt.Sscan(string(out), &k, &us); err != nil {
					b.Fatal(err)
				}
				took, kib = append(took, time.Duration(us)), append(kib, time.Duration(k))
			}
			b.ReportMetric(float64(median(took))/1000, "open-ms")
			b.ReportMetric(float64(median(kib))/1024, "rss-MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkVerifyTask checks a chain of 20,000 events in the database.
func BenchmarkVerifyTask(b *testing.B) {
	s := openBench(b, b.TempDir())
	w := newWorkload("m")
	const n = 20_000
	for i := 0; i < n; i += 500 {
		batch := w.next(time.Now())
		batch.Outbox = nil
		for len(batch.Events) < 500 {
			batch.Events = append(batch.Events, w.with(journal.Progress, `{"v":1,"phase":"execution","tokens_used":12345,"summary":"edited a file and ran the tests"}`).Events...)
		}
		if err := s.Commit(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := s.VerifyTask(ctx, "m"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(0, "ns/op")
}

// median sorts its argument.
func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
