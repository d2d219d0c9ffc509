package cli

import (
	"encoding/json"
	"strings"
	"time"
)

// The host's answers, as far as they are shown.

type mission struct {
	MissionID    string     `json:"mission_id"`
	Origin       string     `json:"origin"`
	Agent        string     `json:"agent"`
	Isolation    string     `json:"isolation"`
	Runtime      string     `json:"runtime"`
	State        string     `json:"state"`
	StateReason  string     `json:"state_reason"`
	WaitingFor   string     `json:"waiting_for"`
	Error        string     `json:"error"`
	ExitCode     *int       `json:"exit_code"`
	PTYSessionID string     `json:"pty_session_id"`
	CheckpointID string     `json:"checkpoint_id"`
	Objective    string     `json:"objective"`
	CreatedAt    time.Time  `json:"created_at"`
	StartedAt    *time.Time `json:"started_at"`
	EndedAt      *time.Time `json:"ended_at"`
	Progress     *progress  `json:"progress"`
	CostUSD      float64    `json:"cost_usd"`
	Tokens       int64      `json:"tokens"`
}

type progress struct {
	Phase   string   `json:"phase"`
	Summary string   `json:"summary"`
	Pct     *float64 `json:"pct_complete"`
}

// terminal says that nothing follows.
func (m *mission) terminal() bool {
	return m.State == "done" || m.State == "failed" || m.State == "aborted"
}

// outcome is how a mission ended, as an error unless it is done.
func (m *mission) outcome() error {
	if m.State == "done" {
		return nil
	}
	detail := m.StateReason
	if m.Error != "" && m.Error != detail {
		detail = strings.TrimPrefix(detail+": "+m.Error, ": ")
	}
	if detail == "" {
		detail = "no reason given"
	}
	return failf(ExitFailed, "mission %q ended %s: %s", m.MissionID, m.State, printable(detail))
}

type missions struct {
	Missions []json.RawMessage `json:"missions"`
	Next     *string           `json:"next"`
}

type question struct {
	HITLID    string    `json:"hitl_id"`
	MissionID string    `json:"mission_id"`
	Prompt    string    `json:"prompt"`
	Context   string    `json:"context"`
	Options   []string  `json:"options"`
	AskedAt   time.Time `json:"asked_at"`
	Source    string    `json:"source"`
}

// approval says that it is answered with airlock approve, not with text.
func (q *question) approval() bool { return q.Source == "approval" }

type event struct {
	Sequence  uint64          `json:"sequence"`
	TaskID    string          `json:"task_id"`
	Timestamp string          `json:"timestamp"`
	Kind      string          `json:"kind"`
	Payload   json.RawMessage `json:"payload"`
	Damaged   string          `json:"damaged"` // why it cannot be relied on
	raw       []byte
}

type agent struct {
	Name         string   `json:"name"`
	Isolation    string   `json:"isolation"`
	Runtime      string   `json:"runtime"`
	Healthy      bool     `json:"healthy"`
	Reason       string   `json:"reason"`
	Capabilities []string `json:"capabilities"`
	Slots        int      `json:"slots"`
	Running      int      `json:"running"`
	Queued       int      `json:"queued"`
	QueueLimit   int      `json:"queue_limit"`
	Notes        []string `json:"notes"`
}

type plugin struct {
	Ref          string            `json:"ref"`
	Name         string            `json:"name"`
	Kind         string            `json:"kind"`
	Driver       string            `json:"driver"`
	File         string            `json:"file"`
	Version      string            `json:"version"`
	Summary      string            `json:"summary"`
	State        string            `json:"state"`
	Code         string            `json:"code"`
	Reason       string            `json:"reason"`
	PID          int               `json:"pid"`
	SHA256       string            `json:"sha256"`
	Restarts     int               `json:"restarts"`
	LastExit     string            `json:"last_exit"`
	Attributes   map[string]string `json:"attributes"`
	Capabilities []string          `json:"capabilities"`
	Features     []string          `json:"features"`
	Contracts    []string          `json:"contracts"`
	Needs        []struct {
		What   string `json:"what"`
		Value  string `json:"value"`
		Reason string `json:"reason"`
	} `json:"needs"`
	Schema []struct {
		Name        string          `json:"name"`
		Type        string          `json:"type"`
		Default     json.RawMessage `json:"default"`
		Required    bool            `json:"required"`
		Sensitive   bool            `json:"sensitive"`
		Description string          `json:"description"`
	} `json:"schema"`
}
