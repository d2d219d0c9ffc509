package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

// remains is what the host's earlier life has left, read and not yet taken up.
type remains struct {
	actors []*left
	cells  map[string]*cells.Cell // those that no live mission has
}

// left is one mission of it.
type left struct {
	a    *actor
	cell *cells.Cell // nil: none
	slot *slotWait   // of one that is queued
	row  journal.Head
	// overtaken: a stop of a task that was stopped already, by another.
	overtaken bool
}

// loadRemains reads the missions of the host's earlier life and gives each its slot or
// its place in the queue. From then on a dispatch is answered as ever: what is
// known is known, and what is full is full. Nothing was verified or appended yet.
func (e *Engine) loadRemains(ctx context.Context) (*remains, error) {
	cellRows, err := e.opts.Store.Cells(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the cells: %w", err)
	}
	was := &remains{cells: map[string]*cells.Cell{}}
	for _, r := range cellRows {
		c, err := cells.FromRow(r)
		if err != nil {
			return nil, err
		}
		was.cells[c.ID] = c
		e.opts.Cells.Known(c)
	}
	rows, err := e.opts.Store.LiveMissions(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the live missions: %w", err)
	}
	doubtful := map[string]bool{} // their cells are looked for below
	for _, r := range rows {
		m, err := fromRow(r)
		var unread error
		if err == nil {
			unread = e.catchUp(ctx, &m, r.Head) // of a bad journal, which adopt finds
		}
		if errors.Is(unread, ErrUnavailable) && !errors.Is(unread, store.ErrDamaged) {
			return nil, unread
		}
		if err != nil { // it must not keep the others from starting
			e.log.Error("the stored state of a mission cannot be read", "mission", r.MissionID, "error", err)
			doubtful[r.MissionID] = true
			continue
		}
		c := was.cells[m.CellID]
		delete(was.cells, m.CellID)
		was.actors = append(was.actors, e.enter(ctx, m, r, c))
	}
	e.loadOrphans()
	e.sortOut(ctx, was.cells, doubtful)
	return was, nil
}

// sortOut ends the cells that are warm or of missions that have ended, and sets
// missions aside whose stored state must not be believed.
func (e *Engine) sortOut(ctx context.Context, left map[string]*cells.Cell, doubtful map[string]bool) {
	for _, c := range left {
		if why := e.contradicts(ctx, c); why != "" {
			e.orphans.hold(c.ID, why)
			if e.actor(c.MissionID) == nil {
				e.doubt(ctx, c.MissionID, c, why)
				delete(doubtful, c.MissionID)
			}
			continue
		}
		e.goRun(func(ctx context.Context) { e.endCell(ctx, c) })
	}
	for id := range doubtful {
		e.doubt(ctx, id, nil, "its stored state cannot be read")
	}
}

// recover puts every mission of the host's earlier life into the hands of a
// goroutine.
func (e *Engine) recover(ctx context.Context, was *remains) {
	for _, l := range was.actors {
		if ctx.Err() != nil {
			return
		}
		if !l.a.state().Harness { // adopted already
			e.adopt(ctx, l)
		}
	}
	e.goRun(e.reap)
}

// enter makes the actor of one mission.
func (e *Engine) enter(ctx context.Context, m mission.Mission, r store.MissionRow, c *cells.Cell) *left {
	g := e.fleet.Load().byName[m.Agent]
	if m.Harness {
		g = e.noAgent
	}
	if g == nil { // the block is gone from the configuration: the mission keeps its spec
		g = newAgent(goneAgent(m))
	}
	a := e.newActor(m.ID, g)
	a.adopted = make(chan struct{})
	lost, spooled := e.fromSpool(ctx, m.ID)
	for i := range spooled { // what was admitted counts, recorded or not (X2)
		m.Apply(spooled[i].fact, spooled[i].At)
	}
	if m.Harness {
		e.rememberToken(&m)
	}
	a.m, a.head, a.lost, a.behind, a.away = m, r.Head, lost, rowEvery, true
	a.used.missed(lost.calls...)
	a.publish()
	l := &left{a: a, cell: c, row: r.Head}
	if c != nil && m.Phase != mission.PhaseQueued {
		a.setCell(c)
	}
	e.mu.Lock()
	e.missions[m.ID] = a
	if m.SessionID != "" {
		e.bySess[m.SessionID] = a
	}
	e.mu.Unlock()
	if m.Latched() {
		a.setLatch()
	}
	if t := e.buried(m.ID); t != nil && !m.Terminal() {
		w := &stopWish{stop: t.Stop, at: t.At, held: make(chan struct{})}
		w.once.Do(func() { close(w.held) })
		if w.unwritten(&m) {
			a.stopWish.Store(w)
			a.setLatch()
		} else {
			l.overtaken = m.Stop.Done // else its ladder takes the tombstone away
		}
	}
	switch {
	case m.Terminal(), m.Harness:
	case m.Phase == mission.PhaseQueued && !a.latch.Load():
		l.slot, _ = g.enter(a, true)
	case m.Phase != mission.PhaseBetween || m.Next == mission.NextNow:
		g.occupy(a)
	}
	return l
}

// adopt verifies one mission's journal and starts what it needs.
func (e *Engine) adopt(ctx context.Context, l *left) {
	a, c := l.a, l.cell
	m := *a.state()
	if c != nil && m.Phase == mission.PhaseQueued { // of a start that was given up
		given := c
		c = nil
		e.goRun(func(ctx context.Context) { e.endCell(ctx, given) })
	}
	adopted := sync.OnceFunc(func() { close(a.adopted) })
	defer adopted()
	err := e.opts.Store.VerifyRecent(ctx, m.ID)
	if err == nil && m.Sequence > 0 && m.Sequence < l.row.Sequence {
		err = fmt.Errorf("its events behind %d are not known to this version", m.Sequence)
	}
	if err == nil && !m.Terminal() {
		err = e.saysEnded(ctx, m.ID, l.row)
	}
	if err != nil {
		e.quarantine(a, c, err)
		return
	}
	if l.overtaken {
		e.unbury(m.ID) // it would stop the task again once it is restarted
	}
	switch {
	case m.Terminal(): // its end is told; access is still to be taken back
		e.goRun(func(ctx context.Context) {
			defer close(a.done)
			e.finish(ctx, a)
		})
	case m.Harness:
		close(a.done)
		e.restoreTask(a, &m)
		adopted()
		e.adoptRules(a)
		e.closeOrphans(a)
	case l.slot != nil:
		adopted()
		again := e.reconnect(a, "", 0)
		err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
			if a.latch.Load() { // stopped meanwhile
				return nil, nil
			}
			return again(m)
		}, nil)
		if err != nil {
			e.log.Error("queued mission could not be taken up", "mission", m.ID, "error", err)
		}
		e.adoptRules(a)
		e.goRun(func(ctx context.Context) { e.run(ctx, a, l.slot) })
	default:
		e.goRun(func(ctx context.Context) {
			defer close(a.done)
			switch {
			case a.latch.Load():
			case m.Phase == mission.PhaseBetween:
				e.takeUpBetween(ctx, a)
			default:
				e.takeUp(ctx, a, c)
			}
			e.conclude(ctx, a)
		})
	}
}

// restoreTask brings a harness task back stopped. A stop that a crash has cut
// short, in the journal or only in its tombstone, is carried on as it was.
func (e *Engine) restoreTask(a *actor, m *mission.Mission) {
	w := a.stopWish.Load() // of a tombstone
	unfinished := m.Latched() && !m.Stop.Done || w != nil
	if w != nil {
		w.stop.Restored = true // what ran is left open
	}
	if !m.Latched() && w == nil {
		w = &stopWish{stop: mission.Stop{ID: newUUID(), Actor: "airlock", By: "system", Reason: "restored", Restored: true, Done: true}, at: e.now().UTC(), held: make(chan struct{})}
		w.once.Do(func() { close(w.held) })
		a.stopWish.Store(w)
	}
	a.setLatch()
	a.mu.Lock() // nothing of others comes before it
	err := a.commitLocked(func(m *mission.Mission) ([]mission.Fact, error) {
		if w.unwritten(m) {
			return m.StopNow(w.stop)
		}
		return m.RestoreHarness(newUUID())
	}, nil)
	a.mu.Unlock()
	if err != nil {
		e.log.Error("harness task could not be restored as stopped; it stays stopped", "task", m.ID, "error", err)
	}
	if r := m.Task.Revocation; unfinished || r != nil && r.State != "done" {
		e.goRun(func(ctx context.Context) { e.ladder(ctx, a) })
	}
}

// quarantine leaves a mission alone whose journal cannot be trusted: its cell
// is frozen, it is shown with the reason, and nothing is appended (rulings 43).
func (e *Engine) quarantine(a *actor, c *cells.Cell, cause error) {
	why := notTrusted(a.id, cause)
	a.quarantined.Store(&why)
	a.setLatch()
	close(a.done)
	if a.state().Terminal() && e.QuarantineReceipt(a.id) != nil { // ended before; issuers are still to answer
		e.goRun(func(ctx context.Context) { e.finishQuarantined(ctx, a) })
		return
	}
	a.agent.occupy(a)
	a.log().Error("mission is quarantined", "error", cause)
	if w := a.stopWish.Load(); w != nil { // of a tombstone: the stop is carried on
		e.goRun(func(ctx context.Context) { _ = e.endQuarantined(ctx, a, w.stop) })
		return
	}
	if c == nil {
		return
	}
	e.goRun(func(ctx context.Context) { e.freezeForGood(ctx, a, c) })
}

func notTrusted(taskID string, cause error) string {
	return "its journal does not verify: " + cause.Error() + "; with the host stopped, `airlock journal repair " + taskID + "` says what can be done; `airlock control stop " + taskID + "` ends it"
}

// freezeForGood freezes a cell until its mission is stopped.
func (e *Engine) freezeForGood(ctx context.Context, a *actor, c *cells.Cell) {
	for e.opts.Cells.Freeze(ctx, c) != nil {
		if a.stopWish.Load() != nil || wait(ctx, time.Second) != nil {
			return
		}
	}
}

func (e *Engine) reconnect(a *actor, checkpointID string, offset uint64) decision {
	sp, err := a.spec()
	return func(m *mission.Mission) ([]mission.Fact, error) {
		if err != nil {
			return nil, err
		}
		if e.opts.HandedOver { // as after a planned end, without having told anybody of one
			was := *m
			was.Suspended, was.CheckpointID = true, checkpointID
			m = &was
		}
		return m.Reconnect(checkpointID, offset, sp.MaxResumes, sp.Restore == "latched", e.now())
	}
}

// takeUp finds the cell and the session of a mission again and follows it.
func (e *Engine) takeUp(ctx context.Context, a *actor, c *cells.Cell) {
	var s *liveSession
	var err error
	if neverStarted(a.state(), c) {
		s, err = e.startAnew(ctx, a, c)
	} else {
		leave := e.inTurn(a, c)
		s, err = e.rejoin(ctx, a, c)
		leave()
	}
	switch {
	case err == nil && s != nil:
		e.adoptRules(a)
		e.rejudge(ctx, a)
		e.carry(ctx, a)
		e.rounds(ctx, a, s)
	case err == nil || ctx.Err() != nil || a.latch.Load():
	case errors.Is(err, errGone):
		if e.outlives(ctx, a, c, err.Error()) {
			e.rejudge(ctx, a)
			e.carry(ctx, a)
			e.rounds(ctx, a, nil)
			return
		}
		err := a.insist(func(m *mission.Mission) ([]mission.Fact, error) {
			return m.Finish(m.Generation, mission.Ended{State: mission.StateFailed, Reason: "cell_lost", Error: err.Error()})
		}, nil)
		if err != nil {
			a.log().Error("lost mission could not be ended", "error", err)
		}
	default:
		e.failStart(a, err)
	}
}

// atOnce is how many missions of one instance are taken up at a time while
// dispatches are served already; more would only make these wait.
const atOnce = 8

// inTurn waits for a mission's turn to be taken up. A driver that hangs keeps its
// own missions waiting and no others.
func (e *Engine) inTurn(a *actor, c *cells.Cell) (leave func()) {
	if !e.opts.HandedOver || c == nil {
		return func() {}
	}
	v, _ := e.turns.LoadOrStore(c.Instance, make(chan struct{}, atOnce))
	turns := v.(chan struct{})
	select {
	case turns <- struct{}{}:
		return func() { <-turns }
	case <-a.launchCtx().Done():
		return func() {}
	}
}

// neverStarted says that a start certainly did not come as far as a session.
func neverStarted(m *mission.Mission, c *cells.Cell) bool {
	return m.Phase == mission.PhaseStarting && c != nil && c.State != cells.StateBound
}

// startAnew removes what a start that was cut short has left and launches the
// mission again.
func (e *Engine) startAnew(ctx context.Context, a *actor, c *cells.Cell) (*liveSession, error) {
	if a.state().StartedAt == nil {
		e.endCell(ctx, c)
		a.setCell(nil)
	} else if err := e.park(ctx, a); err != nil { // a further session: what it works on stays
		return nil, err
	}
	generation := a.state().Generation
	err := a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Requeue(generation, e.now()) }, nil)
	if err != nil {
		return nil, err
	}
	return e.launch(a)
}

// takeUpBetween takes a mission up that was between two sessions.
func (e *Engine) takeUpBetween(ctx context.Context, a *actor) {
	if err := a.insist(e.reconnect(a, "ckpt-"+newUUID(), 0), nil); err != nil || a.state().Terminal() {
		return
	}
	e.rejudge(ctx, a)
	e.carry(ctx, a)
	e.rounds(ctx, a, nil)
}

// errGone says that a cell does not exist any more.
var errGone = errors.New("the cell did not survive")

// rejoin dials the mission's cell and says that it is reconnected. A start
// that had not come to its end is carried on. No session and no error: the
// mission has ended here.
func (e *Engine) rejoin(ctx context.Context, a *actor, c *cells.Cell) (*liveSession, error) {
	if c == nil {
		return nil, fmt.Errorf("%w: the store has no cell for it", errGone)
	}
	c, err := e.load(ctx, a, c)
	if err != nil {
		return nil, err
	}
	found := *c // whoever freezes the cell meanwhile reads the one before
	c = &found
	st, gone, err := e.findCell(ctx, a, c)
	if err != nil {
		return nil, err
	}
	if !gone {
		a.setCell(c)
	}
	m := a.state()
	if gone {
		return nil, fmt.Errorf("%w the host's absence: %s", errGone, lostWords(st))
	}
	if m.Paused { // its agent cannot speak until it is resumed
		if err := e.opts.Cells.Freeze(ctx, c); err != nil {
			a.log().Warn("paused cell could not be frozen again", "error", err)
		}
		if err := a.insist(e.reconnect(a, "ckpt-"+newUUID(), m.ResumeOffset), nil); err != nil || a.state().Terminal() {
			return nil, err
		}
	}
	s, conn, err := e.redialCell(ctx, a, c, m.Paused)
	if err == nil && conn != nil && s == nil {
		s, err = e.startSession(ctx, a, c, conn)
	}
	if s == nil && conn != nil {
		conn.Close()
	}
	return s, err
}

// redialCell opens the link to a cell that lives and says that the mission is
// reconnected. A start that had not come to its end gives a connection and no
// session.
func (e *Engine) redialCell(ctx context.Context, a *actor, c *cells.Cell, reconnected bool) (*liveSession, *cell.Conn, error) {
	if err := a.lockRunning(a.launchCtx()); err != nil {
		return nil, nil, err
	}
	defer a.ops.Unlock()
	// A crash may lie between a freeze and its journal entry.
	if err := e.opts.Cells.Thaw(ctx, c); err != nil {
		return nil, nil, fmt.Errorf("thaw the cell: %w", err)
	}
	conn, err := e.dial(ctx, a, c)
	if err != nil {
		return nil, nil, fmt.Errorf("%w, or its agent does not answer: %w", errGone, err)
	}
	s, err := e.reattach(ctx, a, c, conn, reconnected)
	if err != nil || a.state().Terminal() {
		conn.Close()
		return nil, nil, err
	}
	return s, conn, nil
}

// findCell asks the driver until it answers: a silent driver never means lost.
func (e *Engine) findCell(ctx context.Context, a *actor, c *cells.Cell) (*pluginv1.CellStatus, bool, error) {
	for {
		askCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		st, gone, err := e.opts.Cells.Recover(askCtx, c)
		cancel()
		if err == nil {
			return st, gone, nil
		}
		a.log().Warn("cell cannot be asked for yet", "cell", c.ID, "error", err)
		if err := wait(a.launchCtx(), 200*time.Millisecond); err != nil {
			return nil, false, err
		}
	}
}

func (e *Engine) reattach(ctx context.Context, a *actor, c *cells.Cell, conn *cell.Conn, reconnected bool) (*liveSession, error) {
	m := a.state()
	var offset uint64
	known := false
	for _, st := range conn.Hello().GetSessions() {
		if st.GetSessionId() == m.SessionID {
			known, offset = true, st.GetNext()
		}
	}
	if m.Phase == mission.PhaseLive && !known {
		return nil, fmt.Errorf("%w: its agent does not know the session any more", errGone)
	}
	if !reconnected {
		sp, err := a.spec()
		if err != nil {
			return nil, err
		}
		if sp.Restore == "latched" && m.Phase == mission.PhaseLive {
			if err := e.opts.Cells.Freeze(ctx, c); err != nil { // before it is said
				return nil, fmt.Errorf("freeze the cell: %w", err)
			}
		}
		if err := a.insist(e.reconnect(a, "ckpt-"+newUUID(), offset), nil); err != nil || a.state().Terminal() {
			return nil, err
		}
	}
	if m.Phase == mission.PhaseStarting {
		return nil, nil
	}
	plan, err := storedPlan(c)
	if err != nil {
		return nil, err
	}
	return e.newLive(a, c, conn, plan)
}

// retryEnding destroys the cells whose end failed before.
func (e *Engine) retryEnding(ctx context.Context) {
	rows, err := e.opts.Store.Cells(ctx)
	if err != nil {
		return
	}
	for _, r := range rows {
		if r.State != cells.StateEnding {
			continue
		}
		if c, err := cells.FromRow(r); err == nil {
			e.endCell(ctx, c)
		}
	}
}

func (e *Engine) knownCells(ctx context.Context) (map[string]bool, error) {
	rows, err := e.opts.Store.Cells(ctx)
	known := make(map[string]bool, len(rows))
	for _, r := range rows {
		known[r.CellID] = true
	}
	return known, err
}

func (e *Engine) isolations() []string {
	var refs []string
	for _, i := range e.conf.Load().Instances {
		if i.Kind == "isolation" {
			refs = append(refs, i.Ref())
		}
	}
	return refs
}
