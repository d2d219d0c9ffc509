package executor

import (
	"encoding/json"
	"time"

	"github.com/airlock-host/airlock/host/internal/store"
)

// envelope is the closed form of every event (contract, section 3).
type envelope struct {
	Event      string          `json:"event"`
	ExecutorID string          `json:"executor_id"`
	MissionID  string          `json:"mission_id,omitempty"`
	TS         string          `json:"ts"`
	Data       json.RawMessage `json:"data,omitempty"`
}

type resyncData struct {
	Owned           []string `json:"owned_mission_ids"`
	ProtocolVersion string   `json:"protocol_version"`
}

type reconnectedData struct {
	CheckpointID string `json:"checkpoint_id"` // may be empty
}

type resumedData struct {
	State       string `json:"state"`
	ResumedFrom string `json:"resumed_from"` // required: without it the data matches two shapes
}

// wireTime is RFC 3339, UTC, with milliseconds.
func wireTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (x *Executor) frame(event, missionID string, ts time.Time, data any) ([]byte, error) {
	var raw json.RawMessage
	switch d := data.(type) {
	case nil:
	case json.RawMessage:
		if len(d) > 0 && string(d) != "null" {
			raw = d
		}
	default:
		b, err := json.Marshal(d)
		if err != nil {
			return nil, err
		}
		raw = b
	}
	return json.Marshal(envelope{Event: event, ExecutorID: x.opt.ID, MissionID: missionID, TS: wireTime(ts), Data: raw})
}

func (x *Executor) itemFrame(it store.OutboxItem) ([]byte, error) {
	return x.frame(it.Event, it.MissionID, it.TS, json.RawMessage(it.Data))
}

// stateAfter is serve's state after an event; empty for one that moves nothing.
func stateAfter(event string) string {
	switch event {
	case "mission.assigned":
		return "assigned"
	case "mission.started", "mission.resumed", "mission.reconnected":
		return "running"
	case "mission.hitl_required":
		return "hitl-required"
	case "mission.paused":
		return "paused"
	case "mission.suspended":
		return "suspended"
	case "mission.completed":
		return "done"
	case "mission.failed":
		return "failed"
	case "mission.aborted":
		return "aborted"
	}
	return ""
}

func terminalEvent(event string) bool {
	return event == "mission.completed" || event == "mission.failed" || event == "mission.aborted"
}
