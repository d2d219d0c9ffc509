package api

import (
	"encoding/hex"
	"net/http"
	"slices"
)

// taskTokenLen is the length of a task token: 32 random bytes in hex.
const taskTokenLen = 64

// checkTaskToken lets a harness in with the token of the task in the path, and
// with no other credential. The token of another task finds no task: it must
// not learn which ones there are.
func (s *Server) checkTaskToken(r *http.Request, scope string) error {
	token, has := bearer(r)
	if !has {
		return refuse(http.StatusUnauthorized, "the task's token is needed: Authorization: Bearer TOKEN")
	}
	if s.operators.Load().find(token) != nil {
		return coded(http.StatusForbidden, "task_token", "an operator's token is no task token: this route takes the one that POST /tasks gave")
	}
	scopes, ok := s.opts.Engine.TaskToken(r.Context(), r.PathValue("id"), token)
	if !ok {
		p := s.denied(r, "this is no task token")
		if _, err := hex.DecodeString(token); err == nil && len(token) == taskTokenLen && p.Status == http.StatusUnauthorized {
			return refuse(http.StatusNotFound, "not found")
		}
		return p
	}
	if !slices.Contains(scopes, scope) {
		return coded(http.StatusForbidden, "scope", "the token is not good for this: its scopes do not have "+scope)
	}
	return nil
}
