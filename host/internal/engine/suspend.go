package engine

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// suspendReason is the seed's word for a planned shutdown.
const suspendReason = "mgmt_server_shutdown"

// Drain refuses new missions from now on.
func (e *Engine) Drain() {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
}

// Suspend is the planned shutdown: no new missions, every goroutine lets go of
// its mission, and each mission that has not ended says that it is suspended.
// Cells stay alive; with toDisk those whose agents ask for it are written to
// disk, see save. Close must follow.
func (e *Engine) Suspend(ctx context.Context, toDisk bool) error {
	e.Drain()
	e.end()
	e.wg.Wait()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for _, a := range e.live() {
		if a.quarantined.Load() != nil || a.state().Harness { // a harness task comes back stopped
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			id := "ckpt-" + newUUID()
			var saved *cells.Cell
			if toDisk {
				saved = e.save(ctx, a, id)
			}
			err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
				if m.Terminal() {
					return nil, nil
				}
				if neverStarted(m, a.cell()) { // it queues again; its cell goes at the next start
					facts, err := m.Requeue(m.Generation, e.now())
					if err != nil {
						return nil, err
					}
					queued := *m
					for _, f := range facts {
						queued.Apply(f, e.now())
					}
					more, err := queued.Suspend(id, suspendReason)
					return append(facts, more...), err
				}
				return m.Suspend(id, suspendReason)
			}, func(_ *mission.Mission, b *store.Batch) error {
				if saved == nil {
					return nil
				}
				return putCell(b, saved)
			})
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		}()
	}
	e.endWarm(ctx)
	wg.Wait()
	return errors.Join(errs...)
}

// goneAgent stands in for an agent block that is no longer configured.
func goneAgent(m mission.Mission) config.Agent {
	return config.Agent{Name: m.Agent, Isolation: m.Isolation, Runtime: m.Runtime, Slots: 1,
		Invalid: "the agent block is gone from the configuration; a mission of it still lives"}
}

// AbortAll takes no new missions, aborts every one that has a cell, and waits
// until they have ended.
func (e *Engine) AbortAll(ctx context.Context, actor, reason string) error {
	e.Drain()
	for _, a := range e.live() {
		if !a.state().Harness && a.quarantined.Load() == nil {
			_ = e.stopWith(a, mission.Stop{Actor: actor, By: "system", Reason: reason})
		}
	}
	return e.Idle(ctx)
}

// Draining says whether the host takes no new missions any more.
func (e *Engine) Draining() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.draining
}

// Idle waits until no mission lives.
func (e *Engine) Idle(ctx context.Context) error {
	for {
		live := slices.DeleteFunc(e.live(), func(a *actor) bool { return a.state().Harness })
		if len(live) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-live[0].done:
		}
	}
}
