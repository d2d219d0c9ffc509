package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

const (
	// renewPause is how long a mission waits before its next session when the one
	// before made no progress; it doubles with each.
	renewPause = 250 * time.Millisecond
	// reuseWait bounds the question whether a cell can take a further session.
	reuseWait = 5 * time.Second
	// parkRetry is how soon a cell is asked again to end.
	parkRetry = time.Second
)

// rounds follows the sessions of a mission, one after the other, until it has
// ended, its stop latch is set, or the engine closes. s is the one that lives;
// nil: the mission is between two.
func (e *Engine) rounds(ctx context.Context, a *actor, s *liveSession) {
	for {
		if s != nil {
			e.follow(ctx, a, s)
		}
		m := a.state()
		if ctx.Err() != nil || a.latch.Load() || m.Terminal() || m.Phase != mission.PhaseBetween {
			return
		}
		e.logs.finished(m.SessionID)
		var err error
		if s, err = e.nextRound(ctx, a); err != nil {
			if ctx.Err() == nil && !a.latch.Load() {
				e.failStart(a, err)
			}
			return
		}
	}
}

// nextRound waits until the mission may go on and starts its next session. No
// session and no error: the latch is set or the engine closes.
func (e *Engine) nextRound(ctx context.Context, a *actor) (*liveSession, error) {
	if a.state().Next == mission.NextDecided {
		// Nobody knows how long a human takes: no cell and no slot are held.
		if err := e.park(ctx, a); err != nil {
			return nil, nil //nolint:nilerr // the engine closes, or the latch is set
		}
		a.agent.leave(a)
		if !e.untilDecided(ctx, a) {
			return nil, nil
		}
	} else if n := a.state().Resumes; n > 1 {
		if wait(a.launchCtx(), renewPause<<min(n, 6)) != nil {
			return nil, nil
		}
	}
	slot, ok := a.agent.again(a)
	if !ok {
		slot, _ = a.agent.enter(a, true)
	}
	if !e.untilTurn(ctx, a, slot) || ctx.Err() != nil || a.latch.Load() {
		return nil, nil
	}
	s, err := e.launch(a)
	if err == nil && s == nil {
		err = errors.New("the next session could not be started")
	}
	return s, err
}

// untilDecided waits until nothing of the mission waits for a human any more.
// It gives false when the latch is set or the engine closes.
func (e *Engine) untilDecided(ctx context.Context, a *actor) bool {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		changed := a.next()
		m := a.settled()
		if ctx.Err() != nil || a.latch.Load() || m.Terminal() {
			return false
		}
		if !m.Waits(func(d governance.Decision) bool {
			_, known := a.argsOf(&d)
			return known || d.Epoch == m.Epoch // else only a new proposal can bring it back
		}) {
			return true
		}
		select {
		case <-changed:
		case <-tick.C:
			e.expireQuestions(a, nil)
		case <-a.launchCtx().Done():
		}
	}
}

// park ends the mission's cell and keeps its volumes. It insists; an error says
// that the latch is set or the engine closes.
func (e *Engine) park(ctx context.Context, a *actor) error {
	c := a.cell()
	if c == nil || c.State == cells.StateParked {
		return nil
	}
	a.ops.Lock() // nobody freezes or thaws it meanwhile
	defer a.ops.Unlock()
	for {
		parkCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
		next, err := e.opts.Cells.Park(parkCtx, c)
		cancel()
		if err == nil {
			if err = e.putCellRow(ctx, next); err == nil {
				a.setCell(next)
				return nil
			}
		}
		if ctx.Err() == nil {
			e.log.Warn("cell of a mission that waits could not be ended yet", "mission", a.id, "cell", c.ID, "error", err)
		}
		if err := wait(a.launchCtx(), parkRetry); err != nil {
			return err
		}
	}
}

// reclaim gives a mission's further session a place: the cell that it has, if
// that answers, else the same cell made again around its volumes.
func (e *Engine) reclaim(ctx context.Context, a *actor) (*cells.Cell, error) {
	c := a.cell()
	if c == nil {
		return nil, fmt.Errorf("%w: the store has no cell for it", errGone)
	}
	if c.State == cells.StateBound && !e.vacant(ctx, a, c) {
		if err := e.park(ctx, a); err != nil {
			return nil, err
		}
		c = a.cell()
	}
	sp, err := a.spec()
	if err != nil {
		return nil, err
	}
	next := *c
	if next.State != cells.StateBound {
		next.State = cells.StateCreating
	}
	sessionID := newUUID()
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		if a.latch.Load() {
			return nil, errStopped
		}
		return m.Start(next.ID, next.Incarnation, sessionID, e.opts.BootID, e.builds(sp)...)
	}, func(m *mission.Mission, b *store.Batch) error {
		next.MissionID, next.Generation = m.ID, m.Generation
		return putCell(b, &next)
	})
	if err != nil {
		return nil, err
	}
	a.setCell(&next)
	e.bind(sessionID, a)
	return &next, nil
}

// vacant says that a cell lives and that nothing of an earlier session is left
// in it: two sessions of a mission never run side by side.
func (e *Engine) vacant(ctx context.Context, a *actor, c *cells.Cell) bool {
	ctx, cancel := context.WithTimeout(ctx, reuseWait)
	defer cancel()
	if _, gone, err := e.opts.Cells.Inspect(ctx, c); err != nil || gone {
		return false
	}
	conn, err := e.opts.Cells.Dial(ctx, c, e.dialOption(a))
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.Kill(ctx, "", 0, 0); err != nil {
		return false
	}
	for _, st := range conn.Hello().GetSessions() {
		if err := conn.AckExit(ctx, st.GetSessionId()); err != nil {
			return false
		}
	}
	return true
}

// renewal says whether the mission goes on after a session's end, in the
// runtime's view.
func (s *liveSession) renewal(x *cellv1.Exited, r *pluginv1.Result) (mission.Renewal, bool) {
	n := mission.Renewal{MaxResumes: s.spec.MaxResumes}
	switch r.GetContinuation() {
	case pluginv1.Continuation_CONTINUATION_RESUME:
		n.Next = mission.NextNow
	case pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED:
		n.Next = mission.NextDecided
	default:
		return n, false
	}
	if n.Reason = r.GetSummary(); n.Reason == "" {
		n.Reason = endOf(x, nil).Error
	}
	if n.Reason == "" {
		n.Reason = "the session ended with its work undone"
	}
	return n, true
}

// endSession ends the session alone. It gives true when nothing is left to be
// followed.
func (s *liveSession) endSession(n mission.Renewal) bool {
	err := s.a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.EndSession(s.gen, n) }, nil)
	if err == nil {
		s.eng.log.Info("session ended; the mission goes on in another one", "mission", s.a.id, "generation", s.gen, "next", string(n.Next), "reason", n.Reason)
	}
	s.a.sess.CompareAndSwap(s, nil)
	return !errors.Is(err, ErrUnavailable)
}

// resumePoint is where a further session begins; nil for the first. notice is
// what its agent is to be told.
func (e *Engine) resumePoint(ctx context.Context, a *actor, notice string) (*pluginv1.ResumePoint, error) {
	m := a.state()
	if m.StartedAt == nil {
		return nil, nil
	}
	p := &pluginv1.ResumePoint{Reason: m.RenewReason, Notice: notice}
	switch st, err := e.opts.Store.RuntimeState(ctx, a.id); {
	case err == nil:
		p.State = st.State
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	for _, i := range m.Lost {
		p.OpenCalls = append(p.OpenCalls, &pluginv1.OpenCall{ProposalId: i.ProposalID, Tool: i.Tool, InvocationId: i.InvocationID})
	}
	return p, nil
}
