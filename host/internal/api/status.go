package api

import (
	"net/http"
)

// taskStatus is GET /tasks/{id}/status: governance 3F as the engine fills it.
// What no stage evaluates is null or named in not_evaluated, never made up.
func (s *Server) taskStatus(w http.ResponseWriter, r *http.Request, op *Operator) error {
	if _, err := s.visible(r.Context(), op, r.PathValue("id")); err != nil {
		return err
	}
	return s.writeStatus(w, r)
}

// writeStatus answers with the status of the task in the path.
func (s *Server) writeStatus(w http.ResponseWriter, r *http.Request) error {
	st, err := s.opts.Engine.TaskStatus(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, st)
}
