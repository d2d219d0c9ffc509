package mission

import (
	"encoding/json"
	"time"
)

// Wire gives the orchestrator's event for a fact, or none. after is the
// mission with the fact applied. The shapes are closed (executor contract,
// section 3): no extra keys, no nulls.
func Wire(f Fact, after *Mission, at time.Time) (WireEvent, bool) {
	switch f := f.(type) {
	case Assigned:
		return event("mission.assigned", at, wireAssigned{StateAssigned, stamp(f.EstimatedStart)})
	case Started:
		return event("mission.started", at, wireStarted{StateRunning, f.AgentRuntime, f.SessionID})
	case Progressed:
		if f.used() {
			return WireEvent{}, false
		}
		return event("mission.progress", at, f.Progress)
	case Asked:
		return event("mission.hitl_required", at, asked(f.Question))
	case Answered:
		if len(after.Questions) > 0 || after.State != StateRunning {
			return WireEvent{}, false
		}
		return event("mission.resumed", at, wireResumed{StateRunning, "paused"})
	case Paused:
		return event("mission.paused", at, wireReason{StatePaused, f.Reason})
	case ReplanAsked:
		return event("mission.paused", at, wireReason{StatePaused, "replan"})
	case Resumed:
		if after.StartedAt == nil {
			// serve's only word for "not held any more" before the start.
			return event("mission.assigned", at, wireAssigned{StateAssigned, stamp(after.EstimatedStart)})
		}
		return event("mission.resumed", at, wireResumed{StateRunning, f.From})
	case Suspended:
		if f.Next != "" {
			return WireEvent{}, false
		}
		return event("mission.suspended", at, wireSuspended{StateSuspended, f.CheckpointID, f.Reason})
	case Reconnected:
		return event("mission.reconnected", at, wireReconnected{f.CheckpointID})
	case Ended:
		return ended(f, at)
	default:
		return WireEvent{}, false
	}
}

func ended(f Ended, at time.Time) (WireEvent, bool) {
	switch f.State {
	case StateDone:
		return event("mission.completed", at, wireCompleted{f.State, f.ExitCode, f.Tokens, f.Summary, f.Artifacts})
	case StateFailed:
		return event("mission.failed", at, wireFailed{f.State, f.Reason, f.Error, f.ExitCode, f.Tokens})
	default:
		return event("mission.aborted", at, wireAborted{f.State, f.AbortedBy, f.Reason})
	}
}

// TrueState is the event that restates what the mission is now.
func (m *Mission) TrueState(at time.Time) WireEvent {
	var ev WireEvent
	switch m.State {
	case StateHITL:
		ev, _ = event("mission.hitl_required", at, asked(m.Questions[0]))
	case StatePaused:
		ev, _ = event("mission.paused", at, wireReason{m.State, m.PausedReason})
	case StateSuspended:
		ev, _ = event("mission.suspended", at, wireSuspended{m.State, m.CheckpointID, m.Reason})
	case StateRunning:
		ev, _ = event("mission.started", at, wireStarted{m.State, m.RuntimeName, m.SessionID})
	case StateDone, StateFailed, StateAborted:
		ev, _ = ended(Ended{State: m.State, Reason: m.Reason, Error: m.Error, ExitCode: m.ExitCode,
			Summary: m.Summary, AbortedBy: m.AbortedBy, Artifacts: m.Artifacts, Tokens: m.Tokens}, at)
	default:
		ev, _ = event("mission.assigned", at, wireAssigned{StateAssigned, stamp(m.EstimatedStart)})
	}
	return ev
}

type (
	wireAssigned struct {
		State          State  `json:"state"`
		EstimatedStart string `json:"estimated_start,omitempty"`
	}
	wireStarted struct {
		State        State  `json:"state"`
		AgentRuntime string `json:"agent_runtime"`
		PTYSessionID string `json:"pty_session_id,omitempty"`
	}
	wireAsked struct {
		HITLID    string `json:"hitl_id"`
		Prompt    string `json:"prompt"`
		Context   string `json:"context,omitempty"`
		ExpiresAt string `json:"expires_at,omitempty"`
	}
	wireReason struct {
		State  State  `json:"state"`
		Reason string `json:"reason,omitempty"`
	}
	wireResumed struct {
		State State  `json:"state"`
		From  string `json:"resumed_from"`
	}
	wireSuspended struct {
		State        State  `json:"state"`
		CheckpointID string `json:"checkpoint_id"`
		Reason       string `json:"reason,omitempty"`
	}
	wireReconnected struct {
		CheckpointID string `json:"checkpoint_id"`
	}
	wireCompleted struct {
		State     State      `json:"state"`
		ExitCode  *int       `json:"exit_code,omitempty"`
		Tokens    int64      `json:"tokens_total,omitempty"`
		Summary   string     `json:"summary,omitempty"`
		Artifacts []Artifact `json:"artifacts,omitempty"`
	}
	wireFailed struct {
		State    State  `json:"state"`
		Reason   string `json:"reason"`
		Error    string `json:"error,omitempty"`
		ExitCode *int   `json:"exit_code,omitempty"`
		Tokens   int64  `json:"tokens_total,omitempty"`
	}
	wireAborted struct {
		State     State  `json:"state"`
		AbortedBy string `json:"aborted_by,omitempty"`
		Reason    string `json:"reason,omitempty"`
	}
)

func asked(q Question) wireAsked {
	w := wireAsked{HITLID: q.HITLID, Prompt: q.Prompt, Context: q.Context}
	if q.ExpiresAt != nil {
		w.ExpiresAt = stamp(*q.ExpiresAt)
	}
	return w
}

func event(name string, at time.Time, data any) (WireEvent, bool) {
	text, err := json.Marshal(data)
	if err != nil {
		// The shapes above are strings and numbers only.
		panic(err)
	}
	return WireEvent{Event: name, TS: at, Data: text}, true
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
