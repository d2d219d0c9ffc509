package workflow

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// missionRun ties a mission to its goal, agent, session, task and attempt.
type missionRun struct {
	Owner      string `json:"owner"` // the hex of the digest; the row's id
	Project    string `json:"project"`
	GoalID     string `json:"goal_id"`
	AgentID    string `json:"agent_id"`
	EndpointID string `json:"endpoint_id"`
	SessionID  string `json:"session_id"`
	TaskID     string `json:"task_id"`
	AttemptID  string `json:"attempt_id"`
	// Generation is the mission's, of which the attempt is.
	Generation uint64 `json:"generation"`
}

func runID(owner [32]byte) string { return base64.RawURLEncoding.EncodeToString(owner[:]) }

func (m *missionRun) row() Row { return Row{Table: TableRuns, ID: m.Owner} }

// loadRun gives what a mission has; nil when the owner is none.
func loadRun(r Reader, owner [32]byte) (*missionRun, error) {
	return load[missionRun](r, TableRuns, owner, runID(owner))
}

// Project is a mission's workspace id.
func Project(owner Owner) string {
	digest := owner.Digest()
	return "ws_" + base64.RawURLEncoding.EncodeToString(digest[:12])
}

// MissionEvent is a fact of a mission that its workflow follows.
type MissionEvent string

// The facts.
const (
	// MissionStarting: a session is about to be started, or a task for a harness
	// was opened. Nothing runs yet.
	MissionStarting MissionEvent = "starting"
	// MissionStarted: the session runs.
	MissionStarted MissionEvent = "started"
	// MissionReconnected: the host is back and reaches the session again.
	MissionReconnected MissionEvent = "host_restart"
	// MissionResumed: somebody lets a mission go on that was held.
	MissionResumed MissionEvent = "resumed"
	// MissionDone and MissionFailed: it has ended.
	MissionDone   MissionEvent = "done"
	MissionFailed MissionEvent = "failed"
)

// Mission is what a mission's workflow is made from.
type Mission struct {
	Agent      string // the agent block's name, or "harness"
	Objective  string
	Completion string
	Plan       json.RawMessage // array of steps; nil: none
	Generation uint64
	Running    bool   // with MissionStarting: what is started runs already
	Reason     string // of the end
}

// Observe lets a mission's workflow follow its facts. It is called in the
// transaction that makes the fact durable, once. It refuses no fact: an error is
// the store's, or it is Unreadable; nothing is put then.
func (k *Keeper) Observe(tx Tx, owner Owner, ev MissionEvent, m Mission) error {
	digest := owner.Digest()
	run, err := loadRun(tx, digest)
	if err != nil {
		return err
	}
	held := &heldTx{Reader: tx}
	o := observer{k: k, tx: held, owner: digest, run: run, now: k.now()}
	if err := o.follow(owner, ev, m); err != nil {
		return err
	}
	for _, put := range held.puts {
		put(tx)
	}
	return nil
}

// heldTx keeps what is put until all of it is known.
type heldTx struct {
	Reader
	puts []func(Tx)
}

func (h *heldTx) Insert(r Row)       { h.puts = append(h.puts, func(tx Tx) { tx.Insert(r) }) }
func (h *heldTx) Update(r Row)       { h.puts = append(h.puts, func(tx Tx) { tx.Update(r) }) }
func (h *heldTx) InsertKey(k KeyRow) { h.puts = append(h.puts, func(tx Tx) { tx.InsertKey(k) }) }

func (o *observer) follow(owner Owner, ev MissionEvent, m Mission) error {
	over := ev == MissionDone || ev == MissionFailed
	switch {
	case ev == MissionStarting:
		return o.starting(owner, m)
	case o.run == nil && over:
		return nil
	case o.run == nil: // a mission that is older than workflows
		m.Running = true
		return o.open(owner, m)
	}
	switch ev {
	case MissionStarted:
		return o.started()
	case MissionReconnected, MissionResumed:
		return o.woken(ev)
	case MissionDone, MissionFailed:
		return o.ended(ev == MissionDone, m.Reason)
	}
	return nil
}

type observer struct {
	k     *Keeper
	tx    Tx
	owner [32]byte
	run   *missionRun
	now   int64
}

func (o *observer) put(es ...entity) {
	for _, e := range es {
		o.tx.Update(rowOf(o.owner, e))
	}
}

// starting makes what the mission does not have yet, and an attempt for the
// session that is about to start. Its execution is unknown until it is said to
// run.
func (o *observer) starting(owner Owner, m Mission) error {
	if o.run == nil {
		return o.open(owner, m)
	}
	if o.run.Generation == m.Generation {
		return nil
	}
	t, a, e, err := o.parts()
	if err != nil {
		return err
	}
	if t == nil || e == nil {
		return nil
	}
	goesOn := a != nil && a.Execution.State == dispatchBound // its agent had begun
	if a != nil && a.State == AttemptActive {                // the session before is gone
		a.Execution.observe(dispatchTerminal, a.Execution.Revision+1)
		a.State, a.TerminalAt = AttemptExpired, max(o.now, a.StartedAt)
		o.put(a)
	}
	e.Generation++
	e.Lifecycle = endpointAttached
	o.put(e)
	o.run.Generation = m.Generation
	var next *attempt
	if !t.terminal() {
		if next, err = o.attempt(t, e, m.Running); err != nil {
			return err
		}
		o.run.AttemptID = next.AttemptID
	}
	o.put(o.run)
	if err := o.retire(e.AgentID); err != nil || !goesOn {
		return err
	}
	return o.wake(e, next, MissionResumed)
}

// attempt makes the attempt of a session that is about to start. Its lease is a
// turn's: the session begins with one.
func (o *observer) attempt(t *task, e *endpoint, running bool) (*attempt, error) {
	next, err := o.k.newAttempt(o.tx, o.owner, t, nil, "mission", o.k.opts.Leases.ActiveTurn.Milliseconds(), o.now)
	if err != nil {
		return nil, err
	}
	next.Execution = execution{State: dispatchUnknown, Revision: 1, EndpointID: e.ID, Generation: e.Generation}
	if running {
		next.Execution.State = dispatchBound
	}
	o.tx.Insert(rowOf(o.owner, next))
	return next, nil
}

// open makes everything that a mission has from its start.
func (o *observer) open(owner Owner, m Mission) error {
	ids := map[Table]string{}
	for t, prefix := range map[Table]string{TableAgents: prefixAgent, TableEndpoints: prefixEndpoint, TableSessions: prefixSession, TableTasks: prefixTask} {
		id, err := o.k.newID(o.tx, t, prefix)
		if err != nil {
			return err
		}
		ids[t] = id
	}
	agentID := ids[TableAgents]
	title := clip(firstLine(m.Objective), maxTitle, false)
	if title == "" {
		title = "mission"
	}
	in := CreateGoal{Title: title, Objective: clip(m.Objective, maxObjective, true), Steps: planned(m.Plan), ControllerAgentID: &agentID}
	if c := clip(trimmed(m.Completion), maxCondition, true); c != "" {
		in.CompletionConditions = []string{c}
	}
	g, err := o.k.newGoal(o.tx, in)
	if err != nil {
		return err
	}
	g.Correlations = []Correlation{{correlatedTask, ids[TableTasks]}, {correlatedSession, ids[TableSessions]}}
	g.Summary.TaskCount, g.Summary.SessionCount = 1, 1
	e := &endpoint{ID: ids[TableEndpoints], AgentID: agentID, Generation: 1, Lifecycle: endpointAttached, WakeCapable: true}
	s := &session{ID: ids[TableSessions], Number: 1, Project: Project(owner), Mode: sessionNormal, Lifecycle: sessionActive, CreatedAt: o.now}
	t := &task{TaskSummary{TaskID: ids[TableTasks], Title: title, Instruction: clip(m.Objective, maxInstruction, true), AssigneeAgentID: agentID,
		Project: s.Project, GoalID: g.Summary.GoalID, SessionID: s.ID, State: TaskReady, CreatedAt: o.now, UpdatedAt: o.now}}
	o.run = &missionRun{Owner: runID(o.owner), Project: s.Project, GoalID: g.Summary.GoalID, AgentID: agentID, EndpointID: e.ID,
		SessionID: s.ID, TaskID: t.TaskID, Generation: m.Generation}
	for _, x := range []entity{g, &agent{ID: agentID, Handle: handle(m.Agent), Display: clip(m.Agent, 128, false)}, e, s, t} {
		o.tx.Insert(rowOf(o.owner, x))
	}
	a, err := o.attempt(t, e, m.Running)
	if err != nil {
		return err
	}
	o.run.AttemptID = a.AttemptID
	o.tx.Insert(rowOf(o.owner, o.run))
	return nil
}

// parts reads the mission's task, its newest attempt and its endpoint.
func (o *observer) parts() (*task, *attempt, *endpoint, error) {
	t, err := load[task](o.tx, TableTasks, o.owner, o.run.TaskID)
	if err != nil {
		return nil, nil, nil, err
	}
	a, err := load[attempt](o.tx, TableAttempts, o.owner, o.run.AttemptID)
	if err != nil {
		return nil, nil, nil, err
	}
	e, err := load[endpoint](o.tx, TableEndpoints, o.owner, o.run.EndpointID)
	return t, a, e, err
}

func (o *observer) started() error {
	_, a, _, err := o.parts()
	if err == nil && a != nil && a.Execution.observe(dispatchBound, a.Execution.Revision+1) {
		o.put(a)
	}
	return err
}

// woken asks the agent to show that it goes on. A wake that it never took is
// retired: there is one at a time. After a restart of the host the endpoint has
// a new carrier.
func (o *observer) woken(ev MissionEvent) error {
	t, a, e, err := o.parts()
	if err != nil || t == nil || e == nil || e.Lifecycle != endpointAttached {
		return err
	}
	if err := o.retire(e.AgentID); err != nil {
		return err
	}
	if ev == MissionReconnected {
		e.Generation++
		o.put(e)
		if a != nil && a.Execution.EndpointID == e.ID && a.Execution.State == dispatchBound {
			a.Execution.Generation = e.Generation
			a.Told = false // the new generation is given its proofs once more
			o.put(a)
		}
	}
	return o.wake(e, a, ev)
}

// wake queues a wake that comes from the attempt.
func (o *observer) wake(e *endpoint, a *attempt, why MissionEvent) error {
	id, err := o.k.newID(o.tx, TableWakes, prefixWake)
	if err != nil {
		return err
	}
	w := &wake{ID: id, AgentID: e.AgentID, Reason: string(why), State: wakePending, CreatedAt: o.now}
	if a != nil {
		w.TaskID, w.AttemptID = a.TaskID, a.AttemptID
	}
	o.tx.Insert(rowOf(o.owner, w))
	return nil
}

// retire ends the wakes of an agent that were not consumed.
func (o *observer) retire(agentID string) error {
	wakes, err := list[wake](o.tx, Query{Table: TableWakes, By: ByParent, Key: agentID, Open: true})
	for _, w := range wakes {
		if w.retire() {
			o.put(w)
		}
	}
	return err
}

func (o *observer) ended(ok bool, reason string) error {
	t, a, e, err := o.parts()
	if err != nil {
		return err
	}
	if e != nil {
		e.Lifecycle = endpointDetached
		o.put(e)
		if err := o.retire(e.AgentID); err != nil {
			return err
		}
	}
	if t == nil || a == nil || t.terminal() {
		return nil
	}
	end := AttemptFailed
	if ok {
		end = AttemptSucceeded
	}
	o.k.endAttempt(o.tx, o.owner, t, a, end, "", clip(reason, maxTerminal, true), o.now)
	return nil
}

// planned makes steps of a plan as others write it: strings, or objects with an
// id and a title. A plan that is longer than a goal's may be stays the
// mission's only.
func planned(plan json.RawMessage) []NewStep {
	var raw []json.RawMessage
	if json.Unmarshal(plan, &raw) != nil || len(raw) > maxSteps {
		return nil
	}
	taken := map[string]bool{}
	var out []NewStep
	for i, r := range raw {
		var text string
		var o struct{ ID, Title, Name, Step, Description string }
		if json.Unmarshal(r, &text) != nil && json.Unmarshal(r, &o) != nil {
			return nil
		}
		for _, s := range []string{o.Title, o.Name, o.Step, o.Description, o.ID} {
			if text == "" {
				text = s
			}
		}
		id := o.ID
		if !isStepID(id) || taken[id] {
			id = "step-" + decimal(int64(i+1))
		}
		if text = clip(trimmed(text), maxStepTitle, false); text == "" || taken[id] {
			return nil
		}
		taken[id] = true
		out = append(out, NewStep{ID: id, Title: text})
	}
	return out
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(trimmed(s), "\n")
	return trimmed(line)
}

// handle is an agent's name in the form of a handle.
func handle(name string) string {
	h := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (isBase64(string(r)) || r == '.') {
			return r
		}
		return '-'
	}, name)
	return clip(h, 64, false)
}

// clip cuts a text to so many bytes or characters.
func clip(s string, n int, bytes bool) string {
	if !bytes {
		if r := []rune(s); len(r) > n {
			return string(r[:n-1]) + "…"
		}
		return s
	}
	if len(s) <= n {
		return s
	}
	n -= len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
