package api

import (
	"errors"
	"net/http"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// notEvaluated stands where no stage of a gate has looked (governance O11):
// what is missing is never filled in.
const notEvaluated = "not_evaluated"

// taskStatus is governance 3F. What this host does not evaluate yet is null or
// "not_evaluated", never a zero that looks measured.
type taskStatus struct {
	TaskID      string         `json:"task_id"`
	Mode        *string        `json:"mode"`
	State       mission.State  `json:"state"`
	StateReason string         `json:"state_reason"`
	Epoch       *uint64        `json:"epoch"`
	Objective   string         `json:"objective"`
	Intent      any            `json:"intent"`
	Plan        any            `json:"plan"`
	Findings    string         `json:"findings"`
	Risk        string         `json:"risk"`
	Budget      taskBudget     `json:"budget"`
	Actions     any            `json:"actions"`
	Approvals   any            `json:"pending_approvals"`
	Running     any            `json:"running"`
	Counters    map[string]any `json:"counters"`
	Revocation  any            `json:"revocation"`
	Unresolved  any            `json:"unresolved"`
	AuditErrors any            `json:"audit_errors"`
	Head        taskHead       `json:"head"`
	// Beyond 3F: the mission itself and what it asks a human.
	Mission   mission.View       `json:"mission"`
	Questions []mission.Question `json:"questions"`
}

type taskBudget struct {
	MaxCost       *float64 `json:"max_cost"`
	CurrentCost   float64  `json:"current_cost"`
	MaxTokens     *int64   `json:"max_tokens"`
	CurrentTokens int64    `json:"current_tokens"`
	Reserved      *float64 `json:"reserved"`
}

type taskHead struct {
	Sequence uint64         `json:"sequence"`
	Digest   journal.Digest `json:"digest"`
}

var counters = []string{"proposed", "allowed", "warned", "blocked", "challenged", "paused", "suspended", "executed", "completed", "failed"}

func (s *Server) taskStatus(w http.ResponseWriter, r *http.Request, op *Operator) error {
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	st, err := s.status(r, v)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, st)
}

func (s *Server) status(r *http.Request, v mission.View) (taskStatus, error) {
	head, err := s.opts.Events.Head(r.Context(), v.TaskID)
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, engine.ErrNotFound) {
		return taskStatus{}, err
	}
	st := taskStatus{
		TaskID: v.TaskID, State: v.State, StateReason: v.StateReason, Objective: v.Objective,
		Findings: notEvaluated, Risk: notEvaluated,
		Budget:   taskBudget{CurrentCost: v.CostUSD, CurrentTokens: v.Tokens},
		Counters: map[string]any{}, Head: taskHead{head.Sequence, head.Digest},
		Mission: v, Questions: []mission.Question{},
	}
	for _, name := range counters {
		st.Counters[name] = nil
	}
	for _, q := range s.opts.Engine.Questions() {
		if q.MissionID == v.MissionID {
			st.Questions = append(st.Questions, q)
		}
	}
	return st, nil
}
