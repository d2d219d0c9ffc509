package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
)

type callerKey struct{}

// callerOf is who a request is from, as the way that it came has proven.
func callerOf(ctx context.Context) (kernel.Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(kernel.Caller)
	return c, ok
}

func withCaller(ctx context.Context, c kernel.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// HTTP is the endpoint for agents outside of cells: a task token says whose the
// call is.
func (s *Server) HTTP() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, has := bearer(r)
		if !has || s.opts.Token == nil {
			unauthorized(w)
			return
		}
		owner, scopes, ok := s.opts.Token(r.Context(), token)
		switch {
		case !ok && s.opts.Wrong != nil && s.opts.Wrong(r):
			w.Header().Set("Retry-After", "60")
			rpcError(w, http.StatusTooManyRequests, "", codeInvalidRequest, "too many wrong credentials; wait a minute")
		case !ok:
			unauthorized(w)
		case len(scopes) == 0:
			w.Header().Set("WWW-Authenticate", `Bearer realm="airlock", error="insufficient_scope", scope="mcp"`)
			rpcError(w, http.StatusForbidden, "", codeInvalidRequest,
				"insufficient_scope: the task's token is good, but has no scope of this endpoint: mcp, or one of those of its tools")
		default:
			s.handler.ServeHTTP(w, r.WithContext(withCaller(r.Context(), kernel.Caller{Owner: owner, Scopes: scopes})))
		}
	})
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="airlock"`)
	rpcError(w, http.StatusUnauthorized, "", codeInvalidRequest, "a task token is needed: Authorization: Bearer TOKEN")
}

// strictly reads the body before the SDK does, which takes the last of two
// members of one name: what can be read in two ways is refused.
func (s *Server) strictly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			rpcError(w, http.StatusRequestEntityTooLarge, "", codeInvalidRequest, fmt.Sprintf("the body is larger than %d bytes", MaxBody))
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			rpcError(w, http.StatusRequestTimeout, "", codeInvalidRequest, "the body did not come in time")
			return
		case err != nil:
			rpcError(w, http.StatusBadRequest, "", codeParse, "the body could not be read to its end")
			return
		}
		v, err := strict.Parse(body)
		switch {
		case err != nil:
			rpcError(w, http.StatusBadRequest, "", codeParse, err.Error())
			return
		case v.Kind == strict.Array:
			rpcError(w, http.StatusBadRequest, "", codeInvalidRequest, "there are no batches")
			return
		case v.Kind != strict.Object:
			rpcError(w, http.StatusBadRequest, "", codeInvalidRequest, "a request is an object")
			return
		}
		if f := frame(v); f != nil {
			rpcError(w, http.StatusBadRequest, f.id, f.code, f.text)
			return
		}
		if cc := cellOf(r.Context()); cc != nil {
			if !cc.begin() {
				w.Header().Set("Retry-After", "1")
				rpcError(w, http.StatusServiceUnavailable, string(v.Get("id").Raw), codeBusy, "this mission has as many calls under way as it may have; try again")
				return
			}
			defer cc.end()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// rpcError answers a message that the SDK does not get to see. An id that is
// empty is not known.
func rpcError(w http.ResponseWriter, status int, id string, code int, text string) {
	if id == "" {
		id = "null"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	message, _ := json.Marshal(text) // a string always marshals
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code, message)
}
