package executor

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/airlock-host/airlock/host/internal/engine"
)

// abortedMeanwhile finds the owned missions that serve shows as aborted. Serve
// says so at once when an operator asks for it, and its command is lost if the
// host is away. A mission that is live here has never sent that event itself, so
// it can only be the operator's wish; restating the mission as running would
// undo it. A pause cannot be told from an older one of our own and stays lost.
func (x *Executor) abortedMeanwhile(ctx context.Context, owned []engine.Owned) map[string]bool {
	var (
		g       errgroup.Group
		mu      sync.Mutex
		aborted = map[string]bool{}
	)
	g.SetLimit(pollers)
	for _, o := range owned {
		g.Go(func() error {
			// Serve's not knowing or not saying is no abort.
			got, err := x.serve.mission(ctx, x.opt.Timings.ReadBackWait, o.MissionID)
			if err == nil && got.State == "aborted" {
				mu.Lock()
				defer mu.Unlock()
				aborted[o.MissionID] = true
			}
			return nil
		})
	}
	_ = g.Wait()
	return aborted
}
