// Package mirror keeps missions.json, the file in which the older sandbox had
// its missions in flight, and imports that sandbox's own. It imports nothing
// of the host.
//
// The one idea: the file is a copy for others to read. It follows the store,
// never the other way round, and never holds up a commit.
package mirror

import "time"

// FileName is the mirror's name in the data directory.
const FileName = "missions.json"

// Record is one mission in flight, with the older file's keys and words.
type Record struct {
	MissionID    string    `json:"mission_id"`
	Objective    string    `json:"objective"`
	Completion   string    `json:"completion"`
	State        string    `json:"state"` // State gives the words
	PTYSessionID *string   `json:"pty_session_id"`
	CheckpointID *string   `json:"checkpoint_id"`
	CrashLoop    bool      `json:"crash_loop"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// states are the older file's words for the wire's.
var states = [...][2]string{
	{"assigned", "assigned"},
	{"running", "running"},
	{"hitl-required", "hitl_required"},
	{"paused", "running"}, // the older file knows no pause
	{"suspended", "suspended"},
	{"done", "completed"},
	{"failed", "failed"},
	{"aborted", "aborted"},
}

// State gives the older file's word for a state in the wire's words.
func State(wire string) string {
	for _, s := range states {
		if s[0] == wire {
			return s[1]
		}
	}
	return wire
}

// InFlight says whether a mission in this state (the older file's word) goes
// on, so that it is in the file.
func InFlight(state string) bool {
	switch state {
	case "assigned", "running", "hitl_required", "suspended":
		return true
	}
	return false
}

// text is nil for the empty string: the older file has null there.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// New makes a record from the wire's words.
func New(missionID, objective, completion, wireState, ptySessionID, checkpointID string, crashLoop bool, createdAt, updatedAt time.Time) Record {
	return Record{
		MissionID: missionID, Objective: objective, Completion: completion, State: State(wireState),
		PTYSessionID: text(ptySessionID), CheckpointID: text(checkpointID), CrashLoop: crashLoop,
		CreatedAt: createdAt.UTC(), UpdatedAt: updatedAt.UTC(),
	}
}
