package orchestrator

import (
	"crypto/subtle"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/gorilla/mux"
)

// maxBody is the largest request body that is read.
const maxBody = 4 << 20

// Handler serves every route. Paths are matched as they were sent: a mission id
// may hold an encoded slash or be a dot.
func (o *Orchestrator) Handler() http.Handler {
	r := mux.NewRouter().SkipClean(true).UseEncodedPath()
	r.HandleFunc("/api/v1/executors/register", o.handleRegister).Methods("POST")
	r.HandleFunc("/api/v1/executors", o.handleExecutors).Methods("GET")
	r.HandleFunc("/api/v1/executors/{id}", o.handleExecutor).Methods("GET")
	r.HandleFunc("/api/v1/executors/{id}", o.handleDelete).Methods("DELETE")
	r.HandleFunc("/ws/executors/{id}", o.handleSocket)
	r.HandleFunc("/api/v1/sessions/{id}/dispatch", o.operator(o.handleDispatch)).Methods("POST")
	r.HandleFunc("/api/v1/missions/{id}", o.handleMission).Methods("GET")
	r.HandleFunc("/api/v1/missions/{id}/hitl_response", o.operator(o.handleAnswer)).Methods("POST")
	for _, verb := range []string{"pause", "resume", "abort"} {
		r.HandleFunc("/api/v1/missions/{id}/"+verb, o.operator(o.handleVerb(verb))).Methods("POST")
	}
	r.HandleFunc("/api/sandboxes/register", o.handleSandbox).Methods("POST")
	r.HandleFunc("/ws/sandbox/{id}", o.handleSandboxSocket)
	r.HandleFunc("/api/hitl", o.operator(o.handleHITL)).Methods("GET")
	r.HandleFunc("/api/hitl/{id}/respond", o.operator(o.handleSandboxAnswer)).Methods("POST")
	r.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fail(w, 404, "Not found") })
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		o.mu.Lock()
		down := o.down
		o.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler) // closes the connection without an answer
		}
		if h := o.opt.Hooks.Intercept; h != nil && h(w, req) {
			return
		}
		if !local(req) {
			fail(w, 403, "not for this host or origin")
			return
		}
		r.ServeHTTP(w, req)
	})
}

// local refuses a page in the operator's browser: by a name that resolves to
// the loopback, or by its Origin.
func local(r *http.Request) bool {
	if !loopbackHost(r.Host) {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || (ip != nil && ip.IsLoopback())
}

func (o *Orchestrator) operator(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if want := o.opt.OperatorToken; want != "" && !same(bearer(r), want) {
			fail(w, 401, "Unauthorized")
			return
		}
		next(w, r)
	}
}

func bearer(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return token
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// pathVar is a path segment, decoded.
func pathVar(r *http.Request, name string) string {
	raw := mux.Vars(r)[name]
	if s, err := url.PathUnescape(raw); err == nil {
		return s
	}
	return raw
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, status int, text string) {
	reply(w, status, map[string]string{"error": text})
}

// readBody reads a JSON body into v (any) and keeps its bytes.
func readBody(r *http.Request) (raw []byte, v any, err error) {
	raw, err = io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, nil, err
	}
	return raw, v, json.Unmarshal(raw, &v)
}
