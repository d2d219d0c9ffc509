// Package mission is the domain of one mission: its state, the facts that
// change it, and the rules that turn a command into facts. It is pure: it
// imports journal for the kinds of events, governance for the task's side, and
// nothing that does I/O.
//
// The one idea: Decide-functions (decide.go) look at a Mission and answer with
// facts or refuse; Apply (apply.go) is the only thing that changes a Mission;
// a fact is an event's payload, so a Mission can be built again from its
// journal. Effects belong to the engine.
package mission

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// ErrIllegal says that the mission's state does not allow the command.
var ErrIllegal = errors.New("the mission's state does not allow it")

// ErrStale says that the command belongs to an older generation.
var ErrStale = errors.New("it belongs to an older generation")

// Phase is how far the mission's process is; State is what the wire says.
type Phase string

// The phases.
const (
	PhaseQueued   Phase = "queued"   // nothing was asked of a driver
	PhaseStarting Phase = "starting" // a driver may have been asked (write-ahead)
	PhaseLive     Phase = "live"     // the session was started
	PhaseBetween  Phase = "between"  // the session has ended, and another one follows
	PhaseEnded    Phase = "ended"
)

// Mission is everything that the host knows of a mission. It is a value that
// is stored as JSON and can be built again from the journal.
type Mission struct {
	V           int             `json:"v"`
	ID          string          `json:"id"`
	Origin      Origin          `json:"origin"`
	JournalUUID string          `json:"journal_uuid"`
	Agent       string          `json:"agent"`
	Isolation   string          `json:"isolation"`
	Runtime     string          `json:"runtime"`
	RuntimeName string          `json:"runtime_name"` // the runtime plugin's name, the wire's agent_runtime
	Objective   string          `json:"objective"`
	Completion  string          `json:"completion,omitempty"`
	SessionHint string          `json:"session_hint,omitempty"`
	LongRunning bool            `json:"long_running,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	// PayloadDigest tells a repeated dispatch from another one (SHA-256, hex).
	PayloadDigest string          `json:"payload_digest,omitempty"`
	Spec          json.RawMessage `json:"spec,omitempty"` // the agent block as it was at the start

	Phase      Phase  `json:"phase"`
	State      State  `json:"state"`
	Reason     string `json:"reason,omitempty"`
	Generation uint64 `json:"generation"`
	Epoch      uint64 `json:"epoch"`

	CellID      string `json:"cell_id,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`
	BootID      string `json:"boot_id,omitempty"` // of the machine when the cell was asked for
	SessionID   string `json:"session_id,omitempty"`

	Paused       bool   `json:"paused,omitempty"`
	PausedReason string `json:"paused_reason,omitempty"`
	Suspended    bool   `json:"suspended,omitempty"`
	CheckpointID string `json:"checkpoint_id,omitempty"`
	Stop         *Stop  `json:"stop,omitempty"`

	// Harness says that the agent runs outside of any cell and speaks over the
	// harness API; such a task does not end, it is stopped and restarted.
	Harness bool `json:"harness,omitempty"`
	// Task is the governed side: proposals, decisions, calls, access.
	Task governance.Task `json:"task,omitzero"`

	Questions []Question `json:"questions,omitempty"` // open ones, oldest first
	// Closed are the ids of questions that were closed, the newest last: a
	// replayed question is not asked again, and a late answer is a conflict.
	Closed   []string  `json:"closed,omitempty"`
	Progress *Progress `json:"progress,omitempty"`

	// Next says when the next session is started, in PhaseBetween.
	Next Next `json:"next,omitempty"`
	// RenewReason is why the last session ended, where another one follows.
	RenewReason string `json:"renew_reason,omitempty"`
	// Lost are calls whose session ended before they did, until the agent has
	// evidently gone on.
	Lost []LostCall `json:"lost,omitempty"`
	// Parked is how long the mission has waited between sessions, in all; the
	// current wait began at BetweenSince.
	Parked       time.Duration `json:"parked,omitempty"`
	BetweenSince *time.Time    `json:"between_since,omitempty"`
	// Replies are answers to questions of the runtime, the newest last, until the
	// mission ends. They are not in the journal: a human may have said what is not
	// to be kept.
	Replies []Reply `json:"replies,omitempty"`

	// Resumes counts unplanned restarts since the mission last made progress.
	Resumes      int    `json:"resumes,omitempty"`
	ResumeOffset uint64 `json:"resume_offset,omitempty"` // output at the last restart
	ResumeCalls  int    `json:"resume_calls,omitempty"`  // completed calls at the last restart

	ExitCode  *int       `json:"exit_code,omitempty"`
	Error     string     `json:"error,omitempty"`
	Summary   string     `json:"summary,omitempty"`
	AbortedBy string     `json:"aborted_by,omitempty"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	Tokens    int64      `json:"tokens,omitempty"`
	CostMicro int64      `json:"cost_micro,omitempty"`

	// Sequence is of the event that a stored mission is behind; 0: its last one.
	Sequence uint64 `json:"sequence,omitempty"`

	EstimatedStart time.Time  `json:"estimated_start"`
	CreatedAt      time.Time  `json:"created_at"`
	StartedAt      *time.Time `json:"started_at,omitempty"`
	EndedAt        *time.Time `json:"ended_at,omitempty"`
	UpdatedAt      time.Time  `json:"updated_at"`
}

// Stop is the stop latch.
type Stop struct {
	ID     string `json:"id"`
	Actor  string `json:"actor"`
	By     string `json:"by"` // "operator" | "system", the wire's aborted_by
	Reason string `json:"reason"`
	// Fail is set when the ladder must end in mission.failed: the reason word
	// (timeout, idle, budget).
	Fail string `json:"fail,omitempty"`
	// Restored: nobody stopped it; a harness task comes back stopped (seed 003).
	Restored bool `json:"restored,omitempty"`
	// Final: a harness task ends with it and cannot be restarted.
	Final bool `json:"final,omitempty"`
	// Done: the ladder is through and its receipt is in the journal.
	Done bool `json:"done,omitempty"`
}

// Next is when the next session of a mission is started.
type Next string

// When a session follows another one.
const (
	NextNow     Next = "now"     // at once
	NextDecided Next = "decided" // when nothing of the mission waits for a human
)

// LostCall is a call that was admitted and whose end nobody knows.
type LostCall struct {
	ProposalID   string `json:"proposal_id"`
	InvocationID string `json:"invocation_id"`
	Tool         string `json:"tool_name"`
	Generation   uint64 `json:"generation"` // of its session
}

// Reply is a human's answer to a question.
type Reply struct {
	HITLID string `json:"hitl_id"`
	Text   string `json:"text"`
}

// Reply finds the answer to a question that was answered.
func (m *Mission) Reply(hitlID string) (string, bool) {
	for _, r := range m.Replies {
		if r.HITLID == hitlID {
			return r.Text, true
		}
	}
	return "", false
}

// Artifact is something that a mission made.
type Artifact struct {
	Path        string `json:"path"`
	Description string `json:"description,omitempty"`
}

// Terminal says that nothing follows.
func (m *Mission) Terminal() bool { return m.State.Terminal() }

// Latched says that the stop latch is set.
func (m *Mission) Latched() bool { return m.Stop != nil }

// CameBackStopped says that only a restart of the host has stopped a harness
// task, and nobody since.
func (m *Mission) CameBackStopped() bool {
	return m.Stop != nil && m.Stop.Restored && m.Stop.Done && m.Stop.By == "system"
}

// Question finds an open question.
func (m *Mission) Question(hitlID string) (Question, bool) {
	for _, q := range m.Questions {
		if q.HITLID == hitlID {
			return q, true
		}
	}
	return Question{}, false
}

// View is the mission as others read it.
func (m *Mission) View() View {
	v := View{
		MissionID: m.ID, TaskID: m.ID, Origin: m.Origin, Agent: m.Agent,
		Isolation: m.Isolation, Runtime: m.Runtime, State: m.State, StateReason: m.Reason,
		ExitCode: m.ExitCode, PTYSessionID: m.SessionID, CheckpointID: m.CheckpointID,
		Objective: m.Objective, CreatedAt: m.CreatedAt, StartedAt: m.StartedAt, EndedAt: m.EndedAt,
		Error: m.Error, Progress: m.Progress, Tokens: m.Tokens, CostUSD: float64(m.CostMicro) / 1e6,
	}
	switch {
	case m.Terminal():
	case m.Stop != nil && m.Stop.Done:
		v.WaitingFor = "restart"
	case m.Stop != nil:
		v.WaitingFor = "stop"
	case m.Paused:
		v.WaitingFor = "operator"
	case len(m.Questions) > 0:
		v.WaitingFor = "answer"
	case m.Phase == PhaseQueued:
		v.WaitingFor = "slot"
	case m.Phase == PhaseStarting, m.Phase == PhaseBetween:
		v.WaitingFor = "cell"
	}
	return v
}

// settle works the wire's state out of the parts.
func (m *Mission) settle() {
	switch {
	case m.State.Terminal():
	case m.Suspended:
		m.State = StateSuspended
	case m.Paused, m.Harness && m.Stop != nil:
		m.State = StatePaused
	case len(m.Questions) > 0:
		m.State = StateHITL
	case m.StartedAt != nil: // between two sessions too
		m.State = StateRunning
	default:
		m.State = StateAssigned
	}
}
