package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/gorilla/mux"
)

// handler answers a request of an operator; op is nil where the route takes no
// operator's credential. The error's kind decides the answer; after the first
// byte has been written it must be nil.
type handler func(w http.ResponseWriter, r *http.Request, op *Operator) error

// Route is one line of the table: what it takes is what it is checked for.
type Route struct {
	Method string // empty: any
	Path   string // gorilla/mux template; ids stay encoded until the handler
	Prefix bool
	Needs  Credential
	// Scope is what a task token must be good for.
	Scope string
	// Open routes take a request without any credential too, where
	// Options.OpenAnswers says so; the handler then gets no operator.
	Open bool
	// Stream says that the answer may go on for ever.
	Stream bool
	handle handler
}

// Routes is the table of the REST listener and of the operator socket.
func (s *Server) Routes() []Route {
	const get, post = http.MethodGet, http.MethodPost
	t := []Route{
		{Method: get, Path: "/livez", Needs: NeedNone, handle: s.livez},
		{Method: get, Path: "/readyz", Needs: NeedNone, handle: s.readyz},
		{Method: get, Path: "/metrics", Needs: NeedMetrics, handle: s.showMetrics},

		{Method: get, Path: "/api/v1/missions", Needs: NeedViewer, Stream: true, handle: s.listMissions},
		{Method: post, Path: "/api/v1/missions", Needs: NeedOperator, handle: s.dispatchMission},
		{Method: post, Path: "/api/v1/missions/plan", Needs: NeedViewer, handle: s.planMission},
		{Method: get, Path: "/api/v1/missions/{id}", Needs: NeedViewer, handle: s.showMission},
		{Method: get, Path: "/api/v1/missions/{id}/files", Needs: NeedViewer, Stream: true, handle: s.missionFiles},
		{Method: post, Path: "/api/v1/missions/{id}/pause", Needs: NeedOperator, handle: s.pauseMission},
		{Method: post, Path: "/api/v1/missions/{id}/resume", Needs: NeedOperator, handle: s.resumeMission},
		{Method: post, Path: "/api/v1/missions/{id}/abort", Needs: NeedOperator, handle: s.abortMission},

		{Method: get, Path: "/api/v1/whoami", Needs: NeedViewer, handle: s.whoami},
		{Method: post, Path: "/api/v1/ui/codes", Needs: NeedViewer, handle: s.makeCode},
		{Method: post, Path: "/api/v1/ui/session", Needs: NeedCode, handle: s.openSession},
		{Method: http.MethodDelete, Path: "/api/v1/ui/session", Needs: NeedViewer, handle: s.closeSession},

		{Method: get, Path: "/api/v1/agents", Needs: NeedViewer, handle: s.listAgents},
		{Method: get, Path: "/api/v1/plugins", Needs: NeedViewer, handle: s.listPlugins},
		{Method: post, Path: "/api/v1/plugins/{id}/reload", Needs: NeedHost, handle: s.reloadPlugin},
		{Method: post, Path: "/api/v1/drain", Needs: NeedHost, Stream: true, handle: s.drain},
		{Method: post, Path: "/api/v1/reload", Needs: NeedHost, handle: s.reload},
		{Method: get, Path: "/api/v1/config", Needs: NeedHost, handle: s.showConfig},

		{Method: get, Path: "/api/v1/hitl", Needs: NeedViewer, handle: s.listQuestions},
		{Method: post, Path: "/api/v1/hitl/{id}/respond", Needs: NeedOperator, Open: true, handle: s.answerQuestion},

		{Method: get, Path: "/api/v1/sessions/{id}/log", Needs: NeedViewer, Stream: true, handle: s.sessionLog},
		{Method: get, Path: "/api/v1/sessions/{id}/screen", Needs: NeedViewer, Stream: true, handle: s.sessionScreen},
		{Method: http.MethodDelete, Path: "/api/v1/sessions/{id}", Needs: NeedOperator, handle: s.signalSession},

		{Method: get, Path: "/tasks/{id}/status", Needs: NeedViewer, handle: s.taskStatus},
		{Method: get, Path: "/tasks/{id}/events", Needs: NeedViewer, Stream: true, handle: s.taskEvents},
		{Method: get, Path: "/tasks/{id}/verify", Needs: NeedViewer, handle: s.verifyTask},
		{Method: get, Path: "/tasks/{id}/export", Needs: NeedViewer, Stream: true, handle: s.exportTask},
		{Method: get, Path: "/tasks/{id}/bundle", Needs: NeedViewer, Stream: true, handle: s.bundleTask},
		{Method: post, Path: "/tasks/{id}/control", Needs: NeedOperator, Stream: true, handle: s.controlTask},
		{Method: get, Path: "/tasks/{id}/stops/{stop}", Needs: NeedViewer, handle: s.showStop},
		{Method: post, Path: "/tasks", Needs: NeedHost, handle: s.createTask},
		{Method: post, Path: "/tasks/{id}/approval", Needs: NeedOperator, handle: s.approve},
		{Method: post, Path: "/tasks/{id}/intent", Needs: NeedOperator, handle: s.setIntent},
		{Method: http.MethodPut, Path: "/tasks/{id}/plan", Needs: NeedOperator, handle: s.setPlan},
		{Method: post, Path: "/tasks/{id}/resolve", Needs: NeedOperator, handle: s.resolve},
		{Method: post, Path: "/tasks/{id}/waive", Needs: NeedOperator, handle: s.waive},
		{Method: post, Path: "/tasks/{id}/token", Needs: NeedOperator, handle: s.newToken},

		{Method: post, Path: "/tasks/{id}/proposals", Needs: NeedTask, Scope: "propose", Stream: true, handle: s.propose},
		{Method: get, Path: "/tasks/{id}/decisions/{decision}", Needs: NeedTask, Scope: "propose", handle: s.showDecision},
		{Method: post, Path: "/tasks/{id}/dispatches", Needs: NeedTask, Scope: "dispatch", handle: s.dispatchCall},
		{Method: get, Path: "/tasks/{id}/dispatches/{invocation}", Needs: NeedTask, Scope: "dispatch", Stream: true, handle: s.showInvocation},
		{Method: post, Path: "/tasks/{id}/dispatches/{invocation}/completion", Needs: NeedTask, Scope: "dispatch", handle: s.completeCall},
		{Method: post, Path: "/tasks/{id}/access", Needs: NeedTask, Scope: "access", handle: s.recordAccess},
	}
	mount := func(h http.Handler, routes ...Route) {
		if h == nil {
			return
		}
		for _, r := range routes {
			r.handle = func(w http.ResponseWriter, r *http.Request, _ *Operator) error {
				h.ServeHTTP(w, r)
				return nil
			}
			t = append(t, r)
		}
	}
	mount(s.opts.Dispatch,
		Route{Method: post, Path: "/dispatch", Needs: NeedExecutor},
		Route{Method: post, Path: "//dispatch", Needs: NeedExecutor},
		Route{Method: post, Path: "/api/v1/sessions/{id}/dispatch", Needs: NeedExecutor})
	mount(s.opts.OrchestratorStatus, Route{Method: get, Path: "/api/v1/aiwg/status", Needs: NeedNone})
	mount(s.opts.Reconnect, Route{Method: post, Path: "/api/v1/aiwg/reconnect", Needs: NeedHost})
	mount(s.opts.MCP, Route{Method: post, Path: "/mcp", Needs: NeedMCP, Stream: true})
	mount(s.opts.UI,
		Route{Method: get, Path: "/", Needs: NeedNone},
		Route{Method: get, Path: "/ui/", Prefix: true, Needs: NeedNone})
	mount(s.opts.Docs,
		Route{Method: get, Path: "/docs", Needs: NeedNone},
		Route{Method: get, Path: "/docs/", Prefix: true, Needs: NeedNone})
	return t
}

// router is built from the table and nothing else.
func (s *Server) router(table []Route) *mux.Router {
	m := mux.NewRouter().UseEncodedPath().SkipClean(true)
	for _, rt := range table {
		var r *mux.Route
		if rt.Prefix {
			r = m.PathPrefix(rt.Path)
		} else {
			r = m.Path(rt.Path)
		}
		if rt.Method == http.MethodGet {
			r = r.Methods(http.MethodGet, http.MethodHead)
		} else if rt.Method != "" {
			r = r.Methods(rt.Method)
		}
		r.Name(rt.Method + " " + rt.Path).HandlerFunc(s.serve(rt))
	}
	// No A2A surface yet: serve wants a plain 404 here (executor contract, 0.1).
	m.PathPrefix("/agents/").Name("agents").Handler(http.NotFoundHandler())
	m.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(http.StatusNotFound, "there is no such route").write(w)
	})
	m.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(http.StatusMethodNotAllowed, r.Method+" is not for this route").write(w)
	})
	return m
}

// callTimeout bounds a request that is no stream.
const callTimeout = 2 * time.Minute

// serve checks the credential of a route and runs its handler.
func (s *Server) serve(rt Route) http.HandlerFunc {
	needsOperator := rt.Needs != NeedNone && rt.Needs != NeedCode && rt.Needs != NeedExecutor && rt.Needs != NeedMCP && rt.Needs != NeedTask && (rt.Needs != NeedMetrics || !s.opts.MetricsOpen)
	return func(w http.ResponseWriter, r *http.Request) {
		out := &answer{ResponseWriter: w}
		err := func() error {
			for name, v := range mux.Vars(r) {
				id, err := url.PathUnescape(v)
				if err != nil {
					return refuse(http.StatusBadRequest, "the path is not encoded right")
				}
				r.SetPathValue(name, id)
			}
			if rt.Needs == NeedTask {
				if err := s.checkTaskToken(r, rt.Scope); err != nil {
					return err
				}
			}
			var op *Operator
			if needsOperator && !(rt.Open && s.openTo(r)) {
				var err error
				if op, err = s.who(r); err != nil {
					return err
				}
				if err := allow(rt.Needs, op); err != nil {
					return err
				}
			}
			// A deadline stays with a connection: every request sets its own.
			rc, deadline := http.NewResponseController(w), time.Time{}
			if !rt.Stream {
				deadline = s.now().Add(callTimeout + s.opts.BodyTimeout)
			}
			_ = rc.SetWriteDeadline(deadline)
			if !rt.Stream {
				ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
				defer cancel()
				r = r.WithContext(ctx)
			}
			return rt.handle(out, r, op)
		}()
		if err != nil {
			s.fail(out, r, err)
		}
		s.metrics.request(rt, out.status)
	}
}

// fail answers with the problem that an error is.
func (s *Server) fail(w *answer, r *http.Request, err error) {
	if w.status != 0 || errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // too late, or nobody is there to read it
	}
	p := asProblem(err)
	if p.Status == http.StatusInternalServerError {
		s.log.Error("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if p.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "60")
	}
	p.write(w)
}

// answer remembers the status that was sent.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write notes the status that goes without saying.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
