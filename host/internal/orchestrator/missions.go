package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// Mission is a mission as serve knows it.
type Mission struct {
	MissionID     string  `json:"mission_id"`
	ExecutorID    string  `json:"executor_id"`
	State         string  `json:"state"`
	CreatedAt     string  `json:"created_at"`
	UpdatedAt     string  `json:"updated_at"`
	CompletedAt   string  `json:"completed_at,omitempty"`
	RecentEvents  []Event `json:"recent_events"` // the newest 50
	PTYSessionRef string  `json:"pty_session_ref,omitempty"`
	ExitCode      *int    `json:"exit_code,omitempty"`
	Error         string  `json:"error,omitempty"`
}

type record struct {
	Mission
	events []Event
	// end is the terminal frame seen since the last assignment.
	end string
}

func terminal(state string) bool { return state == "done" || state == "failed" || state == "aborted" }

// assign records a mission, or resets it; o.mu is held.
func (o *Orchestrator) assign(id, executorID string) *record {
	r := &record{Mission: Mission{
		MissionID: id, ExecutorID: executorID, State: "assigned", CreatedAt: o.now(), UpdatedAt: o.now(),
	}}
	o.missions[id] = r
	o.trim()
	o.touch()
	return r
}

// trim forgets the oldest ended missions beyond the limit; o.mu is held.
func (o *Orchestrator) trim() {
	for len(o.missions) > o.opt.MaxMissions && len(o.ended) > 0 {
		id := o.ended[0]
		o.ended = o.ended[1:]
		if r := o.missions[id]; r != nil && terminal(r.State) {
			delete(o.missions, id)
		}
	}
}

var stateOf = map[string]string{
	"mission.assigned": "assigned", "mission.started": "running", "mission.hitl_required": "hitl-required",
	"mission.paused": "paused", "mission.resumed": "running", "mission.suspended": "suspended",
	"mission.reconnected": "running", "mission.completed": "done", "mission.failed": "failed",
	"mission.aborted": "aborted",
}

// handleEvent is serve's table (contract 1.8): no terminal guard, no order, no
// ownership. o.mu is held.
func (o *Orchestrator) handleEvent(e Event) {
	if e.Event == "executor.resync" {
		o.resync(e)
		o.feed.add(e)
		return
	}
	r := o.missions[e.MissionID]
	e.Known = r != nil
	o.feed.add(e)
	if r == nil {
		o.dropped++
		return
	}
	state, moves := stateOf[e.Event]
	frame := e.Event + " " + string(e.Data) // sent again, it may have another time
	switch {
	case r.ExecutorID != e.ExecutorID:
		o.violate("ownership", fmt.Sprintf("%s of mission %q comes from another executor", e.Event, e.MissionID))
	case r.end != "" && r.end != frame:
		o.violate("after_terminal", fmt.Sprintf("mission %q: %s after %s", e.MissionID, frame, r.end))
	case terminal(state):
		r.end = frame
	}
	r.events = append(r.events, e)
	if over := len(r.events) - o.opt.KeepEvents; over > 0 {
		r.events = append([]Event(nil), r.events[over:]...)
	}
	r.UpdatedAt = e.TS
	if moves {
		r.State = state
	}
	var data struct {
		PTY      string `json:"pty_session_id"`
		ExitCode *int   `json:"exit_code"`
		Error    string `json:"error"`
	}
	_ = json.Unmarshal(e.Data, &data)
	switch {
	case e.Event == "mission.started" && data.PTY != "":
		r.PTYSessionRef = data.PTY
	case terminal(state):
		r.CompletedAt = e.TS
		o.ended = append(o.ended, e.MissionID)
		if e.Event != "mission.aborted" {
			r.ExitCode = data.ExitCode
		}
		if e.Event == "mission.failed" {
			r.Error = data.Error
		}
	}
}

// resync forces every owned mission that is known and not ended to running.
func (o *Orchestrator) resync(e Event) {
	var data struct {
		Owned []string `json:"owned_mission_ids"`
	}
	_ = json.Unmarshal(e.Data, &data)
	for _, id := range data.Owned {
		r := o.missions[id]
		if r == nil {
			continue
		}
		if r.end != "" {
			o.violate("resync_terminal", fmt.Sprintf("mission %q is in a resync after its end", id))
		}
		if !terminal(r.State) {
			r.State = "running"
		}
	}
}

// view is the mission with its newest events; o.mu is held.
func (r *record) view() Mission {
	m := r.Mission
	m.RecentEvents = slices.Clone(r.events[max(0, len(r.events)-50):])
	if m.RecentEvents == nil {
		m.RecentEvents = []Event{}
	}
	return m
}

// Mission reads a mission.
func (o *Orchestrator) Mission(id string) (Mission, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.missions[id]
	if r == nil {
		return Mission{}, false
	}
	return r.view(), true
}

// Events returns the events of a known mission since it was last assigned.
func (o *Orchestrator) Events(id string) []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.missions[id]; r != nil {
		return slices.Clone(r.events)
	}
	return nil
}

// Dropped is how many events were lost because nobody knew their mission or
// their executor.
func (o *Orchestrator) Dropped() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

// Wait waits until pred holds for a mission. Its error is ctx's, with the
// mission's last state in the text.
func (o *Orchestrator) Wait(ctx context.Context, id string, pred func(Mission) bool) (Mission, error) {
	for {
		o.mu.Lock()
		changed := o.changed
		var m Mission
		r := o.missions[id]
		if r != nil {
			m = r.view()
		}
		o.mu.Unlock()
		if r != nil && pred(m) {
			return m, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return m, fmt.Errorf("mission %q (state %q): %w", id, m.State, ctx.Err())
		}
	}
}

// Ended is a predicate for Wait: the mission has ended.
func Ended(m Mission) bool { return terminal(m.State) }
