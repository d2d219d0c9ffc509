package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

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
		token, ok := bearer(r)
		if !ok || s.opts.Token == nil {
			unauthorized(w)
			return
		}
		owner, scopes, ok := s.opts.Token(r.Context(), token)
		if !ok {
			unauthorized(w)
			return
		}
		s.handler.ServeHTTP(w, r.WithContext(withCaller(r.Context(), kernel.Caller{Owner: owner, Scopes: scopes})))
	})
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="airlock"`)
	rpcError(w, http.StatusUnauthorized, -32600, "a task token is needed: Authorization: Bearer TOKEN")
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
			rpcError(w, http.StatusRequestEntityTooLarge, -32600, fmt.Sprintf("the body is larger than %d bytes", MaxBody))
			return
		case err != nil:
			rpcError(w, http.StatusBadRequest, -32700, "the body could not be read to its end")
			return
		}
		v, err := strict.Parse(body)
		switch {
		case err != nil:
			rpcError(w, http.StatusBadRequest, -32700, err.Error())
			return
		case v.Kind == strict.Array:
			rpcError(w, http.StatusBadRequest, -32600, "there are no batches")
			return
		case v.Kind != strict.Object:
			rpcError(w, http.StatusBadRequest, -32600, "a request is an object")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// rpcError answers a request that cannot be read so far that its id is known.
func rpcError(w http.ResponseWriter, status, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`, code, text)
}
