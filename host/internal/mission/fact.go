package mission

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// Fact is one thing that happened; it is the payload of one event.
type Fact interface{ Kind() journal.Kind }

type (
	// Opened: the mission is known (task_opened). It carries what never changes.
	Opened struct {
		V             int             `json:"v"`
		JournalUUID   string          `json:"journal_uuid"`
		Origin        Origin          `json:"origin"`
		Agent         string          `json:"agent"`
		Isolation     string          `json:"isolation"`
		Runtime       string          `json:"runtime"`
		RuntimeName   string          `json:"runtime_name"`
		Objective     string          `json:"objective"`
		Completion    string          `json:"completion,omitempty"`
		SessionHint   string          `json:"session_hint,omitempty"`
		LongRunning   bool            `json:"long_running,omitempty"`
		Metadata      json.RawMessage `json:"metadata,omitempty"`
		PayloadDigest string          `json:"payload_digest,omitempty"`
		Spec          json.RawMessage `json:"spec,omitempty"`

		// What the gate works with (W16).
		Harness bool                 `json:"harness,omitempty"`
		Intent  *governance.Envelope `json:"intent,omitempty"`
		Plan    json.RawMessage      `json:"plan,omitempty"`
		Mode    string               `json:"mode,omitempty"`
		Rules   string               `json:"rules_digest,omitempty"`
		Policy  string               `json:"policy,omitempty"`
		Stages  []string             `json:"stages,omitempty"`
	}
	// Assigned: it waits for its start.
	Assigned struct {
		V              int       `json:"v"`
		EstimatedStart time.Time `json:"estimated_start"`
		Again          bool      `json:"again,omitempty"` // after a restart
	}
	// Starting: a driver is about to be asked (write-ahead).
	Starting struct {
		V           int    `json:"v"`
		Generation  uint64 `json:"generation"`
		CellID      string `json:"cell_id"`
		Incarnation uint64 `json:"incarnation"`
		SessionID   string `json:"session_id"`
		BootID      string `json:"boot_id"`
		// Plugins are the programs that it is about to be run with.
		Plugins []Build `json:"plugins,omitempty"`
	}
	// Build is one plugin's program, as it was launched.
	Build struct {
		Ref     string `json:"ref"`
		Version string `json:"version,omitempty"`
		SHA256  string `json:"sha256"`
	}
	// Started: the session runs.
	Started struct {
		V            int    `json:"v"`
		Generation   uint64 `json:"generation"`
		AgentRuntime string `json:"agent_runtime"`
		SessionID    string `json:"session_id"`
	}
	// Progressed: the runtime says how far it is.
	Progressed struct {
		V int `json:"v"`
		Progress
		// What the mission has used in all; such a progress is the host's own and
		// not told to the orchestrator.
		Tokens    int64 `json:"tokens_total,omitempty"`
		CostMicro int64 `json:"cost_micro_usd_total,omitempty"`
		// Goal: it comes from a checkpoint of the mission's goal, not from the runtime.
		Goal bool `json:"goal,omitempty"`
	}
	// Asked: a human is asked.
	Asked struct {
		V int `json:"v"`
		Question
		Again bool `json:"again,omitempty"` // shown again after a restart
	}
	// Answered: a question is closed.
	Answered struct {
		V       int    `json:"v"`
		HITLID  string `json:"hitl_id"`
		Outcome string `json:"outcome"` // answered | expired | withdrawn
		Actor   string `json:"actor,omitempty"`
	}
	// Paused: an operator holds the mission.
	Paused struct {
		V      int    `json:"v"`
		Epoch  uint64 `json:"epoch"`
		Actor  string `json:"actor"`
		Reason string `json:"reason"`
		Again  bool   `json:"again,omitempty"`
	}
	// ReplanAsked: an operator wants another plan; nothing is dispatched until an
	// explicit resume (C6).
	ReplanAsked struct {
		V      int    `json:"v"`
		Epoch  uint64 `json:"epoch"`
		Actor  string `json:"actor"`
		Reason string `json:"reason,omitempty"`
	}
	// Resumed: it goes on.
	Resumed struct {
		V     int    `json:"v"`
		From  string `json:"resumed_from"` // paused | suspended
		Actor string `json:"actor,omitempty"`
	}
	// Stopped: the stop latch is set.
	Stopped struct {
		V     int    `json:"v"`
		Epoch uint64 `json:"epoch"`
		Stop
	}
	// StopAcknowledged: the stop ladder is through; carries the receipt.
	StopAcknowledged struct {
		V       int             `json:"v"`
		StopID  string          `json:"stop_id"`
		Receipt json.RawMessage `json:"receipt"`
	}
	// Suspended: the host goes away on purpose. With Next it is the session alone
	// that has ended, and another one of the mission follows; the orchestrator is
	// not told of that.
	Suspended struct {
		V            int    `json:"v"`
		CheckpointID string `json:"checkpoint_id"`
		Reason       string `json:"reason"`
		Next         Next   `json:"next,omitempty"`
		Resumes      int    `json:"resumes,omitempty"`
	}
	// Reconnected: the host is back.
	Reconnected struct {
		V            int    `json:"v"`
		CheckpointID string `json:"checkpoint_id"`
		Planned      bool   `json:"planned"`
		Epoch        uint64 `json:"epoch,omitempty"`
		Resumes      int    `json:"resumes"`
		Offset       uint64 `json:"offset"` // output known at that moment
	}
	// Restarted: an operator lets a mission go on that came back latched.
	Restarted struct {
		V     int    `json:"v"`
		Epoch uint64 `json:"epoch"`
		Actor string `json:"actor"`
	}
	// Ended: the mission is over.
	Ended struct {
		V         int        `json:"v"`
		State     State      `json:"state"` // done | failed | aborted
		Reason    string     `json:"reason,omitempty"`
		Error     string     `json:"error,omitempty"`
		ExitCode  *int       `json:"exit_code,omitempty"`
		Summary   string     `json:"summary,omitempty"`
		AbortedBy string     `json:"aborted_by,omitempty"`
		Artifacts []Artifact `json:"artifacts,omitempty"`
		Tokens    int64      `json:"tokens_total,omitempty"`
	}
	// Gapped: output was lost.
	Gapped struct {
		V    int    `json:"v"`
		What string `json:"what"` // "output" | "dispatch"
		From uint64 `json:"from,omitempty"`
		To   uint64 `json:"to,omitempty"`
		Note string `json:"note,omitempty"`
	}
)

// Kind gives the kind of event that the fact is the payload of.
func (Opened) Kind() journal.Kind           { return journal.TaskOpened }
func (Assigned) Kind() journal.Kind         { return journal.Assigned }
func (Starting) Kind() journal.Kind         { return journal.Starting }
func (Started) Kind() journal.Kind          { return journal.Started }
func (Progressed) Kind() journal.Kind       { return journal.Progress }
func (Asked) Kind() journal.Kind            { return journal.Question }
func (Answered) Kind() journal.Kind         { return journal.Answered }
func (Paused) Kind() journal.Kind           { return journal.Paused }
func (ReplanAsked) Kind() journal.Kind      { return journal.ReplanRequested }
func (Resumed) Kind() journal.Kind          { return journal.Resumed }
func (Stopped) Kind() journal.Kind          { return journal.Stop }
func (StopAcknowledged) Kind() journal.Kind { return journal.StopAcknowledged }
func (Suspended) Kind() journal.Kind        { return journal.Suspended }
func (Reconnected) Kind() journal.Kind      { return journal.Reconnected }
func (Restarted) Kind() journal.Kind        { return journal.Restarted }
func (Ended) Kind() journal.Kind            { return journal.Ended }
func (Gapped) Kind() journal.Kind           { return journal.Gap }

// Decode reads a fact from an event's payload. A kind that is no fact of a
// mission gives nil, nil.
func Decode(kind journal.Kind, payload string) (Fact, error) {
	switch kind {
	case journal.TaskOpened:
		return decode[Opened](kind, payload)
	case journal.Assigned:
		return decode[Assigned](kind, payload)
	case journal.Starting:
		return decode[Starting](kind, payload)
	case journal.Started:
		return decode[Started](kind, payload)
	case journal.Progress:
		return decode[Progressed](kind, payload)
	case journal.Question:
		return decode[Asked](kind, payload)
	case journal.Answered:
		return decode[Answered](kind, payload)
	case journal.Paused:
		return decode[Paused](kind, payload)
	case journal.ReplanRequested:
		return decode[ReplanAsked](kind, payload)
	case journal.Resumed:
		return decode[Resumed](kind, payload)
	case journal.Stop:
		return decode[Stopped](kind, payload)
	case journal.StopAcknowledged:
		return decode[StopAcknowledged](kind, payload)
	case journal.Suspended:
		return decode[Suspended](kind, payload)
	case journal.Reconnected:
		return decode[Reconnected](kind, payload)
	case journal.Restarted:
		return decode[Restarted](kind, payload)
	case journal.Ended:
		return decode[Ended](kind, payload)
	case journal.Gap:
		return decode[Gapped](kind, payload)
	default:
		f, err := governance.Decode(kind, []byte(payload))
		if err != nil {
			return nil, fmt.Errorf("payload of a %s event: %w", kind, err)
		}
		return f, nil
	}
}

func decode[F Fact](kind journal.Kind, payload string) (Fact, error) {
	var f F
	if err := json.Unmarshal([]byte(payload), &f); err != nil {
		return nil, fmt.Errorf("payload of a %s event: %w", kind, err)
	}
	return f, nil
}
