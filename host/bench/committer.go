package main

import (
	"context"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// committer is the executor's engine when delivery is measured: it takes
// missions in and commits what is said of them, and runs nothing.
type committer struct {
	store *store.Store

	mu       sync.Mutex
	missions map[string]*committed
	order    []string
	never    chan struct{}
}

// committed is one mission; its lock is held over a commit, as the engine does.
type committed struct {
	mu sync.Mutex
	life
}

func newCommitter(s *store.Store) *committer {
	return &committer{store: s, missions: map[string]*committed{}, never: make(chan struct{})}
}

func (c *committer) find(id string) *committed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missions[id]
}

// commit commits facts of a mission; begun is before, durable after it.
func (c *committer) commit(ctx context.Context, id string, facts ...mission.Fact) (begun, durable time.Time, err error) {
	m := c.find(id)
	if m == nil {
		return begun, durable, engine.ErrNotFound
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	batch, err := m.then(time.Now(), true, facts...)
	if err != nil {
		return begun, durable, err
	}
	begun = time.Now()
	err = commitTo(ctx, c.store, batch)
	return begun, time.Now(), err
}

func (c *committer) start(ctx context.Context, id string) error {
	_, _, err := c.commit(ctx, id,
		mission.Starting{V: 1, Generation: 1, CellID: "cell-" + id, Incarnation: 1, SessionID: "session-" + id, BootID: "boot"},
		mission.Started{V: 1, Generation: 1, AgentRuntime: "command", SessionID: "session-" + id})
	return err
}

func (c *committer) progress(ctx context.Context, id string, iteration int) (begun, durable time.Time, err error) {
	return c.commit(ctx, id, progressed(iteration))
}

// Accept takes a mission in.
func (c *committer) Accept(ctx context.Context, d engine.Dispatch) (engine.Accepted, error) {
	m := &committed{life: *newLife(d.MissionID)}
	c.mu.Lock()
	c.missions[d.MissionID] = m
	c.order = append(c.order, d.MissionID)
	c.mu.Unlock()
	now := time.Now()
	_, _, err := c.commit(ctx, d.MissionID, opened(m.head.JournalUUID, now)...)
	return engine.Accepted{MissionID: d.MissionID, EstimatedStart: now}, err
}

// Owned gives the live missions.
func (c *committer) Owned() []engine.Owned {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []engine.Owned
	for _, id := range c.order {
		m := c.missions[id]
		m.mu.Lock()
		all = append(all, engine.Owned{MissionID: id, State: m.m.State, True: m.m.TrueState(time.Now())})
		m.mu.Unlock()
	}
	return all
}

// TrueState restates a mission.
func (c *committer) TrueState(_ context.Context, id string) (mission.WireEvent, error) {
	m := c.find(id)
	if m == nil {
		return mission.WireEvent{}, engine.ErrNotFound
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.m.TrueState(time.Now()), nil
}

// Mission gives a mission's view.
func (c *committer) Mission(_ context.Context, id string) (mission.View, error) {
	m := c.find(id)
	if m == nil {
		return mission.View{}, engine.ErrNotFound
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.m.View(), nil
}

// What the orchestrator does not ask for in this measurement.

// Pause refuses.
func (c *committer) Pause(context.Context, string, string, string) error { return engine.ErrConflict }

// Resume refuses.
func (c *committer) Resume(context.Context, string, string, string) error { return engine.ErrConflict }

// Abort refuses.
func (c *committer) Abort(context.Context, string, string, string, string) error {
	return engine.ErrConflict
}

// Answer refuses.
func (c *committer) Answer(context.Context, string, string, string) error { return engine.ErrConflict }

// Questions are none.
func (c *committer) Questions() []mission.Question { return nil }

// Agents is one.
func (c *committer) Agents() []engine.AgentView {
	return []engine.AgentView{{Name: "agent-01", Healthy: true}}
}

// Capabilities are some.
func (c *committer) Capabilities() []string { return []string{"runtime:custom:command"} }

// CapabilitiesChanged never happens.
func (c *committer) CapabilitiesChanged() <-chan struct{} { return c.never }
