package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// fakeOutbox is the store's outbox in memory: ids in order, a signal per change.
type fakeOutbox struct {
	mu            sync.Mutex
	next          int64
	items         []store.OutboxItem
	undeliverable []store.OutboxItem
	changed       chan struct{}
	committed     map[int64]time.Time
	deaf          bool // OutboxDone is lost, as in a crash just before it
}

func newOutbox() *fakeOutbox {
	return &fakeOutbox{changed: make(chan struct{}), committed: map[int64]time.Time{}}
}

func (o *fakeOutbox) add(it store.OutboxItem) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next++
	it.ID = o.next
	o.items = append(o.items, it)
	o.committed[it.ID] = time.Now()
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *fakeOutbox) Outbox(_ context.Context, after int64, limit int) ([]store.OutboxItem, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := sort.Search(len(o.items), func(i int) bool { return o.items[i].ID > after })
	return slices.Clone(o.items[i:min(len(o.items), i+min(limit, 100))]), nil
}

func (o *fakeOutbox) OutboxOf(_ context.Context, id string) (out []store.OutboxItem, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, it := range o.items {
		if it.MissionID == id {
			out = append(out, it)
		}
	}
	return out, nil
}

func (o *fakeOutbox) OutboxDone(_ context.Context, ids []int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deaf {
		return errors.New("killed")
	}
	o.items = slices.DeleteFunc(o.items, func(it store.OutboxItem) bool { return slices.Contains(ids, it.ID) })
	return nil
}

func (o *fakeOutbox) OutboxMarkUndeliverable(_ context.Context, id, _ string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.items = slices.DeleteFunc(o.items, func(it store.OutboxItem) bool {
		if it.MissionID == id {
			o.undeliverable = append(o.undeliverable, it)
		}
		return it.MissionID == id
	})
	return nil
}

func (o *fakeOutbox) OutboxStats(context.Context) (int, int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.items), len(o.undeliverable), nil
}

func (o *fakeOutbox) OutboxChanged() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

func (o *fakeOutbox) setDeaf(deaf bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deaf = deaf
}

// fakeMission is a mission of the fake engine.
type fakeMission struct {
	away bool // the host has not found it again yet
	engine.Dispatch
	state     mission.State
	truth     mission.WireEvent
	estimated time.Time
	starts    int
}

// fakeEngine accepts missions and lets tests say what becomes of them. Every
// change commits its event to the outbox under the same lock.
type fakeEngine struct {
	out *fakeOutbox

	mu        sync.Mutex
	missions  map[string]*fakeMission
	order     []string
	questions []mission.Question
	caps      []string
	changed   chan struct{}
	refuse    error
	calls     []string         // commands, in the order they came
	fail      map[string]error // by command
	onAccept  func(id string)  // called after the commit, without the lock
	block     chan struct{}    // pause waits for it
}

func newEngine(out *fakeOutbox) *fakeEngine {
	return &fakeEngine{
		out: out, missions: map[string]*fakeMission{}, changed: make(chan struct{}), fail: map[string]error{},
		caps: []string{"isolation:host", "runtime:custom:command"},
	}
}

func (e *fakeEngine) commit(m *fakeMission, event string, state mission.State, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	if state != "" {
		m.state = state
	}
	ev := mission.WireEvent{Event: event, TS: time.Now(), Data: raw}
	if state != "" && event != "mission.reconnected" {
		m.truth = ev
	}
	if state == mission.StateRunning {
		m.truth = mission.WireEvent{Event: "mission.started", TS: time.Now(), Data: started}
	}
	if m.Origin == mission.OriginOrchestrator {
		e.out.add(store.OutboxItem{MissionID: m.MissionID, Event: event, TS: ev.TS, Data: raw, Terminal: m.state.Terminal()})
	}
}

var started = json.RawMessage(`{"state":"running","agent_runtime":"command","pty_session_id":"pty-1"}`)

type obj = map[string]any

func (e *fakeEngine) Accept(_ context.Context, d engine.Dispatch) (engine.Accepted, error) {
	e.mu.Lock()
	if m := e.missions[d.MissionID]; m != nil {
		defer e.mu.Unlock()
		differs := !bytes.Equal(m.Payload, d.Payload)
		if differs && m.state.Terminal() {
			return engine.Accepted{}, &engine.Refusal{Kind: engine.RefusedConflict, Detail: "it has ended"}
		}
		return engine.Accepted{MissionID: d.MissionID, EstimatedStart: m.estimated, Duplicate: true, Differs: differs}, nil
	}
	if e.refuse != nil {
		defer e.mu.Unlock()
		return engine.Accepted{}, e.refuse
	}
	m := &fakeMission{Dispatch: d, estimated: time.Now()}
	e.missions[d.MissionID] = m
	e.order = append(e.order, d.MissionID)
	e.commit(m, "mission.assigned", mission.StateAssigned, obj{"state": "assigned", "estimated_start": m.estimated.UTC().Format("2006-01-02T15:04:05.000Z")})
	then := e.onAccept
	e.mu.Unlock()
	if then != nil {
		then(d.MissionID)
	}
	return engine.Accepted{MissionID: d.MissionID, EstimatedStart: m.estimated}, nil
}

// do changes a mission.
func (e *fakeEngine) do(id string, f func(m *fakeMission)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.missions[id]
	if m == nil {
		panic("no mission " + id)
	}
	f(m)
}

func (e *fakeEngine) start(id string) {
	e.do(id, func(m *fakeMission) { m.starts++; e.commit(m, "mission.started", mission.StateRunning, started) })
}

func (e *fakeEngine) progress(id, summary string) {
	e.do(id, func(m *fakeMission) {
		e.commit(m, "mission.progress", "", obj{"phase": "execution", "summary": summary})
	})
}

func (e *fakeEngine) end(id string, code int) {
	e.do(id, func(m *fakeMission) {
		if code == 0 {
			e.commit(m, "mission.completed", mission.StateDone, obj{"state": "done", "exit_code": 0, "summary": "done"})
			return
		}
		e.commit(m, "mission.failed", mission.StateFailed, obj{"state": "failed", "reason": "non_zero_exit", "exit_code": code, "error": fmt.Sprintf("exit %d", code)})
	})
}

func (e *fakeEngine) ask(id, hitl string) {
	e.do(id, func(m *fakeMission) {
		e.questions = append(e.questions, mission.Question{HITLID: hitl, MissionID: id, Prompt: "go on?", SessionID: "s-1"})
		e.commit(m, "mission.hitl_required", mission.StateHITL, obj{"hitl_id": hitl, "prompt": "go on?"})
	})
}

func (e *fakeEngine) suspend(id string) {
	e.do(id, func(m *fakeMission) {
		e.commit(m, "mission.suspended", mission.StateSuspended, obj{"state": "suspended", "checkpoint_id": "ckpt-" + id, "reason": "mgmt_server_shutdown"})
	})
}

// called notes a command and says whether it is to fail.
func (e *fakeEngine) called(verb string, args ...string) error {
	e.calls = append(e.calls, verb+" "+strings.Join(args, " "))
	return e.fail[verb]
}

func (e *fakeEngine) Pause(ctx context.Context, id, actor, reason string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if block := e.block; block != nil {
		e.mu.Unlock()
		select {
		case <-block:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
	if err := e.called("pause", id, actor, reason); err != nil {
		return err
	}
	e.commit(e.missions[id], "mission.paused", mission.StatePaused, obj{"state": "paused", "reason": reason})
	return nil
}

func (e *fakeEngine) Resume(_ context.Context, id, actor, reason string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.called("resume", id, actor, reason); err != nil {
		return err
	}
	e.commit(e.missions[id], "mission.resumed", mission.StateRunning, obj{"state": "running", "resumed_from": "paused"})
	return nil
}

func (e *fakeEngine) Abort(_ context.Context, id, actor, by, reason string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.called("abort", id, actor, by, reason); err != nil {
		return err
	}
	e.commit(e.missions[id], "mission.aborted", mission.StateAborted, obj{"state": "aborted", "aborted_by": by, "reason": reason})
	return nil
}

func (e *fakeEngine) Answer(_ context.Context, hitl, actor, text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.called("answer", hitl, actor, text); err != nil {
		return err
	}
	for i, q := range e.questions {
		if q.HITLID == hitl {
			e.questions = slices.Delete(e.questions, i, i+1)
			e.commit(e.missions[q.MissionID], "mission.resumed", mission.StateRunning, obj{"state": "running", "resumed_from": "paused"})
			return nil
		}
	}
	return engine.ErrNotFound
}

func (e *fakeEngine) Mission(_ context.Context, id string) (mission.View, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.missions[id]
	if m == nil {
		return mission.View{}, engine.ErrNotFound
	}
	return mission.View{MissionID: id, Origin: m.Origin, State: m.state, Agent: "agent-01"}, nil
}

func (e *fakeEngine) Questions() []mission.Question {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.questions)
}

func (e *fakeEngine) Agents() []engine.AgentView {
	return []engine.AgentView{{Name: "agent-01", Healthy: true}}
}

func (e *fakeEngine) Capabilities() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.caps)
}

func (e *fakeEngine) CapabilitiesChanged() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *fakeEngine) setCaps(caps ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.caps = caps
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *fakeEngine) Owned() (all []engine.Owned) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.order {
		if m := e.missions[id]; !m.state.Terminal() && m.Origin == mission.OriginOrchestrator {
			all = append(all, engine.Owned{MissionID: id, CheckpointID: "ckpt-" + id, State: m.state, Away: m.away, True: m.truth})
		}
	}
	return all
}

func (e *fakeEngine) TrueState(_ context.Context, id string) (mission.WireEvent, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.missions[id]; m != nil {
		return m.truth, nil
	}
	return mission.WireEvent{}, engine.ErrNotFound
}

func (e *fakeEngine) commands() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

func (e *fakeEngine) set(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}
