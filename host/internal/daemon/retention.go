package daemon

import (
	"context"
	"time"

	"github.com/airlock-host/airlock/host/internal/retention"
)

// retain archives and removes missions that are over for as long as the host
// lives; without a retention block everything is kept.
func (h *host) retain(life context.Context) {
	r := h.cfg.Retention
	if r == nil {
		return
	}
	// Often enough that nothing is kept much longer than asked for.
	every := min(time.Hour, max(time.Second, r.Journals/10))
	k := retention.New(retention.Options{Every: every, Store: h.store, Engine: h.engine, Sign: h.heads.Sign, Log: h.log.Named("retention"), Now: h.clock, Hook: h.fail,
		Rules: retention.Rules{After: r.Journals, MaxSize: r.MaxSize, States: r.States, Dir: r.Archive}})
	h.background.Go(func() { k.Run(life) })
}
