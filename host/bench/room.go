package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/airlock-host/airlock/host/internal/mission"
)

const (
	roomTasks  = 1000
	roomEvents = 100_000
	longTask   = "room-0500"
	newestTask = "room-1000"
)

var roomFigures = []string{"ui_first_paint_ms", "ui_list_1000_ms", "ui_mission_100k_ms", "ui_event_to_pixel_p50_ms", "ui_list_event_to_pixel_p50_ms", "ui_heap_mb"}

// measureRoom measures the Control Room in a real browser: a list of 1,000 live
// missions, of which one has a journal of 100,000 events.
func measureRoom(b *bench) error {
	browser, err := chromium()
	if err != nil {
		for _, f := range roomFigures {
			b.skip(f, "there is no chromium (make test-deps)")
		}
		return nil
	}
	r, err := startedRig(b, "")
	if err != nil {
		return err
	}
	defer r.clean()
	base, err := r.fillRoom(b.rounds(roomEvents, 2000))
	if err != nil {
		return err
	}
	t, err := b.openTab(browser)
	if err != nil {
		return err
	}
	defer t.close()
	p, err := newPlain()
	if err != nil {
		return err
	}
	defer p.close()
	m := &room{b: b, r: r, t: t, base: base, plain: p}
	return errors.Join(m.paints(), m.mission(), m.list())
}

// room is what is measured with.
type room struct {
	b     *bench
	r     *rig
	t     *tab
	base  string
	plain *plain
}

// fillRoom opens the tasks, gives one of them a long journal while the host is
// down, as the host itself would have written it, and gives the Control Room's
// address.
func (r *rig) fillRoom(events int) (base string, err error) {
	errs := make([]error, roomTasks-1)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = r.call(r.b.ctx, "POST", "/tasks", map[string]any{"task_id": fmt.Sprintf("room-%04d", i+1), "objective": fmt.Sprintf("settle complaint %04d", i+1)}, nil)
		})
		if i%16 == 15 {
			wg.Wait()
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	// The last one comes after: those from before the restart are stopped.
	err = errors.Join(r.stop(), r.lengthen(longTask, events), r.start(),
		r.call(r.b.ctx, "POST", "/tasks", map[string]any{"task_id": newestTask, "objective": "settle complaint"}, nil))
	if err != nil {
		return "", err
	}
	var code struct {
		URL string `json:"url"`
	}
	err = r.call(r.b.ctx, "POST", "/api/v1/ui/codes", map[string]any{}, &code)
	base, _, _ = strings.Cut(code.URL, "#")
	return base, err
}

// lengthen adds events to a stored task's journal.
func (r *rig) lengthen(id string, events int) error {
	s, closeStore, err := openStore(r.dir)
	if err != nil {
		return err
	}
	err = func() error {
		row, err := s.Mission(r.b.ctx, id)
		if err != nil {
			return err
		}
		l := &life{}
		if err := json.Unmarshal(row.Data, &l.m); err != nil {
			return err
		}
		if l.head, err = s.Head(r.b.ctx, id); err != nil {
			return err
		}
		for at := 0; at < events; {
			var facts []mission.Fact
			for ; len(facts) < 1000 && at < events; at++ {
				facts = append(facts, progressed(at))
			}
			batch, err := l.then(time.Now(), false, facts...)
			if err == nil {
				err = commitTo(r.b.ctx, s, batch)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}()
	return errors.Join(err, closeStore())
}

// paints measures how long it takes from nothing in the browser's cache to the
// first paint, and to the whole list.
func (m *room) paints() error {
	if _, err := m.t.visit(m.base, "document.getElementById('token')"); err != nil {
		return err
	}
	if _, err := value[bool](m.t, fmt.Sprintf("sessionStorage.setItem('airlock.token', %q) === undefined", strings.Repeat("k3y-", 10))); err != nil {
		return err
	}
	whole := fmt.Sprintf("document.querySelectorAll('.mission').length > 5 && document.querySelector('.tabs')?.textContent.includes('Live %d')", roomTasks)
	var first, plain, list []float64
	for i := range m.b.rounds(20, 3) + 1 {
		d, err := m.t.visit(m.plain.url, "document.body?.textContent")
		if err != nil {
			return err
		}
		bare, err := m.t.firstPaint()
		if err != nil {
			return err
		}
		if d, err = m.t.visit(m.base+"#/missions", whole); err != nil {
			return err
		}
		painted, err := m.t.firstPaint()
		if err != nil {
			return err
		}
		if i > 0 { // the first round warms host and browser up
			first, plain, list = append(first, painted), append(plain, bare), append(list, d.Since)
		}
	}
	m.b.emit("ui_first_paint_ms", "ms", median(first), median(plain), len(first), spread(first))
	m.b.emit("ui_list_1000_ms", "ms", median(list), median(plain), len(list), spread(list))
	return nil
}

// mission measures the view of the mission with the long journal.
func (m *room) mission() error {
	ctx := m.b.ctx
	last, err := m.head(ctx)
	if err != nil {
		return err
	}
	shows := func(seq uint64) string {
		return fmt.Sprintf("document.querySelector('.events li[data-seq=\"%d\"]')", seq)
	}
	var opened []float64
	for i := range m.b.rounds(20, 3) + 1 {
		d, err := m.t.visit(m.base+"#/missions/"+longTask, shows(last))
		if err != nil {
			return err
		}
		if i > 0 {
			opened = append(opened, d.Since)
		}
	}
	m.b.emit("ui_mission_100k_ms", "ms", median(opened), 0, len(opened), spread(opened))
	fresh, err := m.t.heap()
	if err != nil {
		return err
	}
	took, err := m.pixels(m.b.rounds(60, 5), func(int) string { last++; return shows(last) }, func(i int) error { return m.plan(i) })
	if err != nil {
		return err
	}
	bare, err := m.plain.pixels(m.t, m.b.rounds(60, 5))
	if err != nil {
		return err
	}
	m.b.note("ui_event_to_pixel_p50_ms: p99 %.1f ms", percentile(took, 0.99))
	m.b.emit("ui_event_to_pixel_p50_ms", "ms", median(took), median(bare), len(took), spread(took))
	// Then many at once: what the page holds must not grow with them.
	if _, err := m.t.visit(m.base+"#/missions/"+longTask, shows(last)); err != nil {
		return err
	}
	for i := range m.b.rounds(2000, 50) {
		if err := m.plan(i); err != nil {
			return err
		}
		last++
	}
	if _, err := value[drawn](m.t, "awaited(() => "+shows(last)+")"); err != nil {
		return err
	}
	heap, err := m.t.heap()
	if err != nil {
		return err
	}
	nodes, err := value[int](m.t, "document.querySelectorAll('*').length")
	if err != nil {
		return err
	}
	m.b.note("ui_heap_mb: %.1f MB when it was opened, %d elements after", fresh, nodes)
	m.b.emit("ui_heap_mb", "MB", heap, fresh, 1, 0)
	return nil
}

// list measures how long a change of one of 1,000 missions takes to its row.
func (m *room) list() error {
	if !m.b.wanted("ui_list_event_to_pixel_p50_ms") {
		return nil
	}
	row := fmt.Sprintf("document.querySelector('a[href=\"#/missions/%s\"] .state')", newestTask)
	if _, err := m.t.visit(m.base+"#/missions", fmt.Sprintf("document.querySelector('.tabs')?.textContent.includes('Live %d') && %s", roomTasks, row)); err != nil {
		return err
	}
	actions := []string{"pause", "resume"}
	took, err := m.pixels(m.b.rounds(60, 4), func(i int) string { return fmt.Sprintf("(%s?.textContent === 'paused') === %v", row, i%2 == 0) }, func(i int) error {
		return m.r.call(m.b.ctx, "POST", "/tasks/"+newestTask+"/control", map[string]any{"action": actions[i%2]}, nil)
	})
	if err != nil {
		return err
	}
	m.b.note("ui_list_event_to_pixel_p50_ms: p99 %.1f ms", percentile(took, 0.99))
	m.b.emit("ui_list_event_to_pixel_p50_ms", "ms", median(took), 0, len(took), spread(took))
	return nil
}

// pixels does something that the page shows, n times, and gives how long each
// took from the request on, in ms.
func (m *room) pixels(n int, test func(int) string, do func(int) error) ([]float64, error) {
	var took []float64
	for i := range n {
		if _, err := value[bool](m.t, "globalThis.pixel = awaited(() => "+test(i)+"), true"); err != nil {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond) // what the page did after the last one is over
		began := time.Now()
		if err := do(i); err != nil {
			return nil, err
		}
		d, err := value[drawn](m.t, "globalThis.pixel")
		if err != nil {
			return nil, err
		}
		took = append(took, d.At-float64(began.UnixMicro())/1000)
	}
	return took, nil
}

func (m *room) plan(i int) error {
	return m.r.call(m.b.ctx, "PUT", "/tasks/"+longTask+"/plan", map[string]any{"plan": []any{map[string]any{"description": fmt.Sprintf("step %d %s", i, uuid.NewString())}}}, nil)
}

// head is the newest event of the long task.
func (m *room) head(ctx context.Context) (uint64, error) {
	var page struct {
		Next uint64 `json:"next"`
	}
	for at := uint64(0); ; at = page.Next {
		if err := m.r.call(ctx, "GET", fmt.Sprintf("/tasks/%s/events?after=%d", longTask, max(at, uint64(m.b.rounds(roomEvents, 2000))-50)), nil, &page); err != nil {
			return 0, err
		}
		if page.Next == at {
			return at, nil
		}
	}
}
