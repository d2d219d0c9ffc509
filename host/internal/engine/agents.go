package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cells"
)

// agent is one agent block with its slots and its queue.
type agent struct {
	cfg atomic.Pointer[config.Agent] // replaced by a reload

	mu      sync.Mutex
	running map[*actor]bool
	queue   []*slotWait // oldest first
	warm    []*cells.Cell
}

type slotWait struct {
	actor *actor
	ready chan struct{}
}

func newAgent(cfg config.Agent) *agent {
	g := &agent{running: map[*actor]bool{}}
	g.configure(cfg)
	return g
}

// block is the agent block that is in force.
func (g *agent) block() *config.Agent { return g.cfg.Load() }

// configure puts a block in force; missions that waited for a slot may get one.
func (g *agent) configure(cfg config.Agent) {
	if cfg.Slots < 1 {
		cfg.Slots = 1
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg.Store(&cfg)
	g.letIn()
}

// room says whether a mission can start now, and whether it can wait.
func (g *agent) room() (slot, queue bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.running) < g.block().Slots && len(g.queue) == 0, len(g.queue) < g.block().Queue
}

// enter takes a slot or a place in the queue; it never blocks. force is for
// missions of an earlier life of the host, which have a place already.
func (g *agent) enter(a *actor, force bool) (*slotWait, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &slotWait{actor: a, ready: make(chan struct{})}
	if len(g.running) < g.block().Slots && len(g.queue) == 0 {
		g.running[a] = true
		close(w.ready)
		return w, true
	}
	if !force && len(g.queue) >= g.block().Queue {
		return nil, false
	}
	g.queue = append(g.queue, w)
	return w, true
}

// again gives the slot that a mission holds already; false: it holds none.
func (g *agent) again(a *actor) (*slotWait, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running[a] {
		return nil, false
	}
	w := &slotWait{actor: a, ready: make(chan struct{})}
	close(w.ready)
	return w, true
}

// occupy takes a slot whatever the count says: the mission runs already.
// It does not wait any more if it did.
func (g *agent) occupy(a *actor) {
	g.mu.Lock()
	g.queue = slices.DeleteFunc(g.queue, func(w *slotWait) bool { return w.actor == a })
	g.running[a] = true
	g.mu.Unlock()
}

// leave gives up a slot or a place and lets the next mission in.
func (g *agent) leave(a *actor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, a)
	g.queue = slices.DeleteFunc(g.queue, func(w *slotWait) bool { return w.actor == a })
	g.letIn()
}

// letIn gives free slots to those who wait; the lock is held.
func (g *agent) letIn() {
	for len(g.running) < g.block().Slots && len(g.queue) > 0 {
		w := g.queue[0]
		g.queue = g.queue[1:]
		g.running[w.actor] = true
		close(w.ready)
	}
}

func (g *agent) view() AgentView {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.block()
	return AgentView{Name: b.Name, Isolation: b.Isolation, Runtime: b.Runtime, Slots: b.Slots,
		Running: len(g.running), Queued: len(g.queue), QueueLimit: b.Queue, Warm: len(g.warm), Capabilities: []string{}}
}

// Agents gives every agent block as it is now, and those that a reload took away
// for as long as missions of them live.
func (e *Engine) Agents() []AgentView {
	f, live := e.fleet.Load(), e.live()
	views := make([]AgentView, 0, len(f.agents))
	for _, g := range slices.Concat(f.agents, f.gone) {
		v := g.view()
		if f.byName[v.Name] != g && v.Running+v.Queued == 0 {
			continue
		}
		if caps, err := e.health(g); err != nil {
			v.Reason = err.Error()
		} else {
			v.Healthy, v.Capabilities = true, caps
		}
		v.Notes = e.notes(g, live)
		views = append(views, v)
	}
	return views
}

// fitness is how an agent could take a dispatch.
type fitness int

const (
	fitNever fitness = iota // unhealthy
	fitLacks                // it does not provide what is asked for
	fitFull                 // no slot, no place in its queue
	fitLater                // a place in its queue
	fitNow                  // a free slot
)

// assess says how an agent could take a dispatch now, what it provides, and
// where it could not, why.
func (e *Engine) assess(g *agent, d *Dispatch) (fitness, []string, string) {
	b := g.block()
	caps, err := e.health(g)
	if err != nil {
		return fitNever, nil, err.Error()
	}
	if missing := lacks(caps, d.Capabilities); missing != "" {
		return fitLacks, caps, fmt.Sprintf("agent %q does not provide %s", b.Name, missing)
	}
	switch slot, queue := g.room(); {
	case slot:
		return fitNow, caps, ""
	case queue:
		return fitLater, caps, ""
	}
	return fitFull, caps, fmt.Sprintf("agent %q: %d missions run and %d wait; its queue is full", b.Name, b.Slots, b.Queue)
}

// choose finds the agent for a dispatch (rulings 1, 2).
func (e *Engine) choose(d *Dispatch) (*agent, *Refusal) {
	f := e.fleet.Load()
	if d.AgentID != "" {
		g := f.byName[d.AgentID]
		if g == nil {
			return nil, &Refusal{Kind: RefusedUnknownAgent, Agent: d.AgentID, Detail: fmt.Sprintf("no agent block is named %q", d.AgentID)}
		}
		fit, _, why := e.assess(g, d)
		if kind, refused := map[fitness]RefusalKind{fitNever: RefusedUnhealthyAgent, fitLacks: RefusedNoAgent, fitFull: RefusedQueueFull}[fit]; refused {
			return nil, &Refusal{Kind: kind, Agent: d.AgentID, Detail: why}
		}
		return g, nil
	}
	var waiting *agent
	why, full := "no agent block is configured", false
	for _, g := range f.agents {
		switch fit, _, reason := e.assess(g, d); fit {
		case fitNow:
			return g, nil
		case fitLater:
			if waiting == nil {
				waiting = g
			}
		case fitFull:
			full, why = true, "the queue of every agent that fits is full"
		case fitLacks:
			if !full {
				why = reason
			}
		case fitNever:
			why = reason
		}
	}
	if waiting != nil {
		return waiting, nil
	}
	kind := RefusedNoAgent
	if full {
		kind = RefusedQueueFull
	}
	return nil, &Refusal{Kind: kind, Detail: why}
}

// always are what the host itself provides.
var always = []string{"resumable", "platform:" + platform()}

func lacks(caps, wanted []string) string {
	for _, w := range wanted {
		if !slices.Contains(caps, w) && !slices.Contains(always, w) {
			return w
		}
	}
	return ""
}

// Capabilities gives what healthy agents provide, sorted.
func (e *Engine) Capabilities() []string {
	e.capMu.Lock()
	defer e.capMu.Unlock()
	return slices.Clone(e.capList)
}

// CapabilitiesChanged gives a channel that is closed at the next change.
func (e *Engine) CapabilitiesChanged() <-chan struct{} {
	e.capMu.Lock()
	defer e.capMu.Unlock()
	return e.capCh
}

func (e *Engine) refreshCapabilities() {
	list := slices.Clone(always)
	for _, g := range e.fleet.Load().agents {
		if caps, err := e.health(g); err == nil {
			list = append(list, caps...)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	e.capMu.Lock()
	defer e.capMu.Unlock()
	if !slices.Equal(list, e.capList) {
		e.capList = list
		close(e.capCh)
		e.capCh = make(chan struct{})
	}
}

// lookPause is the pause between two looks at what tells nobody when it changes:
// the sources of workspaces.
const lookPause = 30 * time.Second

func (e *Engine) watchPlugins(ctx context.Context) {
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		changed := e.opts.Plugins.Changed()
		e.refreshCapabilities()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}
