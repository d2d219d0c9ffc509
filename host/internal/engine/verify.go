package engine

import (
	"context"
	"errors"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// verifyRest verifies the journals of the live tasks from their beginning, one
// after the other, once the host is up: the start has looked at what follows
// their signed heads only (rulings 43). One that does not verify quarantines its
// task; that it cannot be read now says nothing.
func (e *Engine) verifyRest(ctx context.Context) {
	for _, a := range e.live() {
		if a.quarantined.Load() != nil {
			continue
		}
		err := e.opts.Store.VerifyTask(ctx, a.id)
		if ctx.Err() != nil {
			return
		}
		var bad *journal.ChainError
		switch {
		case errors.As(err, &bad):
			e.quarantineLive(ctx, a, err)
		case err != nil:
			e.log.Warn("a journal could not be verified whole", "task", a.id, "error", err)
		}
	}
}

// quarantineLive is quarantine for a mission that runs already.
func (e *Engine) quarantineLive(ctx context.Context, a *actor, cause error) {
	why := notTrusted(a.id, cause)
	if !a.quarantined.CompareAndSwap(nil, &why) {
		return
	}
	a.setLatch()
	e.log.Error("mission is quarantined", "mission", a.id, "error", cause)
	if c := a.cell(); c != nil {
		e.freezeForGood(ctx, a, c)
	}
}
