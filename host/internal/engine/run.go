package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

// linkTimeout bounds the first contact with a cell agent.
const linkTimeout = 20 * time.Second

// errStopped ends a start that the stop latch has overtaken.
var errStopped = errors.New("the mission is being stopped")

// run takes a mission from its place in the queue to its end. It returns when
// the mission is terminal and its cell is gone, or when the engine closes.
func (e *Engine) run(ctx context.Context, a *actor, slot *slotWait) {
	defer close(a.done)
	if !e.untilTurn(ctx, a, slot) {
		return
	}
	if ctx.Err() == nil && !a.latch.Load() {
		s, err := e.launch(a)
		e.refillWarm()
		switch {
		case err == nil:
			e.rounds(ctx, a, s)
		case ctx.Err() != nil || a.latch.Load():
		default:
			e.failStart(a, err)
		}
	}
	e.conclude(ctx, a)
}

// untilTurn waits for a slot. A mission that is paused when its turn comes gives
// the slot to the next one and queues again once it is resumed. It gives false
// when the engine closes.
func (e *Engine) untilTurn(ctx context.Context, a *actor, slot *slotWait) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-a.launchCtx().Done(): // stopped while it waited: the ladder ends it
			return ctx.Err() == nil
		case <-slot.ready:
		}
		if !a.state().Paused {
			return true
		}
		a.agent.leave(a)
		if a.untilNotPaused(a.launchCtx()) != nil {
			continue // the select above says why
		}
		slot, _ = a.agent.enter(a, true)
	}
}

// conclude is what every mission goes through last: the stop ladder when the
// latch is set, and giving back what it holds when it is terminal.
func (e *Engine) conclude(ctx context.Context, a *actor) {
	if a.latch.Load() && ctx.Err() == nil && !a.state().Terminal() {
		e.ladder(ctx, a)
	}
	if a.state().Terminal() {
		e.finish(ctx, a)
	}
}

// finish gives back what an ended mission holds.
func (e *Engine) finish(ctx context.Context, a *actor) {
	if c := a.cell(); c != nil {
		e.endCell(ctx, c)
	}
	a.agent.leave(a)
	e.logs.finished(a.state().SessionID)
	if e.settleAccess(ctx, a); ctx.Err() == nil {
		e.forget(a)
	}
}

// launch makes the cell and starts the session in it. Every step is either
// journalled before it is taken or can be taken again.
func (e *Engine) launch(a *actor) (*liveSession, error) {
	ctx := a.launchCtx()
	if err := a.untilNotPaused(ctx); err != nil {
		return nil, err
	}
	sp, err := a.spec()
	if err != nil {
		return nil, fmt.Errorf("resolved agent spec: %w", err)
	}
	var c *cells.Cell
	if a.state().Phase == mission.PhaseBetween {
		c, err = e.reclaim(ctx, a)
	} else {
		c, err = e.claim(a, sp)
	}
	if err != nil {
		return nil, err
	}
	if err := e.opts.Cells.Fill(ctx, c); err != nil {
		return nil, err
	}
	if len(c.Ref) == 0 {
		c.FileDirs = e.needed(sp.Runtime, needCellDir)
		if err := e.opts.Cells.Create(ctx, c); err != nil {
			return nil, err
		}
	}
	conn, err := e.dial(ctx, a, c)
	if err != nil {
		return nil, fmt.Errorf("the cell was made but its agent does not answer: %w", err)
	}
	s, err := e.startSession(ctx, a, c, conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// claim binds a warm cell or lays a new one out, and journals the intent.
func (e *Engine) claim(a *actor, sp spec) (*cells.Cell, error) {
	c := a.agent.takeWarm(e.opts.Cells, sp.Cell)
	if c == nil {
		var err error
		if c, err = e.opts.Cells.Prepare(sp.Cell); err != nil {
			return nil, err
		}
	}
	sessionID := newUUID()
	err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		if a.latch.Load() {
			return nil, errStopped
		}
		return m.Start(c.ID, c.Incarnation, sessionID, e.opts.BootID, e.builds(sp)...)
	}, func(next *mission.Mission, b *store.Batch) error {
		c.MissionID, c.Generation, c.State = next.ID, next.Generation, cells.StateCreating
		return putCell(b, c)
	})
	if err != nil {
		if len(c.Ref) == 0 {
			e.opts.Cells.Release(c)
		} else {
			e.goRun(func(ctx context.Context) { e.endCell(ctx, c) })
		}
		return nil, err
	}
	a.setCell(c)
	e.bind(sessionID, a)
	return c, nil
}

// builds are the programs that a mission with the spec has to do with.
func (e *Engine) builds(sp spec) []mission.Build {
	var list []mission.Build
	for _, ref := range append([]string{sp.Cell.Isolation, sp.Runtime}, sp.Revokers...) {
		version, sum := e.opts.Plugins.Build(ref)
		list = append(list, mission.Build{Ref: ref, Version: version, SHA256: sum})
	}
	return list
}

func putCell(b *store.Batch, c *cells.Cell) error {
	r, err := c.Row()
	if err != nil {
		return err
	}
	b.Cells = append(b.Cells, r)
	return nil
}

// dial opens the link; the agent may need a moment.
func (e *Engine) dial(ctx context.Context, a *actor, c *cells.Cell) (*cell.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	for {
		conn, err := e.opts.Cells.Dial(ctx, c, e.dialOption(a))
		if err == nil {
			return conn, nil
		}
		if wait(ctx, 20*time.Millisecond) != nil {
			return nil, err
		}
	}
}

// startSession binds the cell, plans and starts the session. It is safe to
// call again for the same generation.
func (e *Engine) startSession(ctx context.Context, a *actor, c *cells.Cell, conn *cell.Conn) (*liveSession, error) {
	m := a.state()
	if err := conn.Bind(ctx, m.ID, m.Generation); err != nil {
		return nil, fmt.Errorf("bind the cell: %w", err)
	}
	sp, err := a.spec()
	if err != nil {
		return nil, err
	}
	wake := e.wakeOf(ctx, a)
	plan, err := e.plan(ctx, a, c, sp, wake.text)
	if err != nil {
		return nil, err
	}
	if c.Plan, err = proto.Marshal(plan); err != nil {
		return nil, err
	}
	granted, err := e.grant(ctx, a, sp)
	if err != nil {
		return nil, err
	}
	secret, err := secretEnv(plan, granted)
	if err != nil {
		return nil, fmt.Errorf("plan by %s: %w", sp.Runtime, err)
	}
	if err := e.admitLaunch(ctx, a, c, plan); err != nil {
		return nil, err
	}
	defer a.ops.Unlock()
	frame, err := startFrame(m, c, plan)
	if err != nil {
		return nil, err
	}
	if err := withDoors(frame, conn.Hello(), sp, plan); err != nil {
		return nil, err
	}
	frame.Env = append(frame.Env, secret...)
	if _, err := conn.Start(ctx, frame); err != nil {
		return nil, fmt.Errorf("start the session: %w", err)
	}
	if err := e.journalStarted(a, c); err != nil {
		return nil, err
	}
	e.told(ctx, a, wake, plan)
	return e.newLive(a, c, conn, plan)
}

// journalStarted says that the session runs.
func (e *Engine) journalStarted(a *actor, c *cells.Cell) error {
	generation := a.state().Generation
	return a.insist(func(m *mission.Mission) ([]mission.Fact, error) {
		if a.latch.Load() {
			return nil, errStopped
		}
		return m.SessionStarted(generation)
	}, func(_ *mission.Mission, b *store.Batch) error {
		c.State, c.Worked = cells.StateBound, true
		return putCell(b, c)
	})
}

// plan asks the runtime plugin how to start the agent. A plugin that is being
// relaunched is asked again for a while.
func (e *Engine) plan(ctx context.Context, a *actor, c *cells.Cell, sp spec, notice string) (*pluginv1.LaunchPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	req := &pluginv1.PlanRequest{Mission: missionSpec(a.state(), sp), Cell: c.CellFacts()}
	var err error
	if req.Resume, err = e.resumePoint(ctx, a, notice); err != nil {
		return nil, err
	}
	if req.WorkspaceFiles, err = e.workspaceFiles(sp); err != nil {
		return nil, err
	}
	for {
		rt, err := e.opts.Plugins.Runtime(sp.Runtime)
		if err == nil {
			var resp *pluginv1.PlanResponse
			if resp, err = rt.Plan(ctx, req); err == nil {
				return resp.GetPlan(), errors.Join(checkPlan(sp.Runtime, resp.GetPlan()), checkGateways(sp, resp.GetPlan()))
			}
			if !cells.Retryable(err) {
				return nil, fmt.Errorf("plan by %s: %w", sp.Runtime, err)
			}
		}
		if wait(ctx, 100*time.Millisecond) != nil {
			return nil, fmt.Errorf("plan by %s: %w", sp.Runtime, err)
		}
	}
}

func checkPlan(ref string, p *pluginv1.LaunchPlan) error {
	switch {
	case len(p.GetArgv()) == 0 || p.GetArgv()[0] == "":
		return fmt.Errorf("plan by %s: argv is empty", ref)
	case p.GetBoundary() == pluginv1.Boundary_BOUNDARY_UNSPECIFIED, p.GetOutput() == pluginv1.OutputNeed_OUTPUT_NEED_UNSPECIFIED, p.GetOnFull() == pluginv1.OnFull_ON_FULL_UNSPECIFIED:
		return fmt.Errorf("plan by %s: boundary, output and on_full must be given", ref)
	case p.GetBoundary() == pluginv1.Boundary_BOUNDARY_PROTOCOL && p.GetOnFull() != pluginv1.OnFull_ON_FULL_BLOCK:
		return fmt.Errorf("plan by %s: boundary protocol needs on_full block, or calls could be lost", ref)
	}
	return nil
}

func missionSpec(m *mission.Mission, sp spec) *pluginv1.MissionSpec {
	s := &pluginv1.MissionSpec{MissionId: m.ID, Objective: m.Objective, Completion: m.Completion,
		MetadataJson: m.Metadata, Agent: m.Agent, SessionId: m.SessionHint}
	if i := m.Task.Intent; i != nil {
		s.IntentJson, _ = json.Marshal(map[string]any{"goal": i.Goal, "constraints": i.Constraints}) // valid JSON: it cannot fail
	}
	return s
}

// stateVar is the name under which a session finds the mission's state directory.
const stateVar = "AIRLOCK_STATE"

// inState puts the state directory where a plan says ${AIRLOCK_STATE}.
func inState(text string, facts *pluginv1.CellFacts) (string, error) {
	if !strings.Contains(text, "${"+stateVar+"}") {
		return text, nil
	}
	if facts.GetState() == "" {
		return "", fmt.Errorf("the plan uses ${%s}, and the isolation driver attaches no state volume", stateVar)
	}
	return strings.ReplaceAll(text, "${"+stateVar+"}", facts.GetState()), nil
}

func startFrame(m *mission.Mission, c *cells.Cell, p *pluginv1.LaunchPlan) (*cellv1.Start, error) {
	facts := c.CellFacts()
	f := &cellv1.Start{SessionId: m.SessionID, Generation: m.Generation, Argv: p.GetArgv(), Cwd: p.GetCwd(),
		Uid: facts.GetUid(), Gid: facts.GetGid(), OnFull: cellv1.OnFull(p.GetOnFull()), WatchWaiting: p.GetWatchWaiting()}
	if f.Cwd == "" {
		f.Cwd = facts.GetWorkspace()
	}
	if _, set := p.GetEnv()["HOME"]; !set && f.Cwd != "" {
		// A uid of uid_range has no home directory of its own.
		f.Env = append(f.Env, "HOME="+f.Cwd)
	}
	for name, value := range p.GetEnv() {
		value, err := inState(value, facts)
		if err != nil {
			return nil, err
		}
		f.Env = append(f.Env, name+"="+value)
	}
	f.Env = append(f.Env, "AIRLOCK_MISSION="+m.ID)
	if _, set := p.GetEnv()["TRACEPARENT"]; !set { // whoever traces in the cell goes on with the mission's trace
		f.Env = append(f.Env, "TRACEPARENT="+mission.Trace(m.JournalUUID, m.Metadata).Header())
	}
	if facts.GetState() != "" {
		f.Env = append(f.Env, stateVar+"="+facts.GetState())
	}
	if t := p.GetTerminal(); t != nil {
		f.Terminal = &cellv1.TerminalSize{Cols: or(t.GetCols(), 80), Rows: or(t.GetRows(), 24)}
	}
	for _, file := range p.GetFiles() {
		path, err := inState(file.GetPath(), facts)
		if err != nil {
			return nil, err
		}
		cf := &cellv1.File{Path: path, Content: file.GetContent(), Mode: file.GetMode()}
		if !file.GetRootOwned() {
			cf.Uid, cf.Gid = facts.GetUid(), facts.GetGid()
		}
		f.Files = append(f.Files, cf)
	}
	return f, nil
}

func or(v, def uint32) uint32 {
	if v == 0 {
		return def
	}
	return v
}

// failStart ends a mission that could not be started. What of the cell was
// made is removed by finish.
func (e *Engine) failStart(a *actor, cause error) {
	a.log().Warn("mission could not be started", "error", cause)
	reason := "dispatch_error"
	switch code := status.Code(rootStatus(cause)); {
	case errors.Is(cause, errBlocked):
		reason = "blocked"
	case errors.Is(cause, errGone):
		reason = "cell_lost"
	case code == codes.Unavailable || errors.Is(cause, context.DeadlineExceeded) || code == codes.DeadlineExceeded:
		reason = "driver_unavailable"
	}
	generation := a.state().Generation
	err := a.insist(func(m *mission.Mission) ([]mission.Fact, error) {
		return m.Finish(generation, mission.Ended{State: mission.StateFailed, Reason: reason, Error: cause.Error()})
	}, nil)
	if err != nil && !a.latch.Load() {
		a.log().Error("mission could not be ended", "error", err)
	}
}

// rootStatus finds the gRPC status in a chain of wrapped errors.
func rootStatus(err error) error {
	var st interface{ GRPCStatus() *status.Status }
	if errors.As(err, &st) {
		return st.GRPCStatus().Err()
	}
	return err
}

// lockRunning takes the lock over operations at a moment at which the mission
// is not paused.
func (a *actor) lockRunning(ctx context.Context) error {
	for {
		if err := a.untilNotPaused(ctx); err != nil {
			return err
		}
		a.ops.Lock()
		if !a.state().Paused {
			return nil
		}
		a.ops.Unlock()
	}
}

// untilNotPaused waits while an operator holds the mission.
func (a *actor) untilNotPaused(ctx context.Context) error {
	for {
		changed := a.next()
		if a.latch.Load() {
			return errStopped
		}
		if !a.state().Paused {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
