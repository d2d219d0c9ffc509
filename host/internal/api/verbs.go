package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// byOperator is who aborts when an operator does, in the wire's words.
const byOperator = "operator"

// change is the shape of pause, resume and abort: {"reason"?} in, the mission
// out.
func (s *Server) change(w http.ResponseWriter, r *http.Request, op *Operator, do func(ctx context.Context, id, reason string) error) error {
	var reason string
	if err := s.readBody(w, r, true, member{"reason", &reason, false}); err != nil {
		return err
	}
	id := r.PathValue("id")
	if _, err := s.visible(r.Context(), op, id); err != nil {
		return err
	}
	if err := do(r.Context(), id, reason); err != nil {
		return err
	}
	v, err := s.opts.Engine.Mission(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (s *Server) pauseMission(w http.ResponseWriter, r *http.Request, op *Operator) error {
	return s.change(w, r, op, func(ctx context.Context, id, reason string) error {
		return s.opts.Engine.Pause(ctx, id, op.Name, reason)
	})
}

func (s *Server) resumeMission(w http.ResponseWriter, r *http.Request, op *Operator) error {
	return s.change(w, r, op, func(ctx context.Context, id, reason string) error {
		return s.opts.Engine.Resume(ctx, id, op.Name, reason)
	})
}

func (s *Server) abortMission(w http.ResponseWriter, r *http.Request, op *Operator) error {
	return s.change(w, r, op, func(ctx context.Context, id, reason string) error {
		return s.opts.Engine.AbortForGood(ctx, id, op.Name, byOperator, reason)
	})
}

// questionList is the answer of GET /api/v1/hitl.
type questionList struct {
	Questions []mission.Question `json:"questions"`
}

// questions are those of missions that the operator may see.
func (s *Server) questions(ctx context.Context, op *Operator) []mission.Question {
	out := []mission.Question{}
	for _, q := range s.opts.Engine.Questions() {
		if op.Restricted() {
			if _, err := s.visible(ctx, op, q.MissionID); err != nil {
				continue
			}
		}
		out = append(out, q)
	}
	return out
}

func (s *Server) listQuestions(w http.ResponseWriter, r *http.Request, op *Operator) error {
	return writeJSON(w, http.StatusOK, questionList{s.questions(r.Context(), op)})
}

// answerQuestion writes the answer to the session; 204 says that it is there.
// A question of another operator's mission is not found; one that was closed is
// the engine's to tell.
func (s *Server) answerQuestion(w http.ResponseWriter, r *http.Request, op *Operator) error {
	var text string
	if err := s.readBody(w, r, false, member{"text", &text, true}); err != nil {
		return err
	}
	id := r.PathValue("id")
	if op == nil {
		if !s.asksOrchestrator(r.Context(), id) {
			return refuse(http.StatusNotFound, "not found")
		}
		op = &Operator{Name: s.opts.OpenAnswers, Role: RoleOperator}
	}
	if op.Restricted() {
		mine := false
		for _, q := range s.questions(r.Context(), op) {
			mine = mine || q.HITLID == id
		}
		if !mine {
			return refuse(http.StatusNotFound, "not found")
		}
	}
	for _, q := range s.opts.Engine.Questions() {
		if q.HITLID == id && q.Source == mission.SourceApproval {
			return coded(http.StatusConflict, "approval", "this is an approval, not a question: airlock approve "+id+
				" "+strings.Join(governance.Actions(), "|")+", or POST /tasks/{id}/approval")
		}
	}
	if err := s.opts.Engine.Answer(r.Context(), id, op.Name, text); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// asksOrchestrator says that an open question is one of a mission that came from
// the orchestrator. Approvals are none: whoever gives no name gives no leave.
func (s *Server) asksOrchestrator(ctx context.Context, hitlID string) bool {
	for _, q := range s.opts.Engine.Questions() {
		if q.HITLID == hitlID && q.Source != mission.SourceApproval {
			v, err := s.opts.Engine.Mission(ctx, q.MissionID)
			return err == nil && v.Origin == mission.OriginOrchestrator
		}
	}
	return false
}
