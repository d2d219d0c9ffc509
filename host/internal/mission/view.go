package mission

import (
	"encoding/json"
	"time"
)

// State is a mission's state in the wire's words.
type State string

// The states.
const (
	StateAssigned  State = "assigned"
	StateRunning   State = "running"
	StateHITL      State = "hitl-required"
	StatePaused    State = "paused"
	StateSuspended State = "suspended"
	StateDone      State = "done"
	StateFailed    State = "failed"
	StateAborted   State = "aborted"
)

// Terminal says that nothing follows.
func (s State) Terminal() bool {
	return s == StateDone || s == StateFailed || s == StateAborted
}

// Origin is where a mission came from (rulings 3).
type Origin string

// The origins.
const (
	OriginOrchestrator Origin = "orchestrator"
	OriginLocal        Origin = "local"
)

// View is a mission as others read it (surface, "JSON that others read").
type View struct {
	MissionID    string     `json:"mission_id"`
	TaskID       string     `json:"task_id"`
	Origin       Origin     `json:"origin"`
	Agent        string     `json:"agent"`
	Isolation    string     `json:"isolation"`
	Runtime      string     `json:"runtime"`
	State        State      `json:"state"`
	StateReason  string     `json:"state_reason"`
	WaitingFor   string     `json:"waiting_for"`
	Error        string     `json:"error,omitempty"` // of a failed mission: what happened, in words
	ExitCode     *int       `json:"exit_code"`
	PTYSessionID string     `json:"pty_session_id"`
	CheckpointID string     `json:"checkpoint_id"`
	Objective    string     `json:"objective"`
	CreatedAt    time.Time  `json:"created_at"`
	StartedAt    *time.Time `json:"started_at"`
	EndedAt      *time.Time `json:"ended_at"`
	Progress     *Progress  `json:"progress"`
	CostUSD      float64    `json:"cost_usd"`
	Tokens       int64      `json:"tokens"`
}

// Progress is the last progress of a mission; absent fields are not known.
type Progress struct {
	Phase      string   `json:"phase,omitempty"`
	Iteration  *int64   `json:"iteration,omitempty"`
	TokensUsed *int64   `json:"tokens_used,omitempty"`
	Summary    string   `json:"summary,omitempty"`
	PctDone    *float64 `json:"pct_complete,omitempty"`
}

// Question is a question to a human that waits for its answer.
type Question struct {
	HITLID    string     `json:"hitl_id"`
	MissionID string     `json:"mission_id"`
	SessionID string     `json:"session_id,omitempty"`
	Prompt    string     `json:"prompt"`
	Context   string     `json:"context,omitempty"`
	Options   []string   `json:"options,omitempty"`
	AskedAt   time.Time  `json:"asked_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// ByMessage says that the runtime gets the answer as a message; else it is
	// typed into the session, or given to the process that asked.
	ByMessage bool `json:"by_message,omitempty"`
	// Source is who asks: "runtime" (the answer is typed into the session), "ask"
	// (a process that ran `airlock-cell ask`) or "approval" (the gate; the answer
	// is one of five verbs). SourceID is the id there.
	Source   string `json:"source,omitempty"`
	SourceID string `json:"source_id,omitempty"`
}

// SourceMCP is the source of a question that a call over MCP waits for.
const SourceMCP = "mcp"

// SourceRuntime is the source of a question that the runtime puts.
const SourceRuntime = "runtime"

// SourceApproval is the source of a question that stands for an approval; its
// hitl id is the decision's id.
const SourceApproval = "approval"

// WireEvent is an event for the orchestrator: a word and its closed data
// object (executor contract, section 3). Data is nil where there is none.
type WireEvent struct {
	Event string
	TS    time.Time
	Data  json.RawMessage
}
