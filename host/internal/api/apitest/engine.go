// Package apitest runs a real API server over an engine in memory, for the
// tests of the API and of the CLI. The one idea: the engine is small but
// honest; it keeps missions, journals and sessions by the rules of the real
// one, and what it is told can be looked up.
package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/result"
	"github.com/airlock-host/airlock/host/internal/session"
	"github.com/airlock-host/airlock/host/internal/store"
)

// Engine is an engine in memory; it is the API's Engine, Sessions and Events.
type Engine struct {
	noTasks
	dir string

	mu       sync.Mutex
	missions map[string]*task
	order    []*task
	sessions map[string]*session.Session
	feed     []journal.Event
	changed  chan struct{}
	seq      int

	// Fail is returned by every call that changes something, when set.
	Fail error
	// StopDelay holds stop_acknowledged back until the channel is closed.
	StopDelay chan struct{}
}

type task struct {
	view     mission.View
	payload  string
	head     journal.Head
	events   []journal.Event
	question *mission.Question
	closed   map[string]bool
	live     *Live
}

// NewEngine keeps session logs below dir.
func NewEngine(dir string) *Engine {
	return &Engine{dir: dir, missions: map[string]*task{}, sessions: map[string]*session.Session{}, changed: make(chan struct{})}
}

// append chains an event; the lock is held.
func (e *Engine) append(t *task, kind journal.Kind, payload map[string]any) {
	payload["v"] = 1
	text, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	e.seq++
	var ev journal.Event
	ev, t.head = t.head.Next(fmt.Sprintf("00000000-0000-7000-8000-%012d", e.seq), time.Now(), kind, string(text))
	t.events = append(t.events, ev)
	e.feed = append(e.feed, ev)
	close(e.changed)
	e.changed = make(chan struct{})
}

// Emit appends an event to a task's chain.
func (e *Engine) Emit(id string, kind journal.Kind, payload map[string]any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.append(e.missions[id], kind, payload)
}

// Plan says that a mission would start at the named agent, or at the first.
func (e *Engine) Plan(_ context.Context, d engine.Dispatch) (engine.Plan, error) {
	p := engine.Plan{Would: engine.WouldStart, Agent: d.AgentID, Gateways: []string{}, Revokers: []string{}, Notes: []string{},
		Others: []engine.Passed{{Agent: "agent-02", Why: "it comes second"}}}
	switch d.AgentID {
	case "":
		p.Agent = "agent-01"
	case "agent-01", "agent-02":
	default:
		p = engine.Plan{Would: engine.WouldRefuse, Refusal: &engine.Refusal{Kind: engine.RefusedUnknownAgent, Agent: d.AgentID, Detail: "it is not known"}}
	}
	return p, nil
}

// Accept takes a mission in.
func (e *Engine) Accept(_ context.Context, d engine.Dispatch) (engine.Accepted, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Fail != nil {
		return engine.Accepted{}, e.Fail
	}
	if d.MissionID == "" {
		d.MissionID = fmt.Sprintf("made-%d", len(e.order)+1)
	}
	if t := e.missions[d.MissionID]; t != nil {
		differs := t.payload != string(d.Payload)
		if differs && t.view.State.Terminal() {
			return engine.Accepted{}, &engine.Refusal{Kind: engine.RefusedConflict, Detail: "the mission has ended"}
		}
		return engine.Accepted{MissionID: d.MissionID, EstimatedStart: t.view.CreatedAt, Duplicate: true, Differs: differs}, nil
	}
	if d.AgentID == "" {
		d.AgentID = "agent-01"
	}
	if d.AgentID != "agent-01" && d.AgentID != "agent-02" {
		return engine.Accepted{}, &engine.Refusal{Kind: engine.RefusedUnknownAgent, Agent: d.AgentID, Detail: "agent " + strconv.Quote(d.AgentID) + " is not known"}
	}
	now := time.Now().UTC()
	t := &task{payload: string(d.Payload), closed: map[string]bool{}}
	t.view = mission.View{
		MissionID: d.MissionID, TaskID: d.MissionID, Origin: d.Origin, Agent: d.AgentID,
		Isolation: "isolation.host-supervisor.host", Runtime: "runtime.command.shell",
		State: mission.StateRunning, PTYSessionID: "pty-" + d.MissionID, Objective: d.Objective, CreatedAt: now, StartedAt: &now,
	}
	const uuid = "0198c0de-0000-7000-8000-000000000001"
	t.head = journal.Genesis(d.MissionID, uuid)
	e.append(t, journal.TaskOpened, map[string]any{"journal_uuid": uuid})
	e.append(t, journal.Assigned, map[string]any{})
	e.append(t, journal.Started, map[string]any{"session_id": t.view.PTYSessionID})
	log, err := session.OpenLog(e.dir, t.view.PTYSessionID, 0)
	if err != nil {
		return engine.Accepted{}, err
	}
	t.live = &Live{log: log}
	e.sessions[t.view.PTYSessionID] = session.New(t.view.PTYSessionID, d.MissionID, log, t.live)
	e.missions[d.MissionID] = t
	e.order = append(e.order, t)
	return engine.Accepted{MissionID: d.MissionID, EstimatedStart: now}, nil
}

// change is the shape of pause, resume and abort.
func (e *Engine) change(id string, do func(t *task) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Fail != nil {
		return e.Fail
	}
	t := e.missions[id]
	if t == nil {
		return engine.ErrNotFound
	}
	if t.view.State.Terminal() {
		return fmt.Errorf("%w: the mission has ended (%s)", engine.ErrConflict, t.view.State)
	}
	return do(t)
}

// Pause pauses a mission.
func (e *Engine) Pause(_ context.Context, id, actor, reason string) error {
	return e.change(id, func(t *task) error {
		t.view.State, t.view.WaitingFor = mission.StatePaused, "operator"
		e.append(t, journal.Paused, map[string]any{"actor": actor, "reason": reason})
		return nil
	})
}

// PauseGate pauses a mission too; what a freeze is, this engine does not know.
func (e *Engine) PauseGate(ctx context.Context, id, actor, reason string) error {
	return e.Pause(ctx, id, actor, reason)
}

// Replan holds a mission.
func (e *Engine) Replan(_ context.Context, id, actor, reason string) error {
	return e.change(id, func(t *task) error {
		t.view.State, t.view.WaitingFor, t.view.StateReason = mission.StatePaused, "operator", "replan"
		e.append(t, journal.ReplanRequested, map[string]any{"actor": actor, "reason": reason})
		return nil
	})
}

// Resume resumes a paused mission.
func (e *Engine) Resume(_ context.Context, id, actor, _ string) error {
	return e.change(id, func(t *task) error {
		if t.view.State != mission.StatePaused {
			return fmt.Errorf("%w: the mission is not paused", engine.ErrConflict)
		}
		t.view.State, t.view.StateReason, t.view.WaitingFor = mission.StateRunning, "", ""
		e.append(t, journal.Resumed, map[string]any{"resumed_from": "paused", "actor": actor})
		return nil
	})
}

// Latch leaves a mission as a restart of the host with restore = "latched" does.
func (e *Engine) Latch(id string) error {
	return e.change(id, func(t *task) error {
		t.view.State, t.view.StateReason, t.view.WaitingFor = mission.StatePaused, mission.RestartRequired, "operator"
		e.append(t, journal.Paused, map[string]any{"actor": "host", "reason": mission.RestartRequired})
		return nil
	})
}

// Restart lets a latched mission go on.
func (e *Engine) Restart(_ context.Context, id, actor string) error {
	return e.change(id, func(t *task) error {
		if t.view.StateReason != mission.RestartRequired {
			return fmt.Errorf("%w: the mission is not latched", engine.ErrConflict)
		}
		t.view.State, t.view.StateReason, t.view.WaitingFor = mission.StateRunning, "", ""
		e.append(t, journal.Restarted, map[string]any{"actor": actor})
		return nil
	})
}

// Abort latches a mission; what follows the latch happens at once, or when
// StopDelay is closed.
func (e *Engine) Abort(_ context.Context, id, actor, by, reason string) error {
	return e.change(id, func(t *task) error {
		e.append(t, journal.Stop, map[string]any{"id": "stop-" + id, "epoch": 2, "actor": actor, "by": by, "reason": reason})
		t.view.WaitingFor = "stop"
		if e.StopDelay == nil {
			return e.aborted(t)
		}
		go func() {
			<-e.StopDelay
			e.mu.Lock()
			defer e.mu.Unlock()
			_ = e.aborted(t)
		}()
		return nil
	})
}

func (e *Engine) aborted(t *task) error {
	e.append(t, journal.StopAcknowledged, map[string]any{
		"stop_id": "stop-" + t.view.MissionID,
		"receipt": map[string]any{"access_revocation": "not_configured", "audit_error": nil},
	})
	return e.end(t, mission.StateAborted, nil)
}

// End ends a mission with an exit code.
func (e *Engine) End(id string, code int) error {
	return e.change(id, func(t *task) error {
		state := mission.StateDone
		if code != 0 {
			state = mission.StateFailed
		}
		return e.end(t, state, &code)
	})
}

func (e *Engine) end(t *task, state mission.State, code *int) error {
	now := time.Now().UTC()
	t.view.State, t.view.WaitingFor, t.view.EndedAt, t.view.ExitCode = state, "", &now, code
	t.question = nil
	e.append(t, journal.Ended, map[string]any{"state": state, "exit_code": code})
	e.sessions[t.view.PTYSessionID].SetLive(nil)
	return t.live.log.Finish()
}

// Ask puts a question to a human.
func (e *Engine) Ask(id, hitlID, prompt string) error {
	return e.change(id, func(t *task) error {
		t.question = &mission.Question{HITLID: hitlID, MissionID: id, SessionID: t.view.PTYSessionID, Prompt: prompt, AskedAt: time.Now().UTC()}
		t.view.State, t.view.WaitingFor = mission.StateHITL, "answer"
		e.append(t, journal.Question, map[string]any{"hitl_id": hitlID, "prompt": prompt})
		return nil
	})
}

// Answer answers a question; the first answer wins.
func (e *Engine) Answer(ctx context.Context, hitlID, actor, text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Fail != nil {
		return e.Fail
	}
	for _, t := range e.order {
		if t.closed[hitlID] {
			return fmt.Errorf("%w: the question was answered already", engine.ErrConflict)
		}
		if t.question == nil || t.question.HITLID != hitlID {
			continue
		}
		if err := t.live.Input(ctx, []byte(text+"\n")); err != nil {
			return err
		}
		t.question, t.closed[hitlID] = nil, true
		t.view.State, t.view.WaitingFor = mission.StateRunning, ""
		e.append(t, journal.Answered, map[string]any{"hitl_id": hitlID, "actor": actor})
		return nil
	}
	return engine.ErrNotFound
}

// Mission reads one mission.
func (e *Engine) Mission(_ context.Context, id string) (mission.View, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.missions[id]; t != nil {
		return t.view, nil
	}
	return mission.View{}, engine.ErrNotFound
}

// Peek reads one mission.
func (e *Engine) Peek(id string) (mission.View, bool) {
	v, err := e.Mission(context.Background(), id)
	return v, err == nil && !v.State.Terminal()
}

// Results keeps what missions changed; a test may collect into it.
func (e *Engine) Results() *result.Store {
	return &result.Store{Dir: filepath.Join(e.dir, "results")}
}

// Files finds what a mission changed.
func (e *Engine) Files(ctx context.Context, id string) (*result.Stored, error) {
	v, err := e.Mission(ctx, id)
	if err != nil {
		return nil, err
	}
	if !v.State.Terminal() {
		return nil, fmt.Errorf("the mission is %s: %w", v.State, engine.ErrConflict)
	}
	return e.Results().Open(id)
}

// AbortForGood is Abort.
func (e *Engine) AbortForGood(ctx context.Context, id, actor, by, reason string) error {
	return e.Abort(ctx, id, actor, by, reason)
}

// Stopping knows of no stop that is not journalled.
func (e *Engine) Stopping(string) (mission.Stop, time.Time, bool) {
	return mission.Stop{}, time.Time{}, false
}

// TaskStatus is a task of which nothing was governed.
func (e *Engine) TaskStatus(ctx context.Context, id string) (governance.Status, error) {
	v, err := e.Mission(ctx, id)
	if err != nil {
		return governance.Status{}, err
	}
	s := governance.Status{TaskID: id, Mode: "govern", State: "RUNNING", StateReason: v.StateReason, Objective: v.Objective, Boundary: "none",
		NotEvaluated: []string{}, AuditErrors: []string{}}
	switch {
	case v.State.Terminal():
		s.State = "ENDED"
	case v.WaitingFor == "stop":
		s.State = "STOPPED"
	case v.State == mission.StatePaused:
		s.State = "PAUSED"
	}
	new(governance.Task).Fill(&s)
	head, err := e.Head(ctx, id)
	s.Head = governance.HeadState{Sequence: head.Sequence, Digest: head.Digest.String()}
	return s, err
}

// Missions reads a page, newest first.
func (e *Engine) Missions(_ context.Context, f store.MissionFilter) ([]mission.View, string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	end := len(e.order)
	if f.After != "" {
		n, err := strconv.Atoi(f.After)
		if err != nil || n < 0 || n > end {
			return nil, "", &engine.Refusal{Kind: engine.RefusedInvalid, Detail: "cursor: it is not one of this list"}
		}
		end = n
	}
	var out []mission.View
	for i := end - 1; i >= 0; i-- {
		v := e.order[i].view
		if len(out) == f.Limit {
			return out, strconv.Itoa(i + 1), nil
		}
		if f.Agent != "" && f.Agent != v.Agent || f.Live && v.State.Terminal() || !contains(f.States, string(v.State)) {
			continue
		}
		out = append(out, v)
	}
	return out, "", nil
}

func contains(words []string, word string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return len(words) == 0
}

// Questions are those that wait.
func (e *Engine) Questions() []mission.Question {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []mission.Question
	for _, t := range e.order {
		if t.question != nil {
			out = append(out, *t.question)
		}
	}
	return out
}

// Agents are agent-01, which is well, and agent-02, which is not.
func (e *Engine) Agents() []engine.AgentView {
	return []engine.AgentView{
		{Name: "agent-01", Isolation: "isolation.host-supervisor.host", Runtime: "runtime.command.shell", Healthy: true, Slots: 4, QueueLimit: 100},
		{Name: "agent-02", Isolation: "isolation.docker.container", Runtime: "runtime.command.shell", Reason: "docker is not reachable", Slots: 1},
	}
}

// Session finds a session.
func (e *Engine) Session(_ context.Context, id string) (*session.Session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[id]; s != nil {
		return s, nil
	}
	return nil, engine.ErrNotFound
}

// Live is the living end of a mission's session.
func (e *Engine) Live(id string) *Live {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.missions[id].live
}

// Events reads a task's events.
func (e *Engine) Events(_ context.Context, id string, after uint64, limit int) ([]journal.Event, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.missions[id]
	if t == nil {
		return nil, engine.ErrNotFound
	}
	i := sort.Search(len(t.events), func(i int) bool { return t.events[i].Sequence > after })
	return append([]journal.Event(nil), t.events[i:min(i+limit, len(t.events))]...), nil
}

// Show reads a task's events; none is damaged.
func (e *Engine) Show(ctx context.Context, id string, after uint64, limit int) ([]journal.Shown, error) {
	events, err := e.Events(ctx, id, after, limit)
	var out []journal.Shown
	for _, ev := range events {
		out = append(out, journal.Shown{Event: ev})
	}
	return out, err
}

// Head is the end of a task's chain.
func (e *Engine) Head(_ context.Context, id string) (journal.Head, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.missions[id]; t != nil {
		return t.head, nil
	}
	return journal.Head{}, engine.ErrNotFound
}

// Feed reads all events.
func (e *Engine) Feed(_ context.Context, after int64, limit int) ([]journal.Event, []int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var events []journal.Event
	var cursors []int64
	for i := after; i < int64(len(e.feed)) && len(events) < limit; i++ {
		events, cursors = append(events, e.feed[i]), append(cursors, i+1)
	}
	return events, cursors, nil
}

// FeedEnd is the cursor of the newest event.
func (e *Engine) FeedEnd(context.Context) (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int64(len(e.feed)), nil
}

// Changed is closed at the next event.
func (e *Engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// EventsChanged is closed at the next event.
func (e *Engine) EventsChanged(string) <-chan struct{} { return e.Changed() }

// Close lets go of the session logs.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.order {
		_ = t.live.log.Close()
	}
}

// Climbing knows of no rungs.
func (e *Engine) Climbing(string, string) []engine.Rung { return nil }

// QuarantineReceipt is nil: nothing is quarantined.
func (e *Engine) QuarantineReceipt(string) map[string]any { return nil }

// AskIssuers does nothing: there are none.
func (e *Engine) AskIssuers(context.Context, string) {}

// Check verifies a task's chain.
func (e *Engine) Check(_ context.Context, id string) (good journal.Head, trusted *journal.Head, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.missions[id]
	if t == nil {
		return journal.Head{}, nil, store.ErrNotFound
	}
	chain := journal.NewChain(nil)
	for i := range t.events {
		if err := chain.Add(&t.events[i]); err != nil {
			return chain.Head(), nil, err
		}
	}
	return chain.Head(), nil, nil
}
