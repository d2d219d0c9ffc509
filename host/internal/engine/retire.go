package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// retireGrants takes back what issuers gave to the mission's earlier sessions,
// once a session with access of its own runs (rulings 45). It insists until
// nothing of them is left, or ctx ends: then the next session's start, or the
// mission's end, takes it up.
func (e *Engine) retireGrants(ctx context.Context, a *actor, generation uint64) {
	for pause := revokeAgain; ctx.Err() == nil && !a.latch.Load(); pause = min(2*pause, revokeSlow) {
		m := a.settled()
		left := false
		for _, g := range m.Task.Grants {
			if g.Generation >= generation || g.Over() || m.Terminal() {
				continue
			}
			if err := e.retireGrant(ctx, a, g, generation); err != nil && ctx.Err() == nil {
				left = true
				a.log().Warn("access of an earlier session is not revoked yet", "issuer", g.Issuer, "grant", g.ID, "error", err)
			}
		}
		if !left || wait(ctx, pause) != nil {
			return
		}
	}
}

// retireGrant is one attempt. Only a plain acknowledgement counts, and only when
// the issuer does not take the credential any more.
func (e *Engine) retireGrant(ctx context.Context, a *actor, g governance.Grant, generation uint64) error {
	client, err := e.opts.Plugins.Revoker(g.Issuer)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	got := askRevoker(ctx, client, &pluginv1.RevokeRequest{
		Task: e.taskRef(a), StopId: fmt.Sprintf("%s-renewed-%d", a.state().JournalUUID, generation), Grants: []string{g.ID},
		Reason: "a later session of the mission has access of its own"})
	if got.Result != acknowledged {
		return errors.New(got.Detail)
	}
	return a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		if m.Terminal() {
			return nil, nil // its end has taken it back, or does
		}
		return []mission.Fact{governance.Granted{V: 1, GrantID: g.ID, Issuer: g.Issuer, Generation: g.Generation, State: "revoked"}}, nil
	}, nil)
}
