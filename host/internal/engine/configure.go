package engine

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// fleet are the agents of a configuration. It never changes; a reload makes
// another one.
type fleet struct {
	agents []*agent          // in config order
	byName map[string]*agent // the same
	gone   []*agent          // of blocks that are not there any more; missions of them may live
}

// removed says why an agent takes no missions whose block is gone.
const removed = "its block was removed from the configuration; its missions go on with what they started with"

// Configure puts another configuration in force, but for the rules. Missions
// that were taken in keep what they started with (architecture, decision 14):
// an agent's block counts from the next mission on, its slots and its queue at
// once. remade names isolation instances whose cells are made in another way
// from now on: warm cells of them are not used any more.
func (e *Engine) Configure(cfg *config.Config, remade []string) {
	e.configure(cfg)
	e.endUnfitWarm(remade)
	e.refreshCapabilities()
}

// configure is for one caller at a time.
func (e *Engine) configure(cfg *config.Config) {
	e.conf.Store(cfg)
	old := e.fleet.Load()
	known := map[string]*agent{}
	for _, g := range slices.Concat(old.gone, old.agents) {
		known[g.block().Name] = g
	}
	f := &fleet{byName: map[string]*agent{}}
	for _, block := range cfg.Agents {
		g := known[block.Name]
		if g == nil {
			g = newAgent(block)
		} else {
			g.configure(block)
		}
		delete(known, block.Name)
		f.agents = append(f.agents, g)
		f.byName[block.Name] = g
	}
	for _, g := range known {
		block := *g.block()
		block.Invalid, block.Warm = removed, 0
		g.configure(block)
		f.gone = append(f.gone, g)
	}
	e.fleet.Store(f)
}

// endUnfitWarm ends the warm cells that no next mission could use.
func (e *Engine) endUnfitWarm(remade []string) {
	f := e.fleet.Load()
	for _, g := range slices.Concat(f.agents, f.gone) {
		var unfit []*cells.Cell
		g.mu.Lock()
		block := g.block()
		want := specOf(*block).Cell
		g.warm = slices.DeleteFunc(slices.Clone(g.warm), func(c *cells.Cell) bool {
			keep := len(g.warm)-len(unfit) <= block.Warm && e.opts.Cells.Fits(c, want) && !slices.Contains(remade, c.Instance)
			if !keep {
				unfit = append(unfit, c)
			}
			return !keep
		})
		g.mu.Unlock()
		for _, c := range unfit {
			e.goRun(func(ctx context.Context) { e.endCell(ctx, c) })
		}
	}
}

// changers is how many tasks are told of other rules side by side; their events
// share commits.
const changers = 64

// SetRules puts other rules in force: from now on every call is judged by them.
// Each live task gets an event and a new epoch, and what waits for a human is
// judged again. It gives how many tasks were told; one whose journal cannot be
// written now is told as soon as it can.
func (e *Engine) SetRules(rules *gate.Rules) int {
	same := e.rules().Digest() == rules.Digest()
	e.gateRules.Store(rules)
	if same {
		return 0
	}
	var told atomic.Int64
	var g errgroup.Group
	g.SetLimit(changers)
	for _, a := range e.live() {
		g.Go(func() error {
			if e.adoptRules(a) {
				told.Add(1)
			}
			return nil
		})
	}
	_ = g.Wait()
	return int(told.Load())
}

// adoptRules tells a task of the rules in force, if it goes by others.
func (e *Engine) adoptRules(a *actor) bool {
	if a.quarantined.Load() != nil {
		return false
	}
	changed := false
	change := func(m *mission.Mission) ([]mission.Fact, error) {
		r := e.rules()
		facts := m.ChangeRules(governance.RulesChanged{Digest: r.Digest(), Policy: r.PolicyText(), Stages: r.Stages(), Mode: r.Mode()})
		changed = len(facts) > 0
		return facts, nil
	}
	err := a.commit(change, nil)
	switch {
	case errors.Is(err, ErrUnavailable):
		a.log().Error("a task could not be told of other rules yet; every call of it is judged by them all the same", "error", err)
		e.goRun(func(ctx context.Context) {
			if a.insist(change, nil) == nil {
				e.rejudge(ctx, a)
			}
		})
		return false
	case err != nil:
		a.log().Error("a task could not be told of other rules", "error", err)
		return false
	case changed:
		e.rejudge(e.life, a)
	}
	return changed
}

// InUse names everything of the configuration that live missions and cells go
// on using: refs of plugin instances and of gateways.
func (e *Engine) InUse(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	for _, a := range e.live() {
		m := a.state()
		if sp, err := a.spec(); err == nil && !m.Harness {
			used[sp.Cell.Isolation], used[sp.Runtime] = true, true
			for _, name := range sp.Gateways {
				used["gateway."+name] = true
			}
		}
		all := e.issuers(a, m)
		if !m.Harness { // a task of a harness could use any, and uses those that it names
			for _, ref := range all {
				used[ref] = true
			}
		}
		for _, g := range m.Task.Grants {
			used[g.Issuer] = true
		}
		for _, acc := range m.Task.Access {
			used[issuerRef(all, acc.Issuer)] = true
		}
	}
	rows, err := e.opts.Store.Cells(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	for _, r := range rows {
		c, err := cells.FromRow(r)
		if err != nil {
			return nil, err
		}
		used[c.Instance] = true
	}
	return used, nil
}
