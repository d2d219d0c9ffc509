package orchestrator

import (
	"encoding/json"
	"net/http"
)

func (o *Orchestrator) handleMission(w http.ResponseWriter, r *http.Request) {
	m, ok := o.Mission(pathVar(r, "id"))
	if !ok {
		fail(w, 404, "Mission not found")
		return
	}
	reply(w, 200, m)
}

func (o *Orchestrator) handleAnswer(w http.ResponseWriter, r *http.Request) {
	_, v, err := readBody(r)
	body, _ := v.(map[string]any)
	hitl, _ := body["hitl_id"].(string)
	response, _ := body["response"].(string)
	if err != nil || hitl == "" || response == "" {
		fail(w, 400, "hitl_id and response are required")
		return
	}
	switch status := o.Answer(pathVar(r, "id"), hitl, response); status {
	case 200:
		reply(w, 200, map[string]bool{"ok": true})
	case 404:
		fail(w, 404, "Mission not found")
	default:
		fail(w, status, "executor_not_connected")
	}
}

// Answer pushes an operator's answer to a question: 200, 404 (no such mission)
// or 503 (executor not connected). As in serve, nobody checks that the question
// exists, and no state changes.
func (o *Orchestrator) Answer(missionID, hitlID, response string) int {
	m, ok := o.Mission(missionID)
	if !ok {
		return 404
	}
	data, _ := json.Marshal(map[string]string{"hitl_id": hitlID, "response": response, "responded_at": o.now()})
	if !o.Push(m.ExecutorID, Event{Event: "mission.hitl_responded", MissionID: missionID, TS: o.now(), Data: data}) {
		return 503
	}
	return 200
}

func (o *Orchestrator) handleVerb(verb string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !o.Control(pathVar(r, "id"), verb) {
			fail(w, 404, "Mission not found")
			return
		}
		reply(w, 200, map[string]bool{"ok": true})
	}
}

// Control is an operator's pause, resume or abort: the record moves at once
// unless it has ended, the command is pushed, and lost if the executor is away.
// False: no such mission.
func (o *Orchestrator) Control(missionID, verb string) bool {
	var e Event
	var state string
	switch verb {
	case "pause":
		e = Event{Event: "mission.paused", Data: json.RawMessage(`{"state":"paused","reason":"operator_request"}`)}
		state = "paused"
	case "resume":
		e = Event{Event: "mission.resumed", Data: json.RawMessage(`{"state":"running","resumed_from":"paused"}`)}
		state = "running"
	case "abort":
		e = Event{Event: "mission.aborted", Data: json.RawMessage(`{"state":"aborted","aborted_by":"operator","reason":"operator_request"}`)}
		state = "aborted"
	default:
		return false
	}
	o.mu.Lock()
	r := o.missions[missionID]
	if r == nil {
		o.mu.Unlock()
		return false
	}
	e.MissionID, e.TS = missionID, o.now()
	if !terminal(r.State) {
		r.State = state
		if terminal(state) {
			r.CompletedAt = e.TS
		}
		o.touch()
	}
	executorID := r.ExecutorID
	o.mu.Unlock()
	o.Push(executorID, e)
	return true
}
