// Package engine runs missions: it turns commands into facts through the
// mission package, commits them, and carries out the effects (cells, sessions,
// runtimes). It imports the domains, its ports and the packages that hold
// cells and session logs; no other adapter.
//
// The one idea: a mission changes only inside actor.commit, under the
// mission's lock, and becomes visible only after the store has it. Effects run
// outside of that lock, carry the generation that they belong to, and come
// back as commands.
package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Options of an Engine.
type Options struct {
	Config  *config.Config
	HostID  string
	BootID  string // of the machine
	Store   Store
	Plugins Plugins
	Cells   *cells.Manager
	// Dialer carries what cells reach through the host; nil: nothing.
	Dialer Dialer
	// StopsDir holds the tombstones of stops, beside the trusted heads; empty:
	// none are written.
	StopsDir string
	// WorkflowKey is what proofs of the workflow are derived from: 32 secret bytes
	// that stay the same. nil: new ones, good for this process.
	WorkflowKey []byte
	// SpoolDir holds events of calls that could not be journalled under fail_open,
	// beside the trusted heads; empty: they are counted in memory only.
	SpoolDir string
	// SealKey (32 bytes) encrypts arguments that wait for a human and are not
	// stored in the clear; empty: they are held in memory only.
	SealKey []byte
	// Rules judge tool calls.
	Rules *gate.Rules
	Log   hclog.Logger
	Now   func() time.Time // nil: time.Now
	// HandedOver: the process before has let go of everything in good order and
	// has told nobody of an end, and dispatches are waiting.
	HandedOver bool
	// Changed is told of every committed state of a mission; it must not block.
	// nil: nobody.
	Changed func(*mission.Mission)
	// Committed is told of every fact that has become durable, with the mission as
	// it is after them; it must not block. nil: nobody.
	Committed func(m *mission.Mission, facts []mission.Fact, at time.Time)
	// Hook is called at the points engine.* of the table of failpoints; nil: none.
	// Its error is ignored: what can fail here is the store.
	Hook failpoint.Hook
}

// Engine runs missions. Make it with New, then call Start once.
type Engine struct {
	opts  Options
	log   hclog.Logger
	now   func() time.Time
	born  time.Time
	fleet atomic.Pointer[fleet]         // the agents
	conf  atomic.Pointer[config.Config] // in force; opts.Config is what the host started with

	gateRules atomic.Pointer[gate.Rules]
	noAgent   *agent // of tasks without an agent block

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.RWMutex
	missions map[string]*actor // missions that are not terminal
	bySess   map[string]*actor
	draining bool

	answers   sync.Map // of questions that calls over MCP wait for, by hitl id: chan string
	tokens    sync.Map // task ids by the hash of their token
	flow      *workflow.Keeper
	sealed    sealed
	logs      *logs
	results   *results
	orphans   orphans
	warmTaken chan struct{} // cap 1: a warm cell was taken
	turns     sync.Map      // of missions that are taken up, by instance: chan struct{}

	capMu   sync.Mutex
	capList []string
	capCh   chan struct{}
}

// New makes an engine; nothing runs yet.
func New(opts Options) *Engine {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	e := &Engine{opts: opts, log: opts.Log, now: opts.Now, born: time.Now(),
		missions: map[string]*actor{}, bySess: map[string]*actor{}, capCh: make(chan struct{}), warmTaken: make(chan struct{}, 1)}
	e.gateRules.Store(opts.Rules)
	e.noAgent = newAgent(config.Agent{Runtime: "harness", Invalid: "a harness task has no agent block"})
	e.life, e.end = context.WithCancel(context.Background())
	var err error
	if e.sealed, err = newSealed(filepath.Join(opts.Config.DataDir, "pending"), opts.SealKey); err != nil {
		e.log.Error("arguments that wait for a human are held in memory only", "error", err)
	}
	e.results = newResults(opts.Config.DataDir, opts.Now)
	e.logs = newLogs(filepath.Join(opts.Config.DataDir, "sessions"))
	e.flow = newFlow(e)
	e.fleet.Store(&fleet{})
	e.configure(opts.Config)
	return e
}

// uptime is a clock that cannot be set; never 0.
func (e *Engine) uptime() time.Duration { return time.Since(e.born) + 1 }

// Start takes up the missions and cells of the host's earlier life. It returns
// when every one of them is in somebody's hands, not when all have resumed. After
// a hand-over it returns as soon as dispatches can be taken: the missions are known
// and have their slots, and are verified and found again behind that.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.results.store.Sweep(); err != nil {
		e.log.Warn("what collections of files that were cut short have left could not be removed", "error", err)
	}
	if err := e.recoverFlow(ctx); err != nil {
		return err
	}
	if err := e.sweepStops(ctx); err != nil {
		return fmt.Errorf("look through the tombstones of stops: %w", err)
	}
	was, err := e.loadRemains(ctx)
	if err != nil {
		return err
	}
	for _, l := range was.actors {
		if l.a.state().Harness { // nothing comes before it is stopped
			e.adopt(ctx, l)
		}
	}
	e.refreshCapabilities()
	if e.opts.HandedOver {
		e.sweepSealed()
		e.goRun(func(ctx context.Context) { e.recover(ctx, was); e.tend() })
		return nil
	}
	e.recover(ctx, was)
	e.sweepSealed()
	e.tend()
	return nil
}

// tend begins what goes on for as long as the host lives.
func (e *Engine) tend() {
	e.goRun(e.verifyRest)
	e.goRun(e.watchPlugins)
	e.goRun(e.keepWarm)
}

// sweepSealed removes sealed arguments that nobody waits for.
func (e *Engine) sweepSealed() {
	tasks := map[string]*governance.Task{}
	for _, a := range e.live() {
		m := a.settled()
		tasks[a.id] = &m.Task
	}
	if err := e.sealed.sweep(tasks); err != nil {
		e.log.Warn("sealed arguments that nobody waits for could not be removed", "error", err)
	}
}

// Close lets go of every mission and leaves the cells as they are.
func (e *Engine) Close() {
	e.end()
	e.wg.Wait()
	e.logs.close()
}

// Go runs f as a goroutine that Close waits for; its context ends with Close.
func (e *Engine) Go(f func(ctx context.Context)) { e.goRun(f) }

// goRun runs f as a goroutine that Close waits for.
func (e *Engine) goRun(f func(ctx context.Context)) {
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		f(e.life)
	}()
}

func (e *Engine) actor(id string) *actor {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.missions[id]
}

// live lists the missions that are open, oldest first. One that is just being
// opened is not among them: nothing of it but its id may be read yet.
func (e *Engine) live() []*actor {
	e.mu.RLock()
	list := make([]*actor, 0, len(e.missions))
	for _, a := range e.missions {
		if a.view.Load() != nil {
			list = append(list, a)
		}
	}
	e.mu.RUnlock()
	sortActors(list)
	return list
}

// forget drops a mission that has ended from memory; its row and journal stay.
func (e *Engine) forget(a *actor) {
	m := a.state()
	e.mu.Lock()
	delete(e.missions, m.ID)
	delete(e.bySess, m.SessionID)
	e.mu.Unlock()
	e.forgetDial(m.ID)
	if err := e.sealed.dropTask(m.ID); err != nil {
		e.log.Warn("sealed arguments could not be removed", "task", m.ID, "error", err)
	}
}

func (e *Engine) bind(sessionID string, a *actor) {
	e.mu.Lock()
	e.bySess[sessionID] = a
	e.mu.Unlock()
}

func newUUID() string { return uuid.Must(uuid.NewV7()).String() }

// wait sleeps or ends with the context.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }
