package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// NewTask is a task whose agent runs outside of any cell.
type NewTask struct {
	TaskID    string // empty: one is made
	Objective string
	Intent    *governance.Envelope
	Plan      json.RawMessage // array of steps
	Scopes    []string        // empty: all
}

// Scopes are what a task token can be good for: the routes of a harness, and the
// tools of the MCP endpoint.
func Scopes() []string {
	return append([]string{"propose", "dispatch", "access", scopeMCP}, MCPScopes()...)
}

// scopeMCP is good for the MCP endpoint, and for every tool there unless a
// token has finer scopes too.
const scopeMCP = "mcp"

// MCPScopes are the scopes of the tools of the MCP endpoint.
func MCPScopes() []string {
	return []string{"communication:read", "communication:manage", "session:collaborate", "runtime:read", "runtime:execute", "operator:ask"}
}

// harnessSpec is what a harness task keeps of the configuration and of its
// token; only the token's hash is stored.
type harnessSpec struct {
	TokenHash string   `json:"token_sha256,omitempty"`
	Scopes    []string `json:"scopes,omitempty"`
}

// CreateTask opens a task for a harness and gives its token, once. ErrConflict
// when the id is taken.
func (e *Engine) CreateTask(_ context.Context, t NewTask, actor string) (taskID, token string, err error) {
	if t.TaskID == "" {
		t.TaskID = newUUID()
	}
	if n := utf8.RuneCountInString(t.TaskID); n > maxID || !utf8.ValidString(t.TaskID) {
		return "", "", fmt.Errorf("task_id must have 1 to %d characters of valid UTF-8, it has %d: %w", maxID, n, ErrInvalid)
	}
	if t.Objective == "" {
		return "", "", fmt.Errorf("objective must not be empty: %w", ErrInvalid)
	}
	if err := knownScopes(t.Scopes); err != nil {
		return "", "", err
	}
	if t.Intent != nil {
		if err := t.Intent.Valid(); err != nil {
			return "", "", err
		}
	}
	if t.Plan != nil {
		var steps []json.RawMessage
		if err := json.Unmarshal(t.Plan, &steps); err != nil {
			return "", "", fmt.Errorf("plan must be an array of steps: %w", ErrInvalid)
		}
	}
	if err := e.opts.Store.Healthy(); err != nil {
		return "", "", unavailable(err)
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	token = hex.EncodeToString(secret[:])
	scopes := t.Scopes
	if len(scopes) == 0 {
		scopes = Scopes()
	}
	return t.TaskID, token, e.openTask(t, harnessSpec{TokenHash: tokenHash(token), Scopes: scopes}, actor)
}

func (e *Engine) openTask(t NewTask, hs harnessSpec, actor string) error {
	a, fresh := e.reserve(t.TaskID)
	if !fresh {
		return fmt.Errorf("task %q exists: %w", t.TaskID, ErrConflict)
	}
	opened := false
	defer func() {
		if !opened {
			e.mu.Lock()
			delete(e.missions, a.id)
			e.mu.Unlock()
		}
		a.mu.Unlock()
	}()
	if _, err := e.opts.Store.Mission(context.Background(), t.TaskID); err == nil {
		return fmt.Errorf("task %q exists: %w", t.TaskID, ErrConflict)
	}
	spec, err := json.Marshal(struct {
		spec
		Harness harnessSpec `json:"harness"`
	}{e.harnessDefaults(), hs})
	if err != nil {
		return err
	}
	o := mission.Opened{V: 1, JournalUUID: newUUID(), Origin: mission.OriginLocal, Runtime: "harness", RuntimeName: "harness",
		Objective: t.Objective, Spec: spec, Harness: true, Intent: t.Intent, Plan: t.Plan}
	e.stamp(&o)
	a.m = mission.Mission{ID: t.TaskID}
	a.head = journal.Genesis(t.TaskID, o.JournalUUID)
	a.agent = e.noAgent
	close(a.done)
	if err := a.commitLocked(func(*mission.Mission) ([]mission.Fact, error) { return []mission.Fact{o}, nil }, nil); err != nil {
		return err
	}
	opened = true
	if e.rules().Digest() != o.Rules { // a reload came in between
		e.goRun(func(context.Context) { e.adoptRules(a) })
	}
	e.rememberToken(&a.m)
	e.log.Info("task opened for a harness", "task", t.TaskID, "actor", actor)
	return nil
}

// stamp writes into an opening what the gate works with.
func (e *Engine) stamp(o *mission.Opened) {
	r := e.rules()
	o.Mode, o.Rules, o.Policy, o.Stages = r.Mode(), r.Digest(), r.PolicyText(), r.Stages()
}

// harnessDefaults are the limits of a task without an agent block.
func (e *Engine) harnessDefaults() spec {
	g := e.conf.Load().Governance
	return spec{MaxCostMicro: g.Budget.MaxCostMicroUSD, MaxTokens: g.Budget.MaxTokens, QuestionTimeout: g.ApprovalTimeout, Hold: g.ApprovalHold}
}

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte("airlock.task-token.v1\x00" + token))
	return hex.EncodeToString(sum[:])
}

// TaskToken says whether a token is the task's, and what it is good for.
func (e *Engine) TaskToken(ctx context.Context, taskID, token string) (scopes []string, ok bool) {
	m, err := e.find(ctx, taskID)
	if err != nil || !m.Harness {
		_ = tokenHash(token) // a task that does not exist takes as long
		return nil, false
	}
	had, err := harnessToken(m)
	if err != nil || had.TokenHash == "" {
		return nil, false
	}
	return had.Scopes, subtle.ConstantTimeCompare([]byte(tokenHash(token)), []byte(had.TokenHash)) == 1
}

// harnessToken is the token that a task has now.
func harnessToken(m *mission.Mission) (harnessSpec, error) {
	if t := m.Task.Token; t != nil {
		return harnessSpec{TokenHash: t.SHA256, Scopes: t.Scopes}, nil
	}
	var s struct {
		Harness harnessSpec `json:"harness"`
	}
	err := json.Unmarshal(m.Spec, &s)
	return s.Harness, err
}

// TaskOfToken finds the task whose token it is, and the scopes that it has at
// the MCP endpoint: none, for a token that is good elsewhere only. ok is false
// when it is no task's token, or is one no more.
func (e *Engine) TaskOfToken(ctx context.Context, token string) (taskID string, scopes []string, ok bool) {
	id, known := e.tokens.Load(tokenHash(token))
	if !known {
		return "", nil, false
	}
	all, ok := e.TaskToken(ctx, id.(string), token)
	if !ok {
		return "", nil, false
	}
	for _, s := range MCPScopes() {
		if slices.Contains(all, s) {
			scopes = append(scopes, s)
		}
	}
	if len(scopes) == 0 && slices.Contains(all, scopeMCP) {
		scopes = MCPScopes()
	}
	return id.(string), scopes, true
}

// rememberToken makes the token that a task has now findable, and nothing more:
// whether a token is in force only the task's own state says (harnessToken).
func (e *Engine) rememberToken(m *mission.Mission) {
	if had, err := harnessToken(m); err == nil && had.TokenHash != "" {
		e.tokens.Store(had.TokenHash, m.ID)
	}
}

// SetIntent puts another envelope in force; every verdict before it is void and
// what waits is judged again before this returns.
func (e *Engine) SetIntent(ctx context.Context, taskID string, env *governance.Envelope, actor string) error {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return err
	}
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		return mission.Govern(m.Task.SetIntent(e.guard(a, m), env, actor))
	}, nil)
	if err != nil {
		return err
	}
	e.rejudge(ctx, a)
	return nil
}

// SetPlan replaces the plan that status shows: an array of steps.
func (e *Engine) SetPlan(ctx context.Context, taskID string, plan json.RawMessage, actor string) error {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return err
	}
	return a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		facts, err := m.Task.SetPlan(e.guard(a, m), plan, actor)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return mission.Govern(facts, nil)
	}, nil)
}

// TaskStatus is a task as operators see it, ended ones too.
func (e *Engine) TaskStatus(ctx context.Context, taskID string) (governance.Status, error) {
	m, err := e.find(ctx, taskID)
	if err != nil {
		return governance.Status{}, err
	}
	s := governance.Status{TaskID: m.ID, Mode: e.rules().Mode(), StateReason: m.Reason, Epoch: m.Epoch, Objective: m.Objective,
		Boundary: "none", NotEvaluated: e.rules().NotEvaluated(), AuditErrors: []string{}}
	m.Task.Fill(&s)
	sp, err := frozen(m.Spec)
	if err != nil {
		return s, fmt.Errorf("spec of task %q: %w", taskID, err)
	}
	s.Budget = governance.BudgetState{CurrentCost: float64(m.CostMicro) / 1e6, CurrentTokens: m.Tokens}
	if sp.MaxCostMicro > 0 {
		usd := float64(sp.MaxCostMicro) / 1e6
		s.Budget.MaxCost = &usd
	}
	if sp.MaxTokens > 0 {
		s.Budget.MaxTokens = &sp.MaxTokens
	}
	switch {
	case m.Terminal():
		s.State = "ENDED"
	case m.Latched():
		s.State = "STOPPED"
	case m.Paused:
		s.State, s.StateReason = "PAUSED", m.PausedReason
	default:
		s.State = "RUNNING"
	}
	if m.Harness {
		s.Boundary = "harness"
	}
	if head, err := e.opts.Store.Head(ctx, taskID); err == nil {
		s.Head = governance.HeadState{Sequence: head.Sequence, Digest: head.Digest.String()}
	}
	if a := e.actor(taskID); a != nil {
		a.overlay(&s)
	}
	return s, nil
}
