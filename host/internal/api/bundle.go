package api

import (
	"fmt"
	"net/http"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/evidence"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// bundleTask is GET /tasks/{id}/bundle: the evidence bundle of a task up to now,
// its head signed by the host. A journal that does not verify is none: 409.
func (s *Server) bundleTask(w http.ResponseWriter, r *http.Request, op *Operator) error {
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	if s.opts.Sign == nil {
		return fmt.Errorf("%w: this host has no key to sign heads with", engine.ErrUnavailable)
	}
	select {
	case s.verifying <- struct{}{}:
		defer func() { <-s.verifying }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	head, _, err := s.opts.Events.Check(r.Context(), v.TaskID)
	if err != nil {
		return fmt.Errorf("%w: no evidence is made of a journal that does not verify: %w", engine.ErrConflict, err)
	}
	out, err := evidence.NewWriter(w, head)
	if err != nil {
		return err
	}
	if err := s.sendEvents(w, r, head, out.Event); err != nil {
		return err
	}
	if out.Close(s.opts.Sign(journal.NewHead{Head: head, Ended: false})) != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
