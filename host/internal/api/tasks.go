package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// createdTask answers POST /tasks. The token is shown this once.
type createdTask struct {
	TaskID string `json:"task_id"`
	Token  string `json:"token"`
	URL    string `json:"url"`
}

// createTask is POST /tasks: a task whose agent runs outside of any cell. It
// belongs to no agent block, so an operator who sees some agents only cannot
// make one.
func (s *Server) createTask(w http.ResponseWriter, r *http.Request, op *Operator) error {
	var t engine.NewTask
	var intent json.RawMessage
	var plan list
	err := s.readBody(w, r, false, member{"task_id", &t.TaskID, false}, member{"objective", &t.Objective, true},
		member{"intent", &intent, false}, member{"plan", &plan, false}, member{"scopes", &t.Scopes, false})
	if err != nil {
		return err
	}
	if strings.ContainsFunc(t.TaskID, unicode.IsControl) {
		return badField("task_id", "it has control characters in it")
	}
	t.Plan = json.RawMessage(plan)
	if intent != nil {
		if t.Intent, err = decodeEnvelope(intent); err != nil {
			return err
		}
	}
	id, token, err := s.opts.Engine.CreateTask(context.WithoutCancel(r.Context()), t, op.Name)
	if err != nil {
		return err
	}
	address := s.address(r) + "/tasks/" + pathSegment(id)
	w.Header().Set("Location", address)
	return writeJSON(w, http.StatusCreated, createdTask{id, token, address})
}

// address is where the one who asks has reached the host; over the operator
// socket, where the REST listener is.
func (s *Server) address(r *http.Request) string {
	if _, unixConn := r.Context().Value(peerKey{}).(peer); unixConn {
		if s.opts.RESTBase != "" {
			return s.opts.RESTBase
		}
		return "http://127.0.0.1:" + s.opts.RESTPort
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// pathSegment encodes an id as one segment that nothing on the way takes for a
// directory.
func pathSegment(id string) string {
	if strings.Trim(id, ".") == "" {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

// governed reads the task of a command; one that has ended takes none.
func (s *Server) governed(r *http.Request, op *Operator) (mission.View, error) {
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err == nil && v.State.Terminal() {
		err = coded(http.StatusConflict, governance.CodeTerminal, "the mission has ended ("+string(v.State)+")")
	}
	return v, err
}

// approve is POST /tasks/{id}/approval. Who approves is the operator that the
// token names; a body that says otherwise is refused.
func (s *Server) approve(w http.ResponseWriter, r *http.Request, op *Operator) error {
	a := engine.Approval{Actor: op.Name}
	var intent json.RawMessage
	err := s.readBody(w, r, false, member{"decision_id", &a.DecisionID, true}, member{"action", &a.Action, true},
		member{"modified_intent", &intent, false}, member{"explanation", &a.Explanation, false}, member{"fingerprint", &a.Fingerprint, false})
	if err != nil {
		return err
	}
	v, err := s.governed(r, op)
	if err != nil {
		return err
	}
	switch {
	case intent != nil && a.Action != governance.ModifyIntent:
		return badField("modified_intent", "it goes with the action modify_intent only")
	case intent != nil:
		if a.Intent, err = decodeEnvelope(intent); err != nil {
			return err
		}
	}
	reply, err := s.opts.Engine.Approve(r.Context(), v.TaskID, a)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, reply)
}

// setIntent is POST /tasks/{id}/intent {"intent"}: another envelope, whole. It
// answers with the new status.
func (s *Server) setIntent(w http.ResponseWriter, r *http.Request, op *Operator) error {
	var raw json.RawMessage
	if err := s.readBody(w, r, false, member{"intent", &raw, true}); err != nil {
		return err
	}
	v, err := s.governed(r, op)
	if err != nil {
		return err
	}
	env, err := decodeEnvelope(raw)
	if err != nil {
		return err
	}
	if err := s.opts.Engine.SetIntent(r.Context(), v.TaskID, env, op.Name); err != nil {
		return err
	}
	return s.writeStatus(w, r)
}

// setPlan is PUT /tasks/{id}/plan {"plan"}: the steps that status shows.
func (s *Server) setPlan(w http.ResponseWriter, r *http.Request, op *Operator) error {
	var plan list
	if err := s.readBody(w, r, false, member{"plan", &plan, true}); err != nil {
		return err
	}
	v, err := s.governed(r, op)
	if err != nil {
		return err
	}
	if err := s.opts.Engine.SetPlan(r.Context(), v.TaskID, json.RawMessage(plan), op.Name); err != nil {
		return err
	}
	return s.writeStatus(w, r)
}

// resolve is POST /tasks/{id}/resolve: an operator says how a call ended that a
// crash left open.
func (s *Server) resolve(w http.ResponseWriter, r *http.Request, op *Operator) error {
	var invocation, outcome, explanation string
	err := s.readBody(w, r, false, member{"invocation_id", &invocation, true}, member{"outcome", &outcome, true}, member{"explanation", &explanation, false})
	if err != nil {
		return err
	}
	if err := knownOutcome(outcome); err != nil {
		return err
	}
	v, err := s.governed(r, op)
	if err != nil {
		return err
	}
	if err := s.opts.Engine.Resolve(r.Context(), v.TaskID, invocation, outcome, explanation, op.Name); err != nil {
		return err
	}
	return s.writeStatus(w, r)
}

// waive is POST /tasks/{id}/waive: an operator does without an issuer's
// acknowledgement.
func (s *Server) waive(w http.ResponseWriter, r *http.Request, op *Operator) error {
	var issuer, explanation string
	if err := s.readBody(w, r, false, member{"issuer", &issuer, true}, member{"explanation", &explanation, true}); err != nil {
		return err
	}
	if explanation == "" {
		return badField("explanation", "it must say why the issuer's access needs no revocation")
	}
	v, err := s.visible(r.Context(), op, r.PathValue("id")) // of one that has ended, too
	if err != nil {
		return err
	}
	if err := s.opts.Engine.Waive(r.Context(), v.TaskID, issuer, explanation, op.Name); err != nil {
		return err
	}
	return s.writeStatus(w, r)
}

// newToken is POST /tasks/{id}/token: another token for a harness, shown once;
// the one before is void.
func (s *Server) newToken(w http.ResponseWriter, r *http.Request, op *Operator) error {
	var scopes []string
	if err := s.readBody(w, r, true, member{"scopes", &scopes, false}); err != nil {
		return err
	}
	v, err := s.governed(r, op)
	if err != nil {
		return err
	}
	token, err := s.opts.Engine.NewToken(r.Context(), v.TaskID, scopes, op.Name)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, createdTask{v.TaskID, token, s.address(r) + "/tasks/" + pathSegment(v.TaskID)})
}

// knownOutcome refuses what is not one of the four ends of a call.
func knownOutcome(outcome string) error {
	switch outcome {
	case governance.Succeeded, governance.Failed, governance.Unknown, governance.NeverStarted:
		return nil
	}
	return badField("outcome", "it must be succeeded, failed, outcome_unknown or definitely_not_started, not "+strconv.Quote(outcome))
}
