package executor

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/airlock-host/airlock/host/internal/engine"
)

const (
	maxBody  = 1 << 20
	bodyWait = 10 * time.Second // a slow sender is cut off
)

// Register mounts the contract's routes on the REST listener's root router,
// which must match paths as they were sent: the router is switched to encoded
// paths without cleaning, so "//dispatch" is served and not redirected. The
// reconnect route is not among them; it takes an operator's credential.
func (x *Executor) Register(r *mux.Router) {
	r.SkipClean(true)
	r.UseEncodedPath()
	r.HandleFunc("/dispatch", x.Dispatch).Methods(http.MethodPost)
	r.HandleFunc("//dispatch", x.Dispatch).Methods(http.MethodPost)
	r.HandleFunc("/api/v1/sessions/{id}/dispatch", x.Dispatch).Methods(http.MethodPost)
	r.HandleFunc("/api/v1/aiwg/status", x.StatusHandler).Methods(http.MethodGet)
	// Newer orchestrators try an A2A path first and fall back on exactly 404.
	r.PathPrefix("/agents/").HandlerFunc(http.NotFound)
}

// accepted is the body of a 202.
type accepted struct {
	MissionID      string `json:"mission_id"`
	ExecutorID     string `json:"executor_id"`
	Status         string `json:"status"`
	EstimatedStart string `json:"estimated_start,omitempty"`
}

// Dispatch takes a mission. The order of checks is rulings 1: 503 not
// registered, 401, 415/413/400, known id, 404 agent, 503.
func (x *Executor) Dispatch(w http.ResponseWriter, r *http.Request) {
	if x.token.Load() == nil {
		why := "this host is not registered with an orchestrator"
		if !x.configured() {
			why = "no orchestrator is configured on this host"
		}
		w.Header().Set("Connection", "close") // the body is not waited for
		problem{Type: "executor-unavailable", Status: 503, Detail: why}.write(w)
		return
	}
	if !x.authorized(r) {
		problem{Type: "unauthorized", Status: 401, Detail: "the executor token is missing or wrong"}.write(w)
		return
	}
	raw, p := readBody(w, r)
	if p != nil {
		p.write(w)
		return
	}
	d, err := decodeDispatch(raw)
	if err != nil {
		p := problem{Type: "invalid-dispatch", Status: 400, Detail: err.Error()}
		var fe *fieldError
		if errors.As(err, &fe) {
			p.Field = fe.Field
		}
		p.write(w)
		return
	}
	if id := sessionID(r.URL); id != "" {
		d.SessionID = id
	}
	d.Capabilities = x.agentCapabilities(d.Capabilities)

	// A host that ends, or is taken over, still answers what it has read.
	got, err := x.opt.Engine.Accept(context.WithoutCancel(r.Context()), d)
	if err != nil {
		x.refusal(err, d).write(w)
		return
	}
	if got.Differs {
		x.log.Warn("dispatch repeats a live mission with another payload; the running one goes on", "mission", d.MissionID)
	}
	if got.Duplicate {
		// Serve resets its record when it has read the answer.
		defer x.restate(d.MissionID)
	}
	body := accepted{MissionID: d.MissionID, ExecutorID: x.opt.ID, Status: "assigned"}
	if !got.EstimatedStart.IsZero() {
		body.EstimatedStart = wireTime(got.EstimatedStart)
	}
	writeJSON(w, http.StatusAccepted, body)
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &problem{Type: "unsupported-media-type", Status: 415, Detail: "content-type must be application/json"}
	}
	// Not every ResponseWriter can set deadlines; the server's own then hold.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyWait))
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = rc.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &problem{Type: "payload-too-large", Status: 413, Detail: "the body is larger than 1 MiB"}
	case err != nil:
		return nil, &problem{Type: "invalid-dispatch", Status: 400, Detail: "the body could not be read"}
	}
	return raw, nil
}

// sessionID is the session of a sessions path, decoded; empty on other paths.
func sessionID(u *url.URL) string {
	s, ok := strings.CutPrefix(u.EscapedPath(), "/api/v1/sessions/")
	if !ok {
		return ""
	}
	id, err := url.PathUnescape(strings.TrimSuffix(s, "/dispatch"))
	if err != nil {
		return ""
	}
	return id
}

// agentCapabilities leaves out what the host gives to every mission, unless
// agents claim it themselves.
func (x *Executor) agentCapabilities(asked []string) []string {
	own := x.opt.Engine.Capabilities()
	return slices.DeleteFunc(asked, func(c string) bool {
		return slices.Contains(hostCapabilities(), c) && !slices.Contains(own, c)
	})
}

func (x *Executor) refusal(err error, d engine.Dispatch) problem {
	var r *engine.Refusal
	switch {
	case errors.As(err, &r):
	case errors.Is(err, engine.ErrUnavailable):
		x.log.Warn("dispatch refused", "mission", d.MissionID, "error", err)
		return problem{Type: "executor-unavailable", Status: 503, Detail: "the mission store is unavailable"}
	default:
		x.log.Error("dispatch failed", "mission", d.MissionID, "error", err)
		return problem{Type: "dispatch-failure", Status: 500, Detail: "the dispatch could not be carried out"}
	}
	x.log.Info("dispatch refused", "mission", d.MissionID, "reason", r.Detail)
	switch r.Kind {
	case engine.RefusedConflict:
		return problem{Type: "mission-conflict", Status: 409, Detail: r.Detail}
	case engine.RefusedUnknownAgent, engine.RefusedUnhealthyAgent:
		return problem{Type: "agent-not-connected", Status: 404, Detail: r.Detail, AgentID: d.AgentID}
	case engine.RefusedInvalid:
		return problem{Type: "invalid-dispatch", Status: 400, Detail: r.Detail}
	case engine.RefusedNoAgent, engine.RefusedUnavailable, engine.RefusedQueueFull:
		return problem{Type: "executor-unavailable", Status: 503, Detail: r.Detail}
	}
	return problem{Type: "dispatch-failure", Status: 500, Detail: r.Detail}
}
