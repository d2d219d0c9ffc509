package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cells"
)

// agent is one agent block with its slots and its queue.
type agent struct {
	cfg config.Agent

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
	if cfg.Slots < 1 {
		cfg.Slots = 1
	}
	return &agent{cfg: cfg, running: map[*actor]bool{}}
}

// room says whether a mission can start now, and whether it can wait.
func (g *agent) room() (slot, queue bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.running) < g.cfg.Slots && len(g.queue) == 0, len(g.queue) < g.cfg.Queue
}

// enter takes a slot or a place in the queue; it never blocks. force is for
// missions of an earlier life of the host, which have a place already.
func (g *agent) enter(a *actor, force bool) (*slotWait, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &slotWait{actor: a, ready: make(chan struct{})}
	if len(g.running) < g.cfg.Slots && len(g.queue) == 0 {
		g.running[a] = true
		close(w.ready)
		return w, true
	}
	if !force && len(g.queue) >= g.cfg.Queue {
		return nil, false
	}
	g.queue = append(g.queue, w)
	return w, true
}

// occupy takes a slot whatever the count says: the mission runs already.
func (g *agent) occupy(a *actor) {
	g.mu.Lock()
	g.running[a] = true
	g.mu.Unlock()
}

// leave gives up a slot or a place and lets the next mission in.
func (g *agent) leave(a *actor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, a)
	g.queue = slices.DeleteFunc(g.queue, func(w *slotWait) bool { return w.actor == a })
	for len(g.running) < g.cfg.Slots && len(g.queue) > 0 {
		w := g.queue[0]
		g.queue = g.queue[1:]
		g.running[w.actor] = true
		close(w.ready)
	}
}

func (g *agent) view() AgentView {
	g.mu.Lock()
	defer g.mu.Unlock()
	return AgentView{Name: g.cfg.Name, Isolation: g.cfg.Isolation, Runtime: g.cfg.Runtime, Slots: g.cfg.Slots,
		Running: len(g.running), Queued: len(g.queue), QueueLimit: g.cfg.Queue, Warm: len(g.warm), Capabilities: []string{}}
}

// health gives what an agent provides, or why it cannot take missions.
func (e *Engine) health(g *agent) (caps []string, err error) {
	if g.cfg.Invalid != "" {
		return nil, fmt.Errorf("agent %q: %s", g.cfg.Name, g.cfg.Invalid)
	}
	for _, ref := range []string{g.cfg.Isolation, g.cfg.Runtime} {
		got, err := e.opts.Plugins.Capabilities(ref)
		if err != nil {
			return nil, fmt.Errorf("agent %q: %s: %w", g.cfg.Name, ref, err)
		}
		caps = append(caps, got...)
	}
	return caps, nil
}

// Agents gives every agent block as it is now.
func (e *Engine) Agents() []AgentView {
	views, live := make([]AgentView, 0, len(e.agents)), e.live()
	for _, g := range e.agents {
		v := g.view()
		if caps, err := e.health(g); err != nil {
			v.Reason = err.Error()
		} else {
			v.Healthy, v.Capabilities = true, caps
		}
		v.Notes = notes(g, live)
		views = append(views, v)
	}
	return views
}

// notes are what status says out loud of an agent.
func notes(g *agent, live []*actor) []string {
	var notes []string
	if g.cfg.Network.Mode == "open" {
		notes = append(notes, "network open: the cell reaches whatever this machine reaches")
	}
	for _, a := range live {
		s := a.sess.Load()
		if a.agent != g || s == nil {
			continue
		}
		facts := s.cell.CellFacts()
		for limit, how := range facts.GetLimits() {
			if len(how) > 12 && how[:12] == "not-enforced" {
				notes = append(notes, "limit "+limit+": "+how)
			}
		}
		if facts.GetLink() == 2 { // LINK_PROTECTION_UNPROTECTED
			notes = append(notes, "link: unprotected (the workload has the cell agent's uid)")
		}
		break
	}
	slices.Sort(notes)
	return notes
}

// choose finds the agent for a dispatch (rulings 1, 2).
func (e *Engine) choose(d *Dispatch) (*agent, *Refusal) {
	if d.AgentID != "" {
		g := e.byName[d.AgentID]
		if g == nil {
			return nil, &Refusal{Kind: RefusedUnknownAgent, Agent: d.AgentID, Detail: fmt.Sprintf("no agent block is named %q", d.AgentID)}
		}
		caps, err := e.health(g)
		if err != nil {
			return nil, &Refusal{Kind: RefusedUnknownAgent, Agent: d.AgentID, Detail: err.Error()}
		}
		if missing := lacks(caps, d.Capabilities); missing != "" {
			return nil, &Refusal{Kind: RefusedNoAgent, Agent: d.AgentID, Detail: fmt.Sprintf("agent %q does not provide %s", d.AgentID, missing)}
		}
		if slot, queue := g.room(); !slot && !queue {
			return nil, &Refusal{Kind: RefusedQueueFull, Agent: d.AgentID, Detail: fmt.Sprintf("agent %q: %d missions run and %d wait; its queue is full", d.AgentID, g.cfg.Slots, g.cfg.Queue)}
		}
		return g, nil
	}
	var waiting *agent
	why, full := "no agent block is configured", false
	for _, g := range e.agents {
		caps, err := e.health(g)
		if err != nil {
			why = err.Error()
			continue
		}
		if missing := lacks(caps, d.Capabilities); missing != "" {
			if !full {
				why = fmt.Sprintf("agent %q does not provide %s", g.cfg.Name, missing)
			}
			continue
		}
		slot, queue := g.room()
		if slot {
			return g, nil
		}
		if queue && waiting == nil {
			waiting = g
		}
		full = true
		why = "the queue of every agent that fits is full"
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
	for _, g := range e.agents {
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

func (e *Engine) watchPlugins(ctx context.Context) {
	for {
		changed := e.opts.Plugins.Changed()
		e.refreshCapabilities()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
