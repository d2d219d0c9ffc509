package cellagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// Config is what the driver that makes the cell tells its agent.
type Config struct {
	// LinkDir is where link.sock is made; only the agent's uid can enter it.
	LinkDir string
	// PublicDir is where the workload finds ask.sock and bin/airlock-cell;
	// empty = a directory that the agent makes.
	PublicDir string
	// Program is this program's path as the workload sees it; empty = the path
	// that it was started from.
	Program string
	// Rules is the descriptor of the Landlock rules that everything the agent
	// starts is put under; 0 = none.
	Rules int
	// Secret is what host and agent prove themselves with, at least 16 bytes.
	Secret []byte
	// Cgroups are directories that the agent may use, of v2 or of v1
	// controllers; it is a member of them itself.
	Cgroups []string
	// Version is reported to the host.
	Version string
	// port is the way to the host in a VM, in place of LinkDir.
	port *portLink
	// Log takes what an operator may have to know, a line each.
	Log io.Writer
}

const (
	maxSessions   = 64
	maxTombstones = 1024
)

// Agent is the cell agent.
type Agent struct {
	cfg     Config
	pid1    bool // nothing lives in this pid namespace but what the agent started
	log     *logger
	cgroups cgroups
	reaper  *reaper
	forker  *forker // for workloads with a uid of their own
	bare    *forker // for workloads with the agent's
	public  *public
	asks    *asks
	links   *links
	slack   *slack

	// starting is held for reading from the check of the latch to the fork, and
	// for writing to set the latch: once Latch has answered, nothing starts.
	starting sync.RWMutex

	mu         sync.Mutex
	bound      *cellv1.Bind
	latch      *cellv1.Latch
	sessions   map[string]*session
	order      []string // of sessions, oldest first
	tombstones []tombstone
	serial     uint64
}

// tombstone is a session that the host has acknowledged the end of. A Start of
// it that was delayed must not run it a second time.
type tombstone struct {
	session    string
	generation uint64
}

// New prepares an agent: after it the process is not dumpable, gets the
// orphans of everything it starts, and has made its public directory.
func New(cfg Config) (*Agent, error) {
	if len(cfg.Secret) < 16 {
		return nil, errors.New("the link secret is shorter than 16 bytes")
	}
	if cfg.LinkDir == "" && cfg.port == nil {
		return nil, errors.New("no link directory")
	}
	a := &Agent{
		cfg: cfg, log: &logger{w: cfg.Log}, cgroups: findCgroups(cfg.Cgroups), reaper: newReaper(),
		sessions: make(map[string]*session), links: newLinks(), slack: newSlack(),
	}
	a.pid1 = os.Getpid() == 1
	if !a.pid1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become subreaper: %w", err)
		}
	}
	if !procIsOurs() {
		return nil, errors.New("/proc does not show this pid namespace; mount it in the cell")
	}
	var err error
	if a.forker, err = newForker(false, cfg.Rules); err != nil {
		return nil, err
	}
	if a.bare, err = newForker(true, cfg.Rules); err != nil {
		return nil, err
	}
	if a.public, err = newPublic(cfg.PublicDir, cfg.Program); err != nil {
		return nil, err
	}
	if a.asks, err = newAsks(a); err != nil {
		a.public.remove()
		return nil, err
	}
	return a, nil
}

// Run serves until ctx ends. Then it kills every session and returns. It does
// not return because the host went away.
func (a *Agent) Run(ctx context.Context) error {
	defer a.public.remove()
	serve, unlisten, err := a.listen()
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	reaping, stopReaping := context.WithCancel(context.WithoutCancel(ctx))
	var wg, last sync.WaitGroup
	last.Go(func() { a.reaper.run(reaping) })
	wg.Go(func() { serve(ctx) })
	wg.Go(func() { a.asks.serve(ctx) })
	wg.Go(func() { a.slack.run(ctx) })
	a.slack.active()
	<-ctx.Done()
	a.setLatch(&cellv1.Latch{Epoch: 0})
	unlisten()
	a.asks.close()
	if err := a.killAll(context.WithoutCancel(ctx), a.stopGrace()); err != nil {
		a.log.error("processes are left", "error", err)
	}
	a.links.close()
	wg.Wait()
	stopReaping()
	last.Wait()
	return nil
}

// listen opens the way to the host.
func (a *Agent) listen() (serve func(context.Context), done func(), err error) {
	if a.cfg.port != nil {
		return func(ctx context.Context) { a.servePort(ctx, a.cfg.port) }, func() {}, nil
	}
	listener, err := cell.ListenUnix(filepath.Join(a.cfg.LinkDir, "link.sock"))
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) { a.serve(ctx, listener) }, func() { _ = listener.Close() }, nil
}

// hello says how everything is, and makes l the connection that events go to,
// in one step: what has happened is in the reply, what happens is an event.
func (a *Agent) hello(l *link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &cellv1.HelloReply{
		Proto: cell.ProtoMax, AgentVersion: a.cfg.Version,
		Features: []string{"waiting", "ask", "sweep", "dial", "interrupt", "mcp"},
		Bound:    a.bound, Latch: a.latch, Asks: a.asks.open(),
	}
	for _, id := range a.order {
		if s := a.sessions[id]; s != nil && s.isStarted() {
			r.Sessions = append(r.Sessions, s.state())
		}
	}
	l.reply(&cellv1.AgentFrame{Id: l.helloID, Frame: &cellv1.AgentFrame_Hello{Hello: r}})
	a.links.set(l)
}

// announce runs a change of what hello reports and sends its event, as one
// step as hello sees it.
func (a *Agent) announce(change func() *cellv1.AgentFrame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := change(); f != nil {
		a.links.event(f)
	}
}

func (a *Agent) bind(b *cellv1.Bind) error {
	if b.GetMission() == "" || b.GetGeneration() == 0 {
		return refuse(cellv1.ErrorCode_ERROR_CODE_INVALID, "bind needs a mission and a generation")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.bound == nil:
	case a.bound.GetMission() != b.GetMission():
		return refuse(cellv1.ErrorCode_ERROR_CODE_CONFLICT, "the cell is bound to another mission")
	case a.bound.GetGeneration() > b.GetGeneration():
		return stale(a.bound.GetGeneration(), b.GetGeneration())
	}
	a.bound = &cellv1.Bind{Mission: b.GetMission(), Generation: b.GetGeneration()}
	return nil
}

// checkGeneration refuses a frame whose generation is not the bound one.
func (a *Agent) checkGeneration(generation uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bound == nil {
		return refuse(cellv1.ErrorCode_ERROR_CODE_STALE, "the cell is not bound")
	}
	if b := a.bound.GetGeneration(); b != generation {
		return stale(b, generation)
	}
	return nil
}

func (a *Agent) setLatch(l *cellv1.Latch) {
	a.starting.Lock()
	defer a.starting.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latch == nil || a.latch.GetEpoch() < l.GetEpoch() {
		a.latch = &cellv1.Latch{Epoch: l.GetEpoch()}
	}
}

// checkLatch refuses while the stop latch is set.
func (a *Agent) checkLatch() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latch != nil {
		return refuse(cellv1.ErrorCode_ERROR_CODE_LATCHED, fmt.Sprintf("epoch %d", a.latch.GetEpoch()))
	}
	return nil
}

// session finds a session that was started.
func (a *Agent) session(id string) (*session, error) {
	a.mu.Lock()
	s := a.sessions[id]
	a.mu.Unlock()
	if s == nil || !s.isStarted() {
		return nil, refuse(cellv1.ErrorCode_ERROR_CODE_NOT_FOUND, "no such session")
	}
	return s, nil
}

// ackExit forgets a session that has ended.
func (a *Agent) ackExit(id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[id]
	if s == nil {
		if a.buried(id) != nil {
			return nil
		}
		return refuse(cellv1.ErrorCode_ERROR_CODE_NOT_FOUND, "no such session")
	}
	if s.exit() == nil {
		return refuse(cellv1.ErrorCode_ERROR_CODE_CONFLICT, "the session has not ended")
	}
	a.forget(s)
	if len(a.tombstones) == maxTombstones {
		a.tombstones = append(a.tombstones[:0], a.tombstones[1:]...)
	}
	a.tombstones = append(a.tombstones, tombstone{id, s.generation})
	return nil
}

// forget takes a session off the list. a.mu is held.
func (a *Agent) forget(s *session) {
	delete(a.sessions, s.id)
	for i, id := range a.order {
		if id == s.id {
			a.order = append(a.order[:i], a.order[i+1:]...)
			break
		}
	}
}

// buried finds the newest tombstone of a session.
func (a *Agent) buried(id string) *tombstone {
	for i := len(a.tombstones) - 1; i >= 0; i-- {
		if a.tombstones[i].session == id {
			return &a.tombstones[i]
		}
	}
	return nil
}

// live lists the sessions of which something may run.
func (a *Agent) live() []*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*session
	for _, id := range a.order {
		if s := a.sessions[id]; s != nil && !s.swept() {
			out = append(out, s)
		}
	}
	return out
}

func refuse(code cellv1.ErrorCode, message string) error {
	return &cell.Error{Code: code, Message: message}
}

func stale(bound, got uint64) error {
	return refuse(cellv1.ErrorCode_ERROR_CODE_STALE, fmt.Sprintf("generation %d, the cell is bound to %d", got, bound))
}
