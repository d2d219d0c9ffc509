package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// propose is POST /tasks/{id}/proposals: a harness asks before it makes a call.
// With wait_s a decision that a human must make is held until it is made, the
// time is over, the client goes or the host stops; nothing is lost then, since
// the same proposal_id finds the decision again.
func (s *Server) propose(w http.ResponseWriter, r *http.Request, _ *Operator) error {
	p := engine.Proposal{Boundary: "harness"}
	var hold seconds
	var step *int64
	err := s.readBody(w, r, false, member{"proposal_id", &p.ProposalID, false}, member{"tool_name", &p.Tool, true},
		member{"tool_args", &p.Args, true}, member{"metadata", &p.Metadata, false}, member{"parent_decision_id", &p.ParentDecision, false},
		member{"parent_plan_step", &step, false}, member{"wait_s", &hold, false})
	if err != nil {
		return err
	}
	if step != nil {
		n := int(*step)
		p.ParentPlanStep = &n
	}
	judged, err := s.opts.Engine.Propose(r.Context(), r.PathValue("id"), p, time.Duration(hold))
	if err != nil {
		return err
	}
	s.promptly(w)
	return writeJSON(w, http.StatusOK, judged)
}

// promptly bounds the writing of an answer whose request was held.
func (s *Server) promptly(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(s.now().Add(s.opts.WriteTimeout))
}

// showDecision is GET /tasks/{id}/decisions/{decision}.
func (s *Server) showDecision(w http.ResponseWriter, r *http.Request, _ *Operator) error {
	judged, err := s.opts.Engine.Decision(r.Context(), r.PathValue("id"), r.PathValue("decision"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, judged)
}

// dispatchCall is POST /tasks/{id}/dispatches: the reservation. Once it is
// answered with 201 the call may run.
func (s *Server) dispatchCall(w http.ResponseWriter, r *http.Request, _ *Operator) error {
	var decision, tool string
	var args json.RawMessage
	err := s.readBody(w, r, false, member{"decision_id", &decision, true}, member{"tool_name", &tool, true}, member{"tool_args", &args, true})
	if err != nil {
		return err
	}
	id, err := s.opts.Engine.Dispatch(r.Context(), r.PathValue("id"), decision, tool, args)
	var refused *governance.Refused
	switch {
	case errors.As(err, &refused):
		return coded(http.StatusConflict, refused.Code, refused.Detail) // journal_unavailable too (surface, harness API)
	case err != nil:
		return err
	}
	return writeJSON(w, http.StatusCreated, struct {
		InvocationID string `json:"invocation_id"`
	}{id})
}

// showInvocation is GET /tasks/{id}/dispatches/{invocation}?wait_s=: how a
// harness learns that it should cancel a call.
func (s *Server) showInvocation(w http.ResponseWriter, r *http.Request, _ *Operator) error {
	var hold time.Duration
	if text := r.URL.Query().Get("wait_s"); text != "" {
		var ok bool
		if hold, ok = parseSeconds(text); !ok {
			return badField("wait_s", badHold)
		}
	}
	state, err := s.opts.Engine.Invocation(r.Context(), r.PathValue("id"), r.PathValue("invocation"), hold)
	if err != nil {
		return err
	}
	s.promptly(w)
	return writeJSON(w, http.StatusOK, state)
}

// completeCall is POST …/completion: how the call ended. Of the result only a
// digest is kept.
func (s *Server) completeCall(w http.ResponseWriter, r *http.Request, _ *Operator) error {
	done := governance.Settled{InvocationID: r.PathValue("invocation")}
	var result anyValue
	err := s.readBody(w, r, false, member{"outcome", &done.Outcome, true}, member{"result", &result, false},
		member{"error", &done.Error, false}, member{"duration_ms", &done.DurationMS, false})
	if err != nil {
		return err
	}
	switch done.Outcome {
	case governance.Succeeded, governance.Failed, governance.Unknown:
	default:
		return badField("outcome", "it must be succeeded, failed or outcome_unknown")
	}
	if result != nil {
		var compact bytes.Buffer
		if err := json.Compact(&compact, result); err != nil {
			return err
		}
		done.ResultDigest = governance.Digest(compact.Bytes())
	}
	if err := s.opts.Engine.Complete(r.Context(), r.PathValue("id"), done); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// recordAccess is POST /tasks/{id}/access: access that a stop must cut.
func (s *Server) recordAccess(w http.ResponseWriter, r *http.Request, _ *Operator) error {
	var a governance.Access
	err := s.readBody(w, r, false, member{"kind", &a.Kind, true}, member{"issuer", &a.Issuer, true}, member{"ref", &a.Ref, true}, member{"parent", &a.Parent, false})
	if err != nil {
		return err
	}
	switch {
	case a.Kind != "session" && a.Kind != "delegation":
		return badField("kind", "it must be session or delegation")
	case a.Issuer == "":
		return badField("issuer", "it must not be empty")
	case a.Ref == "":
		return badField("ref", "it must not be empty")
	}
	if err := s.opts.Engine.RecordAccess(r.Context(), r.PathValue("id"), a); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
