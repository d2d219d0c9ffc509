package api

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
)

// guard wraps everything: what a browser or a stranger must not get through is
// refused before any route is looked at, and a panic becomes a 500.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recovered(w, r)
		if _, unixConn := r.Context().Value(peerKey{}).(peer); !unixConn {
			if p := s.checkOrigin(r); p != nil {
				p.write(w)
				return
			}
		}
		if r.ContentLength != 0 {
			// Also for a body that no handler reads: the server waits for it.
			_ = http.NewResponseController(w).SetReadDeadline(s.now().Add(s.opts.BodyTimeout))
		}
		q := r.URL.Query()
		if q.Has("token") || q.Has("access_token") {
			refuse(http.StatusBadRequest, "a token must not be in a URL; send it in the Authorization header").write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// recovered turns a panic into an answer without its stack, which goes to the
// log.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	s.log.Error("a handler panicked", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	refuse(http.StatusInternalServerError, "internal error; the host's log has the details").write(w)
}

// checkOrigin refuses a name that is not ours (DNS rebinding) and a page that
// is not ours (cross-site requests). There is no CORS.
func (s *Server) checkOrigin(r *http.Request) *problem {
	if !s.ourHost(hostname(r.Host)) {
		return coded(http.StatusForbidden, "foreign_host", "the Host header does not name this listener")
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return coded(http.StatusForbidden, "foreign_origin", "requests from other sites are refused")
	}
	for _, origin := range r.Header.Values("Origin") {
		if !s.ourOrigin(origin, r.Host) {
			return coded(http.StatusForbidden, "foreign_origin", "requests from other origins are refused")
		}
	}
	return nil
}

// ourOrigin says whether a page of this origin is ours: the Control Room, on
// the listener that was asked or on the REST listener.
func (s *Server) ourOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" {
		return false
	}
	if strings.EqualFold(u.Host, host) {
		return true
	}
	return s.opts.RESTPort != "" && u.Port() == s.opts.RESTPort && s.ourHost(hostname(u.Host))
}

func (s *Server) ourHost(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || s.hosts[name] {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// hostname is a Host header without its port, in lower case.
func hostname(hostport string) string {
	name := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	return strings.TrimSuffix(strings.ToLower(name), ".")
}
