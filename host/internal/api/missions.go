package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// maxPage is how many rows one answer has at most.
const maxPage = 100

// maxID is how many characters an id has at most.
const maxID = 300

var states = []mission.State{
	mission.StateAssigned, mission.StateRunning, mission.StateHITL, mission.StatePaused,
	mission.StateSuspended, mission.StateDone, mission.StateFailed, mission.StateAborted,
}

// visible reads a mission that the operator may see. Another operator's mission
// is not found.
func (s *Server) visible(ctx context.Context, op *Operator, id string) (mission.View, error) {
	v, err := s.opts.Engine.Mission(ctx, id)
	if err != nil {
		return v, err
	}
	if !op.MaySee(v.Agent) {
		return mission.View{}, engine.ErrNotFound
	}
	return v, nil
}

func (s *Server) showMission(w http.ResponseWriter, r *http.Request, op *Operator) error {
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// missionList is the answer of GET /api/v1/missions.
type missionList struct {
	Missions []mission.View `json:"missions"`
	Next     *string        `json:"next"` // cursor of the next page; null at the end
}

func (s *Server) listMissions(w http.ResponseWriter, r *http.Request, op *Operator) error {
	f, err := missionFilter(r)
	if err != nil {
		return err
	}
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return s.streamMissions(w, r, op)
	}
	list := missionList{Missions: []mission.View{}}
	if agents := op.Agents(); op.Restricted() && f.Agent == "" && len(agents) == 1 {
		f.Agent = agents[0]
	}
	if f.Agent != "" && !op.MaySee(f.Agent) {
		return writeJSON(w, http.StatusOK, list)
	}
	// A restricted operator's page is filled from as many pages as it takes.
	for limit := f.Limit; ; {
		f.Limit = limit - len(list.Missions)
		views, next, err := s.opts.Engine.Missions(r.Context(), f)
		if err != nil {
			return err
		}
		for _, v := range views {
			if op.MaySee(v.Agent) {
				list.Missions = append(list.Missions, v)
			}
		}
		f.After = next
		if next == "" || len(list.Missions) >= limit {
			break
		}
	}
	if f.After != "" {
		list.Next = &f.After
	}
	return writeJSON(w, http.StatusOK, list)
}

// missionFilter reads ?state=A,B&agent=&live=1&limit=&cursor=.
func missionFilter(r *http.Request) (store.MissionFilter, error) {
	q := r.URL.Query()
	f := store.MissionFilter{Agent: q.Get("agent"), After: q.Get("cursor"), Limit: maxPage}
	for _, words := range q["state"] {
		for word := range strings.SplitSeq(words, ",") {
			if !slices.Contains(states, mission.State(word)) {
				return f, badField("state", "there is no such state: "+strconv.Quote(word))
			}
			f.States = append(f.States, word)
		}
	}
	if v := q.Get("live"); v != "" {
		live, err := strconv.ParseBool(v)
		if err != nil {
			return f, badField("live", "it must be true or false")
		}
		f.Live = live
	}
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return f, badField("limit", "it must be a number from 1 to 100")
		}
		f.Limit = min(n, maxPage)
	}
	return f, nil
}

// dispatchBody is what a local dispatch asks for. Its canonical form tells a
// repeated dispatch from another one.
type dispatchBody struct {
	MissionID    string          `json:"mission_id,omitempty"`
	AgentID      string          `json:"agent_id,omitempty"`
	Objective    string          `json:"objective"`
	Completion   string          `json:"completion,omitempty"`
	SessionID    string          `json:"session_id,omitempty"`
	LongRunning  bool            `json:"long_running,omitempty"`
	Capabilities []string        `json:"capabilities,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
}

// dispatched answers a local dispatch.
type dispatched struct {
	MissionID      string    `json:"mission_id"`
	TaskID         string    `json:"task_id"`
	EstimatedStart time.Time `json:"estimated_start"`
	// Duplicate: the mission was known, nothing was started. Differs: it was
	// asked for with another payload before; the running one goes on.
	Duplicate bool `json:"duplicate"`
	Differs   bool `json:"differs"`
}

func (s *Server) dispatchMission(w http.ResponseWriter, r *http.Request, op *Operator) error {
	d, err := s.readDispatch(w, r, op)
	if err != nil {
		return err
	}
	a, err := s.opts.Engine.Accept(context.WithoutCancel(r.Context()), d) // what was read is answered, although the host ends
	if refused := (*engine.Refusal)(nil); errors.As(err, &refused) && refused.Kind == engine.RefusedConflict && op.Restricted() {
		if _, seen := s.visible(r.Context(), op, d.MissionID); seen != nil {
			return coded(http.StatusConflict, "id_taken", "mission_id is in use")
		}
	}
	if err != nil {
		return err
	}
	if a.Duplicate && op.Restricted() {
		// The id may be another operator's mission.
		if _, err := s.visible(r.Context(), op, a.MissionID); err != nil {
			return coded(http.StatusConflict, "id_taken", "mission_id is in use")
		}
	}
	return writeJSON(w, http.StatusAccepted, dispatched{a.MissionID, a.MissionID, a.EstimatedStart, a.Duplicate, a.Differs})
}

// planned is the answer of POST /api/v1/missions/plan.
type planned struct {
	engine.Plan
	// Refusal is the problem that the dispatch would be answered with; null: none.
	Refusal *problem `json:"refusal"`
}

// planMission says what a dispatch would come to. It is 200 for one that would
// be refused too: that is the answer.
func (s *Server) planMission(w http.ResponseWriter, r *http.Request, op *Operator) error {
	d, err := s.readDispatch(w, r, op)
	if err != nil {
		return err
	}
	p, err := s.opts.Engine.Plan(r.Context(), d)
	if err != nil {
		return err
	}
	if p.Agent != "" && !op.MaySee(p.Agent) {
		return coded(http.StatusConflict, "id_taken", "mission_id is in use")
	}
	p.Others = slices.DeleteFunc(p.Others, func(o engine.Passed) bool { return !op.MaySee(o.Agent) })
	out := planned{Plan: p}
	if p.Refusal != nil {
		out.Refusal = refusalProblem(p.Refusal)
	}
	return writeJSON(w, http.StatusOK, out)
}

// readDispatch reads the body of a dispatch.
func (s *Server) readDispatch(w http.ResponseWriter, r *http.Request, op *Operator) (engine.Dispatch, error) {
	var b dispatchBody
	err := s.readBody(w, r, false,
		member{"mission_id", &b.MissionID, false}, member{"agent_id", &b.AgentID, false},
		member{"objective", &b.Objective, true}, member{"completion", &b.Completion, false},
		member{"session_id", &b.SessionID, false}, member{"long_running", &b.LongRunning, false},
		member{"capabilities", &b.Capabilities, false}, member{"metadata", &b.Metadata, false})
	if err != nil {
		return engine.Dispatch{}, err
	}
	if err := b.check(op); err != nil {
		return engine.Dispatch{}, err
	}
	return b.dispatch()
}

// check refuses what no agent could mend, and puts a restricted operator's
// mission at an agent that it may see.
func (b *dispatchBody) check(op *Operator) error {
	if b.Objective == "" {
		return badField("objective", "it must not be empty")
	}
	for _, f := range []struct{ name, id string }{{"mission_id", b.MissionID}, {"session_id", b.SessionID}} {
		if utf8.RuneCountInString(f.id) > maxID {
			return badField(f.name, "it has more than 300 characters")
		}
		if strings.ContainsFunc(f.id, unicode.IsControl) {
			return badField(f.name, "it has control characters in it")
		}
	}
	switch agents := op.Agents(); {
	case !op.Restricted():
	case b.AgentID == "" && len(agents) == 1:
		b.AgentID = agents[0]
	case b.AgentID == "":
		return badField("agent_id", "it is required, since this operator sees some agents only: "+strings.Join(agents, ", "))
	case !op.MaySee(b.AgentID):
		return coded(http.StatusNotFound, "agent_not_connected", "agent "+strconv.Quote(b.AgentID)+" is not known")
	}
	return nil
}

func (b *dispatchBody) dispatch() (engine.Dispatch, error) {
	if b.Metadata != nil {
		var compact bytes.Buffer
		if err := json.Compact(&compact, b.Metadata); err != nil {
			return engine.Dispatch{}, badField("metadata", "it must be an object")
		}
		b.Metadata = compact.Bytes()
	}
	payload, err := json.Marshal(b)
	if err != nil {
		return engine.Dispatch{}, err
	}
	return engine.Dispatch{
		MissionID: b.MissionID, Origin: mission.OriginLocal, Objective: b.Objective, Completion: b.Completion,
		SessionID: b.SessionID, LongRunning: b.LongRunning, AgentID: b.AgentID, Capabilities: b.Capabilities,
		Metadata: b.Metadata, Payload: payload,
	}, nil
}
