package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// manyTasks opens tasks of harnesses, as many as a list has to stand.
func (r *rig) manyTasks(n int) {
	r.t.Helper()
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if r.call("POST", "/tasks", map[string]any{"task_id": fmt.Sprintf("task-%04d", i), "objective": fmt.Sprintf("settle complaint %04d", i)}, nil) != 201 {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() > 0 {
		r.t.Fatalf("%d tasks could not be opened", failed.Load())
	}
}

// grow adds n events to a task's journal while the host is down, as the host
// itself would have written them.
func (r *rig) grow(id string, n int) {
	r.t.Helper()
	ctx := r.t.Context()
	key, err := heads.LoadOrCreateKey(filepath.Join(r.dir, "heads", "host.key"))
	if err != nil {
		r.t.Fatal(err)
	}
	log, err := heads.Open(heads.Options{File: filepath.Join(r.dir, "heads", "heads.jsonl"), Key: key})
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	s, err := store.Open(store.Options{Dir: filepath.Join(r.dir, "data"), Heads: log})
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	row, err := s.Mission(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	var m mission.Mission
	if err := json.Unmarshal(row.Data, &m); err != nil {
		r.t.Fatal(err)
	}
	head, err := s.Head(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	for at := 0; at < n; {
		b := store.Batch{Task: id, JournalUUID: head.JournalUUID}
		for ; len(b.Events) < 1000 && at < n; at++ {
			f := mission.Progressed{V: 1, Progress: mission.Progress{Phase: "execution", Summary: fmt.Sprintf("step %d", at+1)}}
			payload, err := json.Marshal(f)
			if err != nil {
				r.t.Fatal(err)
			}
			ev, next := head.Next(uuid.NewString(), time.Now(), f.Kind(), string(payload))
			head = next
			m.Apply(f, ev.Timestamp)
			b.Events = append(b.Events, ev)
		}
		if row.Data, err = json.Marshal(&m); err != nil {
			r.t.Fatal(err)
		}
		b.Mission = &row
		if err := s.Commit(ctx, b); err != nil {
			r.t.Fatal(err)
		}
	}
}

// A thousand live missions in the list, and one with 100,000 events: what is in
// the page stays small, and it goes on.
func TestControlRoomOfABusyHost(t *testing.T) {
	t.Parallel()
	const tasks, events = 1000, 100_000
	r := newRig(t, settings{})
	r.manyTasks(tasks)
	r.end(syscall.SIGTERM)
	r.grow("task-0500", events)
	r.start()
	b := newBrowser(t, r.restBase())
	b.open("#/missions")
	b.says(".tabs", "Live 1000")
	small := func(where string, nodes int) {
		t.Helper()
		if n := eval[int](b, "document.querySelectorAll('*').length"); n > nodes {
			t.Errorf("%s: %d elements are in the page", where, n)
		}
	}
	small("the list", 700)
	if n := eval[int](b, "document.querySelectorAll('.mission').length"); n == 0 || n > 60 {
		t.Errorf("%d rows are in the page", n)
	}
	// To the end and back, by hand and by keys.
	eval[bool](b, "scrollTo(0, document.body.scrollHeight) === undefined")
	b.says(".mission", "settle complaint 0001")
	small("the end of the list", 700)
	b.until("the rows say where they are", `[...document.querySelectorAll(".mission")].some((e) => e.getAttribute("aria-posinset") === "1000")`)
	eval[bool](b, "scrollTo(0, 0) === undefined")
	b.says(".mission", "settle complaint 1000")
	eval[bool](b, `[..."jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj"].forEach((key) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}))) === undefined`)
	b.until("the keys move the focus", `document.activeElement.getAttribute("aria-posinset") === "30"`)
	// One that comes and changes is seen at once, and so is that it changed.
	r.harnessTask("fresh")
	b.says(".tabs", "Live 1001")
	eval[bool](b, "document.activeElement.blur() === undefined && scrollTo(0, 0) === undefined")
	for _, step := range [][2]string{{"pause", "paused"}, {"resume", "running"}} {
		if status := r.call("POST", "/tasks/fresh/control", map[string]any{"action": step[0]}, nil); status != 200 {
			t.Fatalf("%s: %d", step[0], status)
		}
		b.says(`a[href="#/missions/fresh"] .state`, step[1])
	}
	b.fill("#filter", "complaint 0500")
	b.until("the filter leaves one", `document.querySelectorAll(".mission").length === 1`)

	// One with a long journal.
	b.open("#/missions/task-0500")
	b.says(".events", fmt.Sprintf("step %d", events))
	rows := func() int { return eval[int](b, "document.querySelectorAll('.events li').length") }
	for range 5 {
		first := eval[int](b, "Math.min(...[...document.querySelectorAll('.events li')].map((e) => +e.dataset.seq))")
		b.press("main", "Older")
		b.until("older events came", fmt.Sprintf("Math.min(...[...document.querySelectorAll('.events li')].map((e) => +e.dataset.seq)) < %d", first))
		if n := rows(); n > 200 {
			t.Errorf("%d events are in the page", n)
		}
	}
	b.press("main", "Latest")
	b.says(".events", fmt.Sprintf("step %d", events))
	for i := range 300 {
		if r.call("PUT", "/tasks/task-0500/plan", map[string]any{"plan": []any{map[string]any{"description": fmt.Sprintf("plan %d", i)}}}, nil) != 200 {
			t.Fatal("the plan was not taken")
		}
	}
	b.says(".plan", "plan 299")
	b.until("the events came", fmt.Sprintf("Math.max(...[...document.querySelectorAll('.events li')].map((e) => +e.dataset.seq)) > %d", events+300))
	if n := rows(); n > 200 {
		t.Errorf("%d events are in the page", n)
	}
	small("a mission", 3500)
	if heap := eval[float64](b, "performance.memory.usedJSHeapSize / 1e6"); heap > 100 {
		t.Errorf("the page uses %.0f MB", heap)
	}
	b.press(".verify", "Verify the journal")
	b.says("[data-verdict=valid]", "every digest and link")
}
