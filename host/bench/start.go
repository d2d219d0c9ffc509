package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// measureStarts measures from a dispatch at the orchestrator to the arrival of
// mission.started there.
func measureStarts(b *bench) error {
	r, err := startedRig(b, agentBlock("cold", 64, 100, "")+agentBlock("warm", 64, 100, warmLine))
	if err != nil {
		return err
	}
	defer r.clean()
	if err := r.idle(); err != nil {
		return err
	}
	if b.wanted("start_host_p50_ms") {
		if err := r.oneByOne("start_host_p50_ms", "cold"); err != nil {
			return err
		}
	}
	if b.wanted("start_host_warm_p50_ms") {
		if err := r.oneByOne("start_host_warm_p50_ms", "warm"); err != nil {
			return err
		}
	}
	if b.wanted("start_host_10_ms") {
		return r.tenAtOnce()
	}
	return nil
}

// idle waits until nothing runs, every warm cell is there and the cells that
// are not needed are gone.
func (r *rig) idle() error {
	err := until(r.b.ctx, "the host is idle", func() bool {
		var view struct {
			Agents []struct {
				Name                  string
				Running, Queued, Warm int
			} `json:"agents"`
		}
		if r.call(r.b.ctx, "GET", "/api/v1/agents", nil, &view) != nil || len(view.Agents) == 0 {
			return false
		}
		warm := 0
		for _, a := range view.Agents {
			if a.Running+a.Queued > 0 || a.Name == "warm" && a.Warm != warmCells {
				return false
			}
			warm += a.Warm
		}
		return len(r.cellAgents()) <= warm
	})
	if err == nil {
		pause(r.b, 50*time.Millisecond)
	}
	return err
}

// pause lets the machine come to rest between two samples.
func pause(b *bench, d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.ctx.Done():
	}
}

// oneByOne starts missions one at a time on an idle host.
func (r *rig) oneByOne(figure, agent string) error {
	var starts, accepted, committed, bare []float64
	n := r.b.rounds(40, 8)
	before := r.cpu()
	for i := range n + 2 { // two to warm up
		took, err := shells(1)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("%s-%d", agent, i)
		one, err := r.startOne(id, agent)
		if err != nil {
			return err
		}
		if err := r.idle(); err != nil {
			return err
		}
		if i < 2 {
			continue
		}
		bare = append(bare, ms(took))
		starts = append(starts, one.seen)
		accepted = append(accepted, one.accepted)
		committed = append(committed, one.committed)
	}
	r.b.note("%s: %s, start to end", figure, r.cpu().since(before, n+2))
	r.b.note("%s: answered after %.1f, journalled as started after about %.1f, seen after p50 %.1f, p90 %.1f ms; a bare shell takes %.2f ms",
		figure, median(accepted), median(committed), median(starts), percentile(starts, 0.9), median(bare))
	r.b.emit(figure, "ms", median(starts), median(bare), len(starts), spread(starts))
	return nil
}

// started is how long one mission's start took, in ms from its dispatch.
type started struct{ accepted, committed, seen float64 }

// startOne runs a mission to its end and says how its start went.
func (r *rig) startOne(id, agent string) (started, error) {
	began := time.Now()
	if err := r.dispatch(id, "true", agent); err != nil {
		return started{}, err
	}
	answered := time.Since(began)
	events, err := r.watch.await(r.b.ctx, "mission.started", id)
	if err != nil {
		return started{}, err
	}
	if _, err := r.watch.await(r.b.ctx, "mission.completed", id); err != nil {
		return started{}, err
	}
	return started{ms(answered), ms(stamped(events[0]).Sub(began)), ms(last(events).Sub(began))}, nil
}

// stamped is an event's own time, in whole milliseconds.
func stamped(e orchestrator.Event) time.Time {
	t, err := time.Parse(time.RFC3339Nano, e.TS)
	if err != nil {
		return time.Time{}
	}
	return t
}

// tenAtOnce dispatches ten missions at once and waits until all have started.
func (r *rig) tenAtOnce() error {
	const ten = 10
	var starts, bare []float64
	n := r.b.rounds(11, 3)
	before := r.cpu()
	for round := range n + 1 {
		took, err := shells(ten)
		if err != nil {
			return err
		}
		ids := make([]string, ten)
		errs := make([]error, ten)
		var wg sync.WaitGroup
		began := time.Now()
		for i := range ten {
			ids[i] = fmt.Sprintf("ten-%d-%d", round, i)
			wg.Go(func() { errs[i] = r.dispatch(ids[i], "true", "cold") })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		started, err := r.watch.await(r.b.ctx, "mission.started", ids...)
		if err != nil {
			return err
		}
		if _, err := r.watch.await(r.b.ctx, "mission.completed", ids...); err != nil {
			return err
		}
		if err := r.idle(); err != nil {
			return err
		}
		if round > 0 {
			starts, bare = append(starts, ms(last(started).Sub(began))), append(bare, ms(took))
		}
	}
	r.b.note("start_host_10_ms: %s", r.cpu().since(before, (n+1)*ten))
	r.b.emit("start_host_10_ms", "ms", median(starts), median(bare), len(starts), spread(starts))
	return nil
}
