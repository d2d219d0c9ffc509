package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/session"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

// resultWait is how long the runtime may think about an exit.
const resultWait = 5 * time.Second

// liveSession is a session that runs, seen from the host.
type liveSession struct {
	eng  *Engine
	a    *actor
	cell *cells.Cell
	plan *pluginv1.LaunchPlan
	spec spec
	gen  uint64
	id   string
	log  *session.Log
	conn atomic.Pointer[cell.Conn]
	rt   *runtimeLink
	// touched is when the session last gave a sign of life, on the engine's clock
	// that cannot be set.
	touched atomic.Int64
	given   givenUp
	// jobs are the commands that run in the cell beside the session, by their
	// session's id: chan *cellv1.Exited.
	jobs sync.Map
}

func (e *Engine) newLive(a *actor, c *cells.Cell, conn *cell.Conn, plan *pluginv1.LaunchPlan) (*liveSession, error) {
	s, sess, err := e.attach(a, c, plan)
	if err != nil {
		return nil, err
	}
	s.conn.Store(conn)
	sess.SetLive(s)
	if t := plan.GetTerminal(); t != nil {
		sess.SetSize(uint16(or(t.GetCols(), 80)), uint16(or(t.GetRows(), 24))) //nolint:gosec // a terminal's size
	}
	a.sess.Store(s)
	s.touch()
	return s, nil
}

// pastLive is a session that is over, for what its runtime still has to say.
func (e *Engine) pastLive(a *actor, c *cells.Cell, plan *pluginv1.LaunchPlan) (*liveSession, error) {
	s, _, err := e.attach(a, c, plan)
	return s, err
}

// attach lays out the mission's session over its log; without a connection it
// is over.
func (e *Engine) attach(a *actor, c *cells.Cell, plan *pluginv1.LaunchPlan) (*liveSession, *session.Session, error) {
	m := a.state()
	sp, err := a.spec()
	if err != nil {
		return nil, nil, err
	}
	sess, err := e.logs.create(m.SessionID, m.ID)
	if err != nil {
		return nil, nil, fmt.Errorf("session log: %w", err)
	}
	s := &liveSession{eng: e, a: a, cell: c, plan: plan, spec: sp, gen: m.Generation, id: m.SessionID, log: sess.Log}
	s.rt = newRuntimeLink(s)
	return s, sess, nil
}

// past says that the session is over: nothing of it can run any more.
func (s *liveSession) past() bool { return s.conn.Load() == nil }

func (s *liveSession) touch() { s.touched.Store(int64(s.eng.uptime())) }

// running is for how long the mission has run, on the engine's clock that cannot
// be set. Of one that an earlier host has started only the journal knows since
// when, by the wall clock; from the first look on that counts no more either.
func (s *liveSession) running(m *mission.Mission) time.Duration {
	a, up := s.a, s.eng.uptime()
	a.began.CompareAndSwap(0, int64(up-s.eng.now().Sub(*m.StartedAt)))
	return up - time.Duration(a.began.Load()) - m.Parked
}

// follow serves a live session until the mission has ended, the stop latch is
// set, or the engine closes.
func (e *Engine) follow(ctx context.Context, a *actor, s *liveSession) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rtDone := make(chan struct{})
	go func() { defer close(rtDone); s.rt.run(ctx) }()
	retired := make(chan struct{})
	go func() { defer close(retired); e.retireGrants(ctx, a, s.gen) }()
	defer func() { cancel(); <-rtDone; <-retired }()
	for {
		conn := s.conn.Load()
		ended := s.serve(ctx, conn)
		if !a.latch.Load() { // the ladder still needs the link
			conn.Close()
		}
		if ended || ctx.Err() != nil || a.latch.Load() {
			return
		}
		if !s.redial(ctx) {
			return
		}
	}
}

// serve handles one connection. It gives true when the mission has ended.
func (s *liveSession) serve(ctx context.Context, conn *cell.Conn) (ended bool) {
	ctx, cancel := context.WithCancel(ctx)
	var pumpErr error
	pumpDone := make(chan struct{})
	go func() { defer close(pumpDone); pumpErr = s.pump(ctx, conn) }()
	defer func() { cancel(); <-pumpDone }()
	pumped := pumpDone // nil once it was seen

	var exited *cellv1.Exited
	for _, st := range conn.Hello().GetSessions() {
		if st.GetSessionId() == s.id {
			exited = st.GetExited()
			s.settleAnswered(st.GetAppliedKeys())
		} else {
			s.foundJob(st)
		}
	}
	s.matchAsks(conn.Hello().GetAsks())
	s.eng.closeOrphans(s.a)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	outputDone := false
	for {
		if exited != nil && outputDone {
			return s.ended(ctx, conn, exited)
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.a.launchCtx().Done():
			if s.a.latch.Load() && exited == nil {
				s.interrupt(ctx, conn)
			}
			return false
		case <-conn.Done():
			return false
		case <-pumped:
			if pumpErr != nil {
				s.eng.log.Warn("output of a session stopped; it is taken up again", "mission", s.a.id, "error", pumpErr)
				_ = wait(ctx, time.Second)
				return false
			}
			pumped, outputDone = nil, true
		case ev := <-conn.Events():
			switch {
			case ev.Exited.GetSessionId() == s.id:
				exited = ev.Exited
			case ev.Exited != nil:
				s.jobEnded(ev.Exited)
			case ev.Waiting.GetSessionId() == s.id:
				s.rt.waiting(ev.Waiting)
			case ev.Ask != nil:
				s.ask(ev.Ask)
			case ev.AskWithdrawn != nil:
				s.closeQuestion(s.questionID("ask", ev.AskWithdrawn.GetAskId()), "withdrawn")
			}
		case <-tick.C:
			s.checkTime(conn)
			if exited == nil {
				s.endGivenUp(conn)
			}
		}
	}
}

// ended turns the exit into the mission's end.
func (s *liveSession) ended(ctx context.Context, conn *cell.Conn, x *cellv1.Exited) bool {
	result := s.rt.result(ctx, &pluginv1.Exit{Code: x.GetCode(), Signal: x.GetSignal(), Oom: x.GetOom()})
	if ctx.Err() != nil {
		return false
	}
	if n, goesOn := s.renewal(x, result); goesOn {
		if !s.endSession(n) {
			return false
		}
		ackCtx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = conn.AckExit(ackCtx, s.id) // said again when the cell is used again
		return true
	}
	end := s.endOf(x, result)
	end.Artifacts = append(end.Artifacts, s.gather(ctx, conn)...)
	if ctx.Err() != nil {
		return false
	}
	err := s.a.insist(func(m *mission.Mission) ([]mission.Fact, error) {
		return m.Finish(s.gen, end)
	}, nil)
	if err != nil {
		return !errors.Is(err, ErrUnavailable)
	}
	ackCtx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = conn.AckExit(ackCtx, s.id) // the cell is destroyed next anyway
	return true
}

// endOf decides done or failed (architecture, "One mission", 5).
func endOf(x *cellv1.Exited, r *pluginv1.Result) mission.Ended {
	code := int(x.GetCode())
	end := mission.Ended{State: mission.StateFailed, ExitCode: &code, Summary: r.GetSummary()}
	for _, art := range r.GetArtifacts() {
		end.Artifacts = append(end.Artifacts, mission.Artifact{Path: art.GetPath(), Description: art.GetDescription()})
	}
	switch {
	case x.GetSignal() != 0:
		code = 128 + int(x.GetSignal()) // as shells say it
		end.Reason = "signal"
		end.Error = fmt.Sprintf("agent process was ended by signal %d (%s)", x.GetSignal(), syscall.Signal(x.GetSignal()))
		if x.GetOom() {
			end.Error = "agent process was killed by the kernel: out of memory"
		}
	case code != 0:
		end.Reason = "non_zero_exit"
		end.Error = fmt.Sprintf("agent process exited with code %d", code)
	case r != nil && !r.GetOk():
		end.Reason = r.GetReason()
		if end.Reason == "" {
			end.Reason = "completion_not_met"
		}
		end.Error = r.GetSummary()
	default:
		end.State = mission.StateDone
		if end.Summary == "" {
			end.Summary = "command completed successfully"
		}
	}
	return end
}

// redial opens the link again after a break. It gives false when there is
// nothing left to follow.
func (s *liveSession) redial(ctx context.Context) bool {
	pause := 50 * time.Millisecond
	for ctx.Err() == nil && !s.a.latch.Load() {
		dialCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
		conn, err := s.eng.opts.Cells.Dial(dialCtx, s.cell, s.eng.dialOption(s.a))
		if err == nil && hasSession(conn, s.id) {
			cancel()
			s.conn.Store(conn)
			return true
		}
		if err == nil {
			conn.Close()
			cancel()
			s.lost(ctx, "the cell agent does not know the session any more", "exit_unknown")
			return false
		}
		st, gone, ierr := s.eng.opts.Cells.Inspect(dialCtx, s.cell)
		cancel()
		if ierr == nil && gone {
			s.lost(ctx, lostWords(st), "cell_lost")
			return false
		}
		s.eng.log.Debug("cell link is down", "mission", s.a.id, "error", err, "inspect", ierr)
		if wait(ctx, pause) != nil {
			return false
		}
		pause = min(2*pause, 2*time.Second)
	}
	return false
}

func hasSession(conn *cell.Conn, id string) bool {
	for _, st := range conn.Hello().GetSessions() {
		if st.GetSessionId() == id {
			return true
		}
	}
	return false
}

func lostWords(st *pluginv1.CellStatus) string {
	switch st.GetExitReason() {
	case pluginv1.ExitReason_EXIT_REASON_OOM:
		return "the cell was killed by the kernel: out of memory"
	case pluginv1.ExitReason_EXIT_REASON_KILLED:
		return "the cell was killed from outside: " + st.GetDetail()
	default:
		return "the cell is gone: its isolation driver finds nothing of it running"
	}
}

// lost ends a mission whose cell or session is gone, unless its runtime can go
// on without it.
func (s *liveSession) lost(ctx context.Context, why, reason string) {
	if s.plan.GetBoundary() == pluginv1.Boundary_BOUNDARY_PROTOCOL {
		result := s.rt.result(ctx, &pluginv1.Exit{Unknown: true})
		if ctx.Err() != nil {
			return
		}
		if n, goesOn := s.renewal(&cellv1.Exited{}, result); goesOn {
			n.Reason = why
			s.endSession(n)
			return
		}
	}
	err := s.a.insist(func(m *mission.Mission) ([]mission.Fact, error) {
		return m.Finish(s.gen, mission.Ended{State: mission.StateFailed, Reason: reason, Error: why})
	}, nil)
	if err != nil && !s.a.latch.Load() {
		s.eng.log.Error("lost mission could not be ended", "mission", s.a.id, "error", err)
	}
}

// checkTime looks after the time limits: questions, wall and idle.
func (s *liveSession) checkTime(conn *cell.Conn) {
	s.eng.expireQuestions(s.a, conn)
	m := s.a.state()
	if m.Paused || len(m.Questions) > 0 {
		s.touch() // waiting for a human is not idling
	}
	switch { // a stop that cannot be written yet holds all the same: the ladder writes it
	case s.spec.Wall > 0 && m.StartedAt != nil && s.running(m) > s.spec.Wall:
		_ = s.eng.stopWith(s.a, mission.Stop{Actor: "airlock", By: "system", Reason: fmt.Sprintf("it ran longer than budget.wall = %s", s.spec.Wall), Fail: "timeout"})
	case s.spec.Idle > 0 && s.eng.uptime()-time.Duration(s.touched.Load()) > s.spec.Idle:
		_ = s.eng.stopWith(s.a, mission.Stop{Actor: "airlock", By: "system", Reason: fmt.Sprintf("no output, call or checkpoint for budget.idle = %s", s.spec.Idle), Fail: "idle"})
	}
}

// outlives says whether a mission goes on whose cell was lost while the host was
// away: a start of a further session is begun again, and of a session that ran
// its runtime is asked.
func (e *Engine) outlives(ctx context.Context, a *actor, c *cells.Cell, why string) bool {
	m := a.state()
	if c == nil || m.StartedAt == nil {
		return false
	}
	sp, err := a.spec()
	if err != nil {
		return false
	}
	n := mission.Renewal{Next: mission.NextNow, Reason: why, MaxResumes: sp.MaxResumes}
	if m.Phase == mission.PhaseLive {
		plan, err := storedPlan(c)
		if err != nil || plan.GetBoundary() != pluginv1.Boundary_BOUNDARY_PROTOCOL {
			return false
		}
		s, err := e.pastLive(a, c, plan)
		if err != nil {
			return false
		}
		rtCtx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); s.rt.run(rtCtx) }()
		result := s.rt.result(ctx, &pluginv1.Exit{Unknown: true})
		cancel()
		<-done
		goesOn := false
		if n, goesOn = s.renewal(&cellv1.Exited{}, result); !goesOn {
			return false
		}
		n.Reason = why
	}
	if m.Suspended || m.Phase == mission.PhaseLive || m.Phase == mission.PhaseStarting {
		// Said in this order: the host is back, and then that the session is not.
		if err := a.insist(e.reconnect(a, "ckpt-"+newUUID(), m.ResumeOffset), nil); err != nil || a.state().Terminal() {
			return true
		}
	}
	err = a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.EndSession(m.Generation, n) }, nil)
	return err == nil
}

func storedPlan(c *cells.Cell) (*pluginv1.LaunchPlan, error) {
	p := &pluginv1.LaunchPlan{}
	if err := proto.Unmarshal(c.Plan, p); err != nil {
		return nil, fmt.Errorf("stored launch plan: %w", err)
	}
	return p, nil
}
