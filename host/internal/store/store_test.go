package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

var ctx = context.Background()

func TestWhatIsCommittedIsReadBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if !s.Fresh() {
		t.Fatal("a new store is not fresh")
	}
	id := strings.Repeat("ü/..\x00\"", 50)
	w := newWorkload(id)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6789, time.UTC)
	b := w.next(at.Truncate(time.Millisecond))
	b.Mission.CreatedAt = at
	b.Cells = []store.CellRow{{CellID: "c1", Incarnation: 2, Instance: "isolation.docker.x", MissionID: id, Generation: 3, State: "bound", Data: []byte{0, 1, 2}}, {CellID: "c2", State: "warm"}}
	b.RuntimeState = &store.RuntimeState{MissionID: id, Generation: 1, Offset: 99, State: []byte("state")}
	commit(t, s, b)
	if err := s.SetMeta(ctx, "legacy", "done"); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		m, err := s.Mission(ctx, id)
		want := *b.Mission
		want.Head = w.head
		if err != nil || !reflect.DeepEqual(m, want) {
			t.Fatalf("mission %+v, want %+v: %v", m, want, err)
		}
		if got := allEvents(t, s, id); !reflect.DeepEqual(got, b.Events) {
			t.Fatalf("events %+v", got)
		}
		cells, err := s.Cells(ctx)
		if err != nil || !reflect.DeepEqual(cells, b.Cells) {
			t.Fatalf("cells %+v, %v", cells, err)
		}
		rs, err := s.RuntimeState(ctx, id)
		if err != nil || !reflect.DeepEqual(rs, *b.RuntimeState) {
			t.Fatalf("runtime state %+v, %v", rs, err)
		}
		out, err := s.OutboxOf(ctx, id)
		if err != nil || len(out) != 1 || out[0].Event != "mission.progress" || out[0].Sequence != 1 || !out[0].TS.Equal(b.Outbox[0].TS) || string(out[0].Data) != string(b.Outbox[0].Data) {
			t.Fatalf("outbox %+v, %v", out, err)
		}
		head, err := s.Head(ctx, id)
		if err != nil || head != w.head {
			t.Fatalf("head %+v, %v", head, err)
		}
		if v, err := s.Meta(ctx, "legacy"); err != nil || v != "done" {
			t.Fatalf("%q %v", v, err)
		}
	}
	check()
	closeStore(t, s)
	s = open(t, dir)
	if s.Fresh() {
		t.Fatal("fresh at the second start")
	}
	check()
	commit(t, s, store.Batch{DropCells: []string{"c1", "c9"}})
	if cells, err := s.Cells(ctx); err != nil || len(cells) != 1 || cells[0].CellID != "c2" {
		t.Fatalf("%+v %v", cells, err)
	}
}

func TestWhatIsNotThereIsErrNotFound(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	_, e1 := s.Mission(ctx, "x")
	_, e2 := s.Head(ctx, "x")
	_, e3 := s.RuntimeState(ctx, "x")
	_, e4 := s.Events(ctx, "x", 0, 10)
	_, e5 := s.Meta(ctx, "x")
	for i, err := range []error{e1, e2, e3, e4, e5, s.VerifyTask(ctx, "x"), s.ExportTask(ctx, "x", &bytes.Buffer{}), s.OutboxMarkUndeliverable(ctx, "x", "why")} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if items, err := s.OutboxOf(ctx, "x"); err != nil || items != nil {
		t.Errorf("%v %v", items, err)
	}
	if err := s.OutboxDone(ctx, []int64{5}); err != nil {
		t.Error(err)
	}
}

func TestABatchThatDoesNotFollowTheHeadChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	w := mission(t, s, "m", 3)
	fork := *w
	commit(t, s, w.next(time.Now()))
	before, err := s.Mission(ctx, "m")
	if err != nil {
		t.Fatal(err)
	}
	stale := fork.next(time.Now())
	stale.Mission.State = "failed"
	stale.Cells = []store.CellRow{{CellID: "c"}}
	for name, b := range map[string]store.Batch{
		"stale":    stale,
		"ahead":    func() store.Batch { a := *w; a.next(time.Now()); return a.next(time.Now()) }(),
		"opened":   newWorkload("m").next(time.Now()),
		"unknown":  func() store.Batch { a := newWorkload("other"); a.next(time.Now()); return a.next(time.Now()) }(),
		"another":  func() store.Batch { b := w.peek(); b.JournalUUID = "another"; return b }(),
		"repeated": func() store.Batch { b := w.peek(); b.Events = allEvents(t, s, "m"); return b }(),
	} {
		if name == "repeated" {
			b.JournalUUID = uuidOf("m")
		}
		if err := s.Commit(ctx, b); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	after, err := s.Mission(ctx, "m")
	if err != nil || !reflect.DeepEqual(before, after) {
		t.Fatalf("%+v, %v", after, err)
	}
	if cells, _ := s.Cells(ctx); len(cells) != 0 {
		t.Fatal("the cell of a refused batch is there")
	}
	if _, err := s.Head(ctx, "other"); !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	commit(t, s, w.next(time.Now()))
}

func TestAnInvalidBatchIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	w := mission(t, s, "m", 1)
	for name, change := range map[string]func(*store.Batch){
		"digest":            func(b *store.Batch) { b.Events[0].Digest[0]++ },
		"payload":           func(b *store.Batch) { b.Events[0].Payload = "{" },
		"payload not UTF-8": func(b *store.Batch) { b.Events[0].Payload = "{\"a\":\"\xff\"}"; b.Events[0].Digest = b.Events[0].Sum() },
		"other task":        func(b *store.Batch) { b.Task = "n"; b.Mission = nil },
		"no task":           func(b *store.Batch) { b.Task = ""; b.Mission = nil },
		"other mission":     func(b *store.Batch) { b.Mission.MissionID = "n" },
		"gap in the batch": func(b *store.Batch) {
			b.Events = append(b.Events, func() journal.Event {
				e, _ := w.head.Next("x", time.Now(), journal.Progress, "{}")
				e.Sequence += 5
				e.Digest = e.Sum()
				return e
			}())
		},
		"unknown reference":  func(b *store.Batch) { b.Outbox[0].MissionID = "nobody" },
		"unknown checkpoint": func(b *store.Batch) { b.RuntimeState = &store.RuntimeState{MissionID: "nobody"} },
	} {
		b := w.peek()
		change(&b)
		if err := s.Commit(ctx, b); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	first := newWorkload("n").next(time.Now())
	first.JournalUUID = "not the one in the payload"
	if err := s.Commit(ctx, first); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("journal_uuid: %v", err)
	}
	if got, err := s.Head(ctx, "m"); err != nil || got != w.head {
		t.Fatalf("%+v %v", got, err)
	}
}

func Test64WritersLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := openHeads(t, dir)
	s := open(t, dir, func(o *store.Options) { o.Heads = log })
	const writers, each = 64, 25
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			w := newWorkload(fmt.Sprintf("m-%d", i))
			for range each {
				if err := s.Commit(ctx, w.next(time.Now())); err != nil {
					t.Error(err)
					return
				}
				if head, err := s.Head(ctx, w.mission); err != nil || head != w.head {
					t.Errorf("a commit is not visible after its answer: %+v, %v", head, err)
					return
				}
			}
		})
	}
	wg.Wait()
	var last int64
	seen := 0
	for {
		items, err := s.Outbox(ctx, last, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 {
			break
		}
		for _, it := range items {
			if it.ID <= last {
				t.Fatal("outbox ids do not grow")
			}
			last = it.ID
			seen++
		}
	}
	if pending, _, err := s.OutboxStats(ctx); err != nil || seen != writers*each || pending != seen {
		t.Fatalf("%d items, %d pending, %v", seen, pending, err)
	}
	for i := range writers {
		if err := s.VerifyTask(ctx, fmt.Sprintf("m-%d", i)); err != nil {
			t.Error(err)
		}
	}
}

func TestOneOfManyRacersWinsAndOthersAreUnharmed(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	w := mission(t, s, "contested", 1)
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			b := w.peek()
			b.Cells = []store.CellRow{{CellID: fmt.Sprint(i)}}
			switch err := s.Commit(ctx, b); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, store.ErrConflict):
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := s.Commit(ctx, newWorkload(fmt.Sprintf("peaceful-%d", i)).next(time.Now())); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	cells, err := s.Cells(ctx)
	if err != nil || won.Load() != 1 || len(cells) != 1 {
		t.Fatalf("%d won, %d cells, %v", won.Load(), len(cells), err)
	}
	if err := s.VerifyTask(ctx, "contested"); err != nil {
		t.Fatal(err)
	}
}

// A row that no commit made is in the way: SQLite itself refuses the batch, in
// the middle of a group.
func TestABatchThatSQLiteRefusesFailsAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	blocked := mission(t, s, "blocked", 2)
	closeStore(t, s)
	tamper(t, dir, "INSERT INTO events (task_no, seq, event_id, at, kind, payload, digest) SELECT no, 3, 'x', 0, 'progress', '{}', x'00' FROM tasks")
	gate := make(chan struct{})
	s = open(t, dir, holdAt(store.PointQueued, gate))
	var wg sync.WaitGroup
	errs := make([]error, 11)
	for i := range errs {
		wg.Go(func() {
			w := newWorkload(fmt.Sprintf("m-%d", i))
			if i == 5 {
				w = blocked
			}
			errs[i] = s.Commit(ctx, w.next(time.Now()))
		})
	}
	close(gate)
	wg.Wait()
	for i, err := range errs {
		if i == 5 && !errors.Is(err, store.ErrInvalid) || i != 5 && err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := s.Healthy(); err != nil {
		t.Fatal(err)
	}
	for i := range errs {
		if i != 5 {
			if err := s.VerifyTask(ctx, fmt.Sprintf("m-%d", i)); err != nil {
				t.Error(err)
			}
		}
	}
	if items, err := s.OutboxOf(ctx, "blocked"); err != nil || len(items) != 2 {
		t.Fatalf("%d items of the refused batch's mission, %v", len(items), err)
	}
}

// holdAt makes the writer wait at a point until the gate is closed.
func holdAt(p store.Point, gate <-chan struct{}) func(*store.Options) {
	return func(o *store.Options) {
		o.Hook = func(at store.Point) error {
			if at == p {
				<-gate
			}
			return nil
		}
	}
}

func TestACallerThatLeavesBeforeItsTurnChangesNothing(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	s := open(t, t.TempDir(), holdAt(store.PointQueued, gate))
	first := make(chan error, 1)
	go func() { first <- s.Commit(ctx, newWorkload("first").next(time.Now())) }()
	w := newWorkload("second")
	b := w.next(time.Now())
	leave, cancel := context.WithCancel(ctx)
	second := make(chan error, 1)
	go func() { second <- s.Commit(leave, b) }()
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		// It may have shared the first one's turn; then it waits for the truth.
		t.Logf("the second caller was taken with the first: %v", err)
	}
	close(gate)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	// Whoever was told no can try again, and whoever was told yes is there.
	err := s.Commit(ctx, b)
	if _, headErr := s.Head(ctx, "second"); headErr != nil || (err != nil && !errors.Is(err, store.ErrConflict)) {
		t.Fatalf("%v, %v", err, headErr)
	}
}

func TestLargePayloadsAreInFilesAndComeBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	w := mission(t, s, "m", 1)
	payload := `{"v":1,"text":"` + strings.Repeat("x", 70<<10) + `"}`
	b := w.with(journal.Progress, payload)
	commit(t, s, b)
	commit(t, s, w.next(time.Now()))
	if got := allEvents(t, s, "m"); len(got) != 3 || got[1].Payload != payload {
		t.Fatal("the payload did not come back")
	}
	if err := s.VerifyTask(ctx, "m"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.ExportTask(ctx, "m", &out); err != nil {
		t.Fatal(err)
	}
	if head, err := journal.Verify(&out, &w.head); err != nil || head != w.head {
		t.Fatalf("%+v %v", head, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "data", "blobs", "??", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte(strings.Replace(payload, "xx", "xy", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.VerifyTask(ctx, "m"); !errors.Is(err, store.ErrDamaged) {
		t.Fatalf("a changed file was not seen: %v", err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Events(ctx, "m", 0, 10); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "event 2") {
		t.Fatalf("a missing file was not seen: %v", err)
	}
}

func TestFollowersAreWoken(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	a, other, out := s.EventsChanged("a"), s.EventsChanged("b"), s.OutboxChanged()
	w := newWorkload("a")
	commit(t, s, w.next(time.Now()))
	for _, ch := range []<-chan struct{}{a, out} {
		select {
		case <-ch:
		default:
			t.Fatal("not woken by the time the caller has its answer")
		}
	}
	select {
	case <-other:
		t.Fatal("woken by another task's events")
	default:
	}
	out = s.OutboxChanged()
	b := w.next(time.Now())
	b.Outbox = nil
	commit(t, s, b)
	select {
	case <-out:
		t.Fatal("woken without an item")
	default:
	}
	closeStore(t, s)
	<-other
	<-out
	<-s.EventsChanged("c")
	<-s.OutboxChanged()
}

func TestAClosedStoreRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	w := mission(t, s, "m", 1)
	closeStore(t, s)
	closeStore(t, s)
	_, readErr := s.Mission(ctx, "m")
	for i, err := range []error{s.Commit(ctx, w.next(time.Now())), s.OutboxDone(ctx, []int64{1}), s.Healthy(), readErr} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%d: %v", i, err)
		}
	}
}
