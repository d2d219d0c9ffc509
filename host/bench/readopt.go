package main

import (
	"fmt"
	"sync"
	"time"
)

const readopted = 100

// measureReadopt measures how long a host takes to start, and how long after a
// kill -9 with 100 running missions until the orchestrator has been told of all
// of them that they are reconnected.
func measureReadopt(b *bench) error {
	r, err := newRig(b, agentBlock("agent-01", 128, 100, "governance {\n    max_resumes = 1000\n  }"))
	if err != nil {
		return err
	}
	defer r.clean()
	var empty []float64
	for range b.rounds(5, 2) {
		if err := r.start(); err != nil {
			return err
		}
		empty = append(empty, ms(time.Since(r.began)))
		if err := r.kill(); err != nil {
			return err
		}
	}
	b.emit("host_start_ms", "ms", median(empty), 0, len(empty), spread(empty))
	if !b.wanted("readopt_100_ms") {
		return nil
	}
	if err := r.start(); err != nil {
		return err
	}
	ids := make([]string, readopted)
	for i := range ids {
		ids[i] = fmt.Sprintf("sleeper-%03d", i)
	}
	began := time.Now()
	if err := r.dispatchAll(ids, "sleep 3600", 16); err != nil {
		return err
	}
	if _, err := r.watch.await(b.ctx, "mission.started", ids...); err != nil {
		return err
	}
	b.note("readopt_100_ms: %d missions were started in %.0f ms", readopted, ms(time.Since(began)))
	var took, registered []float64
	for range b.rounds(5, 2) {
		if err := r.kill(); err != nil {
			return err
		}
		r.watch.forget()
		if err := r.start(); err != nil {
			return err
		}
		registered = append(registered, ms(time.Since(r.began)))
		events, err := r.watch.await(b.ctx, "mission.reconnected", ids...)
		if err != nil {
			return err
		}
		took = append(took, ms(last(events).Sub(r.began)))
		b.note("readopt_100_ms: %.0f ms, %s", took[len(took)-1], r.cpu().since(nil, 1))
		if _, err := r.watch.await(b.ctx, "mission.resumed", ids...); err != nil {
			return err
		}
	}
	b.note("readopt_100_ms: registered after %.0f, all reconnected after %.0f ms", median(registered), median(took))
	b.emit("readopt_100_ms", "ms", median(took), median(empty), len(took), spread(took))
	return nil
}

// dispatchAll dispatches the same work many times, some at once.
func (r *rig) dispatchAll(ids []string, objective string, atOnce int) error {
	errs := make([]error, len(ids))
	room := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, id := range ids {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			errs[i] = r.dispatch(id, objective, "")
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
