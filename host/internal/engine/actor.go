package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// commitTimeout bounds one commit; a store that takes longer is broken.
const commitTimeout = 30 * time.Second

// actor is one mission that lives.
type actor struct {
	eng   *Engine
	began atomic.Int64 // when it was started, on the engine's clock that cannot be set; 0: not known
	agent *agent
	id    string

	mu   sync.Mutex // held over decide and commit
	m    mission.Mission
	head journal.Head
	// behind is how many events of the journal the stored row does not know yet.
	behind int
	// away: the host has come back and has not yet said that the mission runs on.
	away bool
	// adopted is closed once the journal of an earlier life was found good or set
	// aside: nothing is appended before. nil: the mission is of this life.
	adopted chan struct{}

	// view is the last committed state, for readers.
	view atomic.Pointer[mission.Mission]
	// changed is closed and replaced at every commit.
	chMu    sync.Mutex
	changed chan struct{}

	// latch is set before the stop is journalled; every effect looks at it.
	latch atomic.Bool
	// launch ends with the latch or with the engine: whoever waits for something
	// of the mission waits with it.
	launch atomic.Pointer[launch]

	cellPtr atomic.Pointer[cells.Cell]
	// sess is the live session's handle, once there is one.
	sess atomic.Pointer[liveSession]
	// ops serialises operations that act on the cell: pause, resume, answer.
	ops sync.Mutex
	// holding closes the gate before a pause is journalled (rulings 12).
	holding atomic.Bool
	// stopWish is the stop that set the latch, for a ladder whose journal failed.
	stopWish atomic.Pointer[stopWish]
	// interrupted is what the rung that interrupts the agent came to.
	interrupted atomic.Pointer[Rung]
	// climbing are the rungs of the stop that is under way, for who watches it.
	climbing climbing
	// ladderMu: one ladder at a time.
	ladderMu sync.Mutex
	// revoking counts the issuers that are being asked; asking names them.
	revoking sync.WaitGroup
	asking   sync.Map
	// unwritten are answers of issuers that could not be journalled, by issuer:
	// governance.RevocationResult.
	unwritten sync.Map
	// secretArgs are arguments that a rule redacts, by decision id: json.RawMessage.
	secretArgs sync.Map
	// overMCP are reservations of the runtime's that were used over MCP, by
	// invocation id.
	overMCP sync.Map
	// callers are proposals whose call over MCP waits for their verdict here.
	callers sync.Map
	// gone are calls whose end could not be journalled, by invocation id.
	gone sync.Map
	// used are the proposals that were dispatched.
	used *used
	// timers end the waiting of decisions; under mu.
	timers map[string]*time.Timer
	// lost are events of calls that went on without their record; under mu.
	lost lostEvents
	// audits are what could not be journalled, for status.
	auditMu sync.Mutex
	audits  []string
	// rowless: the store has no row of the mission, and is given none.
	rowless bool
	// quarantined says why the mission is left alone.
	quarantined atomic.Pointer[string]
	// spec is the agent block that the mission was taken in with; read once.
	spec func() (spec, error)
	// done is closed when run has returned.
	done chan struct{}
}

func (e *Engine) newActor(id string, ag *agent) *actor {
	a := &actor{eng: e, agent: ag, id: id, used: newUsed(), changed: make(chan struct{}), done: make(chan struct{})}
	a.spec = sync.OnceValues(func() (spec, error) { return frozen(a.state().Spec) })
	a.arm()
	return a
}

// log is the host's log with the mission and its agent in every line.
func (a *actor) log() hclog.Logger {
	agent := a.state().Agent
	if a.agent != nil && agent == "" {
		agent = a.agent.block().Name
	}
	return a.eng.log.With("mission", a.id, "agent", agent)
}

// launch is what of a mission ends with its stop latch.
type launch struct {
	ctx context.Context
	end context.CancelFunc
}

func (a *actor) arm() {
	l := &launch{}
	l.ctx, l.end = context.WithCancel(a.eng.life)
	a.launch.Store(l)
}

// launchCtx ends with the stop latch.
func (a *actor) launchCtx() context.Context { return a.launch.Load().ctx }

// setLatch sets the stop latch; nothing of the mission is started or written
// to from then on.
// It says whether it was not set before.
func (a *actor) setLatch() bool {
	if !a.latch.CompareAndSwap(false, true) {
		return false
	}
	a.launch.Load().end()
	a.eng.cutOff(a.id)
	return true
}

// clearLatch opens a stopped harness task again; nothing of it runs then.
func (a *actor) clearLatch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m.Latched() { // stopped again already
		return
	}
	a.arm()
	a.stopWish.Store(nil)
	a.unwritten.Clear()
	a.latch.Store(false)
	a.eng.restoreDial(a.id)
}

func (a *actor) cell() *cells.Cell     { return a.cellPtr.Load() }
func (a *actor) setCell(c *cells.Cell) { a.cellPtr.Store(c) }

// state is the last committed state; never to be changed.
func (a *actor) state() *mission.Mission {
	if m := a.view.Load(); m != nil {
		return m
	}
	return &mission.Mission{ID: a.id}
}

// settled is the state after a commit that is under way: its event may have
// reached the orchestrator already, so an older answer would contradict it.
func (a *actor) settled() mission.Mission {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m
}

// owned is what the orchestrator is told of it; false: nothing.
func (a *actor) owned() (Owned, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m.Origin != mission.OriginOrchestrator || a.m.Terminal() || a.m.JournalUUID == "" {
		return Owned{}, false
	}
	return Owned{MissionID: a.id, CheckpointID: a.m.CheckpointID, State: a.m.State, Away: a.away && a.m.State == mission.StateRunning,
		True: a.m.TrueState(a.eng.now())}, true
}

// next gives a channel that is closed at the next commit.
func (a *actor) next() <-chan struct{} {
	a.chMu.Lock()
	defer a.chMu.Unlock()
	return a.changed
}

var errClosing = errors.New("the host ends")

// awaitAdopted waits until the journal of an earlier life was verified.
func (a *actor) awaitAdopted() error {
	if a.adopted == nil {
		return nil
	}
	select {
	case <-a.adopted:
		return nil
	case <-a.eng.life.Done():
		return unavailable(errClosing)
	}
}

// decision looks at a mission and answers with facts, or refuses.
type decision func(m *mission.Mission) ([]mission.Fact, error)

// commit decides, chains, stores and publishes. extra may add side rows to the
// batch; it is called with the mission as it will be. Without facts and extra
// nothing is stored.
func (a *actor) commit(decide decision, extra func(next *mission.Mission, b *store.Batch) error) error {
	if err := a.awaitAdopted(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.commitLocked(decide, extra)
}

// commitLocked is commit for a caller that holds the lock.
func (a *actor) commitLocked(decide decision, extra func(next *mission.Mission, b *store.Batch) error) error {
	if a.quarantined.Load() != nil { // nothing is appended (rulings 43)
		return quarantinedError(a)
	}
	facts, err := decide(&a.m)
	if err != nil {
		return err
	}
	if len(facts) == 0 && extra == nil {
		return nil
	}
	facts = a.eng.withRevocation(a, facts)
	next, head := a.m, a.head
	b := store.Batch{Task: a.id, JournalUUID: head.JournalUUID}
	if err := a.chain(facts, extra, &next, &head, &b); err != nil {
		return err
	}
	a.eng.observe(a, facts, &next, &b)
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	a.eng.passes(failpoint.Before, facts)
	switch err := a.eng.opts.Store.Commit(ctx, b); {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrInvalid):
		return fmt.Errorf("journal of mission %q: %w", a.id, err) // trying again cannot help
	case err != nil && extra == nil && a.eng.failsOpen(facts):
		// The call goes on without its record (F3); the next event that can be
		// written says how many are missing.
		a.lost.add(facts)
		a.used.note(facts)
		if serr := a.eng.spool(a.id, facts); serr != nil {
			a.audit(fmt.Sprintf("events that could not be journalled could not be spooled either, and a crash would lose their number: %v", serr))
		}
		a.audit(fmt.Sprintf("%d events could not be journalled (on_failure = \"fail_open\"): %v", len(facts), err))
		a.m = next
		a.publish()
		return nil
	case err != nil:
		return unavailable(err)
	}
	a.eng.passes(failpoint.After, facts)
	a.took(next, head, facts, b.Mission != nil)
	if told := a.eng.opts.Committed; told != nil && len(facts) > 0 {
		told(&next, facts, b.Events[len(b.Events)-1].Timestamp)
	}
	a.publish()
	return nil
}

// passes is the engine's failpoints: one nil check when nobody uses them.
func (e *Engine) passes(at func(journal.Kind) failpoint.Point, facts []mission.Fact) {
	if e.opts.Hook == nil {
		return
	}
	for _, f := range facts {
		_ = e.opts.Hook.At(at(f.Kind()))
	}
}

// chain puts facts into a batch: their events, what the orchestrator is told,
// the side rows of extra, and the mission's row, last, since extra may change
// the mission. next and head become what they are after it.
func (a *actor) chain(facts []mission.Fact, extra func(*mission.Mission, *store.Batch) error,
	next *mission.Mission, head *journal.Head, b *store.Batch) (err error) {
	if a.lost.n > 0 && len(facts) > 0 {
		facts = append([]mission.Fact{a.lost.fact(a.eng.keptPath(a.id, &a.lost))}, facts...)
	}
	for _, f := range facts {
		payload, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("payload of a %s event: %w", f.Kind(), err)
		}
		var ev journal.Event
		ev, *head = head.Next(newUUID(), a.eng.now(), f.Kind(), string(payload))
		next.Apply(f, ev.Timestamp)
		b.Events = append(b.Events, ev)
		if next.Origin == mission.OriginOrchestrator {
			if w, ok := mission.Wire(f, next, ev.Timestamp); ok {
				b.Outbox = append(b.Outbox, store.OutboxItem{MissionID: a.id, Sequence: ev.Sequence,
					Event: w.Event, TS: w.TS, Data: w.Data, Terminal: next.Terminal()})
			}
		}
	}
	if extra != nil {
		if err := extra(next, b); err != nil {
			return err
		}
	}
	if a.rowDue(facts) {
		b.Mission, err = row(next, head.Sequence)
	}
	return err
}

// took makes the state after a commit the actor's; rowed says that its row was
// written too.
func (a *actor) took(next mission.Mission, head journal.Head, facts []mission.Fact, rowed bool) {
	if a.m.StartedAt == nil && next.StartedAt != nil {
		a.began.Store(int64(a.eng.uptime()))
	}
	a.m, a.head = next, head
	if a.behind += len(facts); rowed {
		a.behind = 0
	}
	a.used.note(facts)
	for _, f := range facts {
		switch f.(type) {
		case mission.Reconnected:
			a.away = false
		case mission.Restarted: // a stop that comes now is another one
			a.stopWish.Store(nil)
		}
	}
	if a.lost.n > 0 && len(facts) > 0 { // the gap is in the journal
		a.eng.unspool(a.id, &a.lost)
		a.lost = lostEvents{}
	}
}

func (a *actor) publish() {
	m := a.m
	a.view.Store(&m)
	a.watchExpiry(&m)
	a.chMu.Lock()
	close(a.changed)
	a.changed = make(chan struct{})
	a.chMu.Unlock()
	if told := a.eng.opts.Changed; told != nil {
		told(&m)
	}
}

// insist commits a fact that must not be lost; while the store is broken it
// waits for it. It ends with the engine, or when the command is refused.
func (a *actor) insist(decide decision, extra func(next *mission.Mission, b *store.Batch) error) error {
	for {
		err := a.commit(decide, extra)
		if err == nil || !errors.Is(err, ErrUnavailable) {
			return err
		}
		a.log().Error("cannot journal; the mission waits", "error", err)
		if wait(a.eng.life, time.Second) != nil {
			return err
		}
	}
}

func sortActors(list []*actor) {
	slices.SortFunc(list, func(x, y *actor) int {
		mx, my := x.state(), y.state()
		if c := mx.CreatedAt.Compare(my.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(mx.ID, my.ID)
	})
}

// sequence is the last one of the mission's chain.
func (a *actor) sequence() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.head.Sequence
}

// maxAudits is how many audit errors status keeps.
const maxAudits = 20

// audit notes what could not be journalled.
func (a *actor) audit(what string) {
	a.auditMu.Lock()
	defer a.auditMu.Unlock()
	a.audits = append(a.audits[max(0, len(a.audits)-maxAudits+1):], what)
}

// overlay adds to a status what is true and not in the journal.
func (a *actor) overlay(s *governance.Status) {
	a.auditMu.Lock()
	s.AuditErrors = append(s.AuditErrors, a.audits...)
	a.auditMu.Unlock()
	if why := a.quarantined.Load(); why != nil {
		s.State, s.StateReason = "STOPPED", *why
	} else if a.latch.Load() && s.State != "ENDED" {
		s.State = "STOPPED"
	}
	s.Running = slices.DeleteFunc(s.Running, func(c governance.Call) bool { _, over := a.over(c.InvocationID); return over })
	m := a.state()
	for i, p := range s.Pending {
		if p.Args != nil {
			continue
		}
		s.Pending[i].Args = json.RawMessage("null")
		if q, ok := m.Question(p.DecisionID); ok && json.Valid([]byte(q.Context)) {
			s.Pending[i].Args = json.RawMessage(q.Context) // redacted, as the human was shown
		}
	}
}
