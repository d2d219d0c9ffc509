package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/mission"
)

// Dispatch is a mission that somebody asks for. The executor and the API fill
// it from decoded bodies.
type Dispatch struct {
	MissionID    string // 1 to 300 characters; empty: the engine makes one (local only)
	Origin       mission.Origin
	Objective    string
	Completion   string
	SessionID    string
	LongRunning  bool
	AgentID      string   // empty: choose
	Capabilities []string // all of them must be provided by the chosen agent
	Metadata     json.RawMessage
	// Payload is the canonical form of what was asked, to tell a repeated
	// dispatch from another one under the same id.
	Payload []byte
}

// Accepted answers a dispatch. It is durable before it is given.
type Accepted struct {
	MissionID      string
	EstimatedStart time.Time
	// Duplicate says that the mission was known already: nothing was started.
	Duplicate bool
	// Differs says that a live mission of this id was asked for with another
	// payload; the running one goes on.
	Differs bool
}

// RefusalKind is why a dispatch was refused (rulings 1).
type RefusalKind int

// The kinds of refusal.
const (
	_                     RefusalKind = iota
	RefusedConflict                   // 409: terminal already, with another payload
	RefusedUnknownAgent               // 404: the named agent is unknown
	RefusedUnhealthyAgent             // the named agent is known and takes no missions: 404 for the orchestrator, 503 else
	RefusedNoAgent                    // 503: no healthy agent that fits
	RefusedUnavailable                // 503: the store is down, or the host drains
	RefusedQueueFull                  // 503: every fitting agent's queue is full
	RefusedInvalid                    // 400
)

// Refusal is why a dispatch was refused; nothing was journalled.
type Refusal struct {
	Kind   RefusalKind
	Agent  string // the named agent, if one was named
	Detail string // for the operator
}

func (r *Refusal) Error() string { return fmt.Sprintf("dispatch refused: %s", r.Detail) }

// Errors that callers decide on.
var (
	// ErrNotFound: no such mission, question or session.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the mission's state does not allow it, or somebody was first.
	ErrConflict = errors.New("conflict")
	// ErrUnavailable: the store cannot commit, or the cell does not answer.
	ErrUnavailable = errors.New("unavailable")
)

// AgentView is how an agent block is now.
type AgentView struct {
	Name         string   `json:"name"`
	Isolation    string   `json:"isolation"`
	Runtime      string   `json:"runtime"`
	Healthy      bool     `json:"healthy"`
	Reason       string   `json:"reason"` // why not
	Capabilities []string `json:"capabilities"`
	Slots        int      `json:"slots"`
	Running      int      `json:"running"`
	Queued       int      `json:"queued"`
	QueueLimit   int      `json:"queue_limit"`
	Warm         int      `json:"warm"`
	Notes        []string `json:"notes"` // what status must say out loud, e.g. limits that are not enforced
}

// Owned is a mission that the orchestrator is told of at a resync.
type Owned struct {
	MissionID    string
	CheckpointID string
	State        mission.State
	// Away: it ran when the host went away, and is not found again yet. Once it
	// is, the journal says so, and with it the outbox.
	Away bool
	// True is the event that restates the mission's true state: started,
	// hitl_required, paused, suspended or assigned.
	True mission.WireEvent
}

// The engine's methods, for those who call it through an interface of their own:
//
//	Accept(ctx, Dispatch) (Accepted, error)                    // error is *Refusal, or ErrUnavailable
//	Pause(ctx, missionID, actor, reason string) error          // returns once nothing of the mission runs
//	Resume(ctx, missionID, actor, reason string) error
//	Abort(ctx, missionID, actor, by, reason string) error      // by: "operator" | "system"; returns once the stop latch holds; mission.aborted follows
//	Answer(ctx, hitlID, actor, text string) error              // returns once the answer is written to the session
//	Mission(ctx, id string) (mission.View, error)
//	Missions(ctx, store.MissionFilter) ([]mission.View, string, error)
//	Questions() []mission.Question
//	Agents() []AgentView
//	Capabilities() []string                                    // sorted, in the contract's vocabulary, of healthy agents
//	CapabilitiesChanged() <-chan struct{}                      // closed at the next change
//	Owned() []Owned                                            // live missions of origin orchestrator, oldest first
//	TrueState(ctx, missionID string) (mission.WireEvent, error) // of any mission, terminal ones too
//	Session(sessionID string) (*session.Session, error)        // log, input, resize, signal of a live or ended session
//	Suspend(ctx) error                                          // planned shutdown: every live mission is suspended
//	Drain(ctx) / Close()
