package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/session"
	"github.com/airlock-host/airlock/host/internal/store"
)

// problem is an answer that says no: application/problem+json with an `error`
// string beside it (surface, Routes).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Err    string `json:"error"`
	Code   string `json:"code,omitempty"`  // a word that programs may decide on
	Field  string `json:"field,omitempty"` // the member of the body or the query that is wrong
}

func (p *problem) Error() string { return p.Err }

// refuse makes a problem.
func refuse(status int, text string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: text, Err: text}
}

// coded is refuse with a word for programs.
func coded(status int, code, text string) *problem {
	p := refuse(status, text)
	p.Code = code
	return p
}

// badField is a 400 that names the member.
func badField(field, text string) *problem {
	p := refuse(http.StatusBadRequest, field+": "+text)
	p.Field = field
	return p
}

// asProblem finds the answer to an error. An error that is nobody's fault but
// ours gives away nothing.
func asProblem(err error) *problem {
	var p *problem
	var refusal *engine.Refusal
	var refused *governance.Refused
	var file *store.FileError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refused):
		return refusedProblem(refused)
	case errors.Is(err, governance.ErrEnvelope):
		return coded(http.StatusUnprocessableEntity, "invalid_envelope", err.Error())
	case errors.Is(err, engine.ErrInvalid):
		return invalidProblem(err)
	case errors.As(err, &refusal):
		return refusalProblem(refusal)
	case errors.Is(err, engine.ErrNotFound), errors.Is(err, store.ErrNotFound):
		return refuse(http.StatusNotFound, "not found")
	case errors.Is(err, session.ErrEnded):
		return coded(http.StatusConflict, "ended", "the session has ended")
	case errors.Is(err, engine.ErrConflict), errors.Is(err, mission.ErrIllegal), errors.Is(err, mission.ErrStale):
		return refuse(http.StatusConflict, err.Error())
	case errors.As(err, &file):
		return coded(http.StatusServiceUnavailable, "store_damaged", file.Error())
	case errors.Is(err, engine.ErrUnavailable), errors.Is(err, session.ErrFull):
		return refuse(http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(http.StatusGatewayTimeout, "it took too long; ask for the status before trying again")
	default:
		return refuse(http.StatusInternalServerError, "internal error; the host's log has the details")
	}
}

// refusedProblem is a refusal of the gate: a conflict, with its code. Where it
// is only that nothing can be journalled now, trying again may help.
func refusedProblem(r *governance.Refused) *problem {
	status := http.StatusConflict
	if r.Code == governance.CodeJournal {
		status = http.StatusServiceUnavailable
	}
	return coded(status, r.Code, r.Detail)
}

// invalidProblem names the member that an engine.ErrInvalid begins with.
func invalidProblem(err error) *problem {
	text := strings.TrimSuffix(err.Error(), ": "+engine.ErrInvalid.Error())
	p := refuse(http.StatusBadRequest, text)
	if i := strings.IndexAny(text, ": "); i > 0 {
		p.Field = text[:i]
	}
	return p
}

func refusalProblem(r *engine.Refusal) *problem {
	status, code := http.StatusServiceUnavailable, "unavailable"
	switch r.Kind {
	case engine.RefusedConflict:
		status, code = http.StatusConflict, "terminal"
	case engine.RefusedUnknownAgent:
		status, code = http.StatusNotFound, "agent_not_connected"
	case engine.RefusedUnhealthyAgent:
		code = "agent_unhealthy"
	case engine.RefusedNoAgent:
		code = "no_agent"
	case engine.RefusedQueueFull:
		code = "queue_full"
	case engine.RefusedInvalid:
		status, code = http.StatusBadRequest, "invalid"
	case engine.RefusedUnavailable:
	}
	return coded(status, code, r.Detail)
}

// write sends the problem.
func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="airlock"`)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// writeJSON sends v.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
	return nil
}
