package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

// workload is what the figures are measured with: each event comes with the
// mission's row (about 900 bytes of state) and an outbox item.
type workload struct {
	mission string
	head    journal.Head
	n       int
	state   []byte
}

func newWorkload(mission string) *workload {
	return &workload{
		mission: mission,
		head:    journal.Genesis(mission, uuidOf(mission)),
		state:   []byte(`{"v":1,"objective":"` + strings.Repeat("do the work well; ", 45) + `","generation":1,"steps":[]}`),
	}
}

func uuidOf(mission string) string { return "journal-of-" + mission }

func opening(mission string) []byte {
	b, err := json.Marshal(map[string]any{"v": 1, "journal_uuid": uuidOf(mission)})
	if err != nil {
		panic(err)
	}
	return b
}

// next is the mission's next batch of one event.
func (w *workload) next(at time.Time) store.Batch {
	kind, payload := journal.Progress, `{"v":1,"phase":"execution","iteration":7,"tokens_used":12345,"summary":"`+strings.Repeat("edited a file and ran the tests ", 7)+`"}`
	b := store.Batch{Task: w.mission}
	if w.head.Sequence == 0 {
		kind, payload = journal.TaskOpened, string(opening(w.mission))
		b.JournalUUID = uuidOf(w.mission)
	}
	w.n++
	ev, head := w.head.Next(fmt.Sprintf("0b4f5f6e-8f3c-4f55-9d0c-%012d", w.n), at, kind, payload)
	w.head = head
	b.Events = []journal.Event{ev}
	b.Mission = &store.MissionRow{MissionID: w.mission, Origin: "orchestrator", Agent: "agent-01", State: "running", CreatedAt: at, UpdatedAt: at, Data: w.state}
	b.Outbox = []store.OutboxItem{{MissionID: w.mission, Sequence: ev.Sequence, Event: "mission.progress", TS: at, Data: []byte(`{"phase":"execution","iteration":7,"tokens_used":12345,"summary":"edited a file and ran the tests"}`)}}
	return b
}

func openBench(b *testing.B, dir string) *store.Store {
	b.Helper()
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "key", "host.key"))
	if err != nil {
		b.Fatal(err)
	}
	log, err := heads.Open(heads.Options{File: filepath.Join(dir, "heads", "heads.jsonl"), Key: key})
	if err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Heads: log})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// run spreads b.N operations over writers and reports the rate and latencies.
func run(b *testing.B, writers int, op func(writer int) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	lat := make([][]time.Duration, writers)
	var wg sync.WaitGroup
	before := cpu(b)
	b.ResetTimer()
	for i := range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				t := time.Now()
				if err := op(i); err != nil {
					b.Error(err)
					return
				}
				lat[i] = append(lat[i], time.Since(t))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	var all []time.Duration
	for _, l := range lat {
		all = append(all, l...)
	}
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/event")
	b.ReportMetric(0, "ns/op")
}

// cpu is the processor time of this process: the figure that other load on
// the machine disturbs least.
func cpu(b *testing.B) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// eventsPerMission is how long a mission goes on before its writer begins the
// next one.
const eventsPerMission = 200

func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := openBench(b, b.TempDir())
			work := make([]*workload, writers)
			for i := range work {
				work[i] = newWorkload(fmt.Sprintf("mission-%d", i))
			}
			missions := 0
			var mu sync.Mutex
			run(b, writers, func(i int) error {
				if work[i].n == eventsPerMission {
					mu.Lock()
					missions++
					work[i] = newWorkload(fmt.Sprintf("mission-%d-%d", i, missions))
					mu.Unlock()
				}
				return s.Commit(context.Background(), work[i].next(time.Now()))
			})
		})
	}
}

// BenchmarkAppend is the baseline: each writer appends an event's line to one
// file and syncs it itself.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			f, err := os.OpenFile(filepath.Join(b.TempDir(), "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			w := newWorkload("m")
			w.next(time.Now())
			line := append(w.next(time.Now()).Events[0].AppendExport(nil), '\n')
			run(b, writers, func(int) error {
				if _, err := f.Write(line); err != nil {
					return err
				}
				return unix.Fdatasync(int(f.Fd()))
			})
		})
	}
}
