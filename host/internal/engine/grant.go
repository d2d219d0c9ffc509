package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

const grantTimeout = 15 * time.Second

// featureGrants is the feature of revoker plugins that make grants.
const featureGrants = "grants"

// grant asks the agent's issuers for the access that the session is to have, and
// gives the environment to inject; it is never stored. The id is journalled
// before an issuer is asked, so that whatever was given can be taken back after
// a crash.
func (e *Engine) grant(ctx context.Context, a *actor, sp spec) (map[string]string, error) {
	env := map[string]string{}
	for _, ref := range sp.Revokers {
		if !slices.Contains(e.opts.Plugins.Features(ref), featureGrants) {
			continue
		}
		m := a.settled()
		id := fmt.Sprintf("%s-%d", hashed(a.id + "\x00" + ref)[:32], m.Generation)
		note := func(state string) error {
			return a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
				if a.latch.Load() {
					return nil, errStopped
				}
				return []mission.Fact{governance.Granted{V: 1, GrantID: id, Issuer: ref, Generation: m.Generation, State: state}}, nil
			}, nil)
		}
		if err := note("requested"); err != nil {
			return nil, err
		}
		got, err := e.askGrant(ctx, a, ref, id)
		if err != nil {
			return nil, fmt.Errorf("grant by %s: %w", ref, err)
		}
		if err := note("active"); err != nil {
			return nil, err
		}
		maps.Copy(env, got.GetEnv())
	}
	return env, nil
}

func (e *Engine) askGrant(ctx context.Context, a *actor, ref, id string) (*pluginv1.Grant, error) {
	client, err := e.opts.Plugins.Revoker(ref)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	m := a.state()
	request, err := json.Marshal(map[string]any{"agent": m.Agent, "objective": m.Objective})
	if err != nil {
		return nil, err
	}
	resp, err := client.Grant(ctx, &pluginv1.GrantRequest{Task: e.taskRef(a), GrantId: id, RequestJson: request})
	if err != nil {
		return nil, err
	}
	return resp.GetGrant(), nil
}

// secretEnv is the environment that must never be stored: what issuers granted,
// and what the plan takes of it under other names.
func secretEnv(plan *pluginv1.LaunchPlan, granted map[string]string) ([]string, error) {
	env := maps.Clone(granted)
	for name, ref := range plan.GetSecretEnv() {
		value, ok := granted[ref.GetGrant()]
		if ref.GetGrant() == "" || !ok {
			return nil, fmt.Errorf("it needs a secret for %s that no revoker of the agent grants (%q)", name, ref.GetGrant())
		}
		env[name] = value
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out, nil
}
