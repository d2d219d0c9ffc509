package api

import (
	"errors"
	"net/http"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// maxVerifying is how many journals are verified at a time for people who ask.
const maxVerifying = 2

// verified is the answer of GET /tasks/{id}/verify.
type verified struct {
	TaskID  string     `json:"task_id"`
	Valid   bool       `json:"valid"`
	Good    headShown  `json:"good"`    // the last event up to which the chain is good
	Trusted *headShown `json:"trusted"` // the signed head that it was held against; null: there is none
	Fault   *faultSeen `json:"fault"`   // null while it is valid
}

type headShown struct {
	Sequence uint64 `json:"sequence"`
	Digest   string `json:"digest"`
}

// faultSeen is where a chain breaks. Sequence is 0 where it is not one event.
type faultSeen struct {
	Kind     string `json:"kind"`
	Sequence uint64 `json:"sequence"`
	Detail   string `json:"detail"`
}

// verifyTask checks the whole journal of a task, as a restart would: every
// digest and link, and the signed head outside of the data directory.
func (s *Server) verifyTask(w http.ResponseWriter, r *http.Request, op *Operator) error {
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	select {
	case s.verifying <- struct{}{}:
		defer func() { <-s.verifying }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	good, trusted, err := s.opts.Events.Check(r.Context(), v.TaskID)
	out := verified{TaskID: v.TaskID, Valid: err == nil, Good: headShown{good.Sequence, good.Digest.String()}}
	if trusted != nil {
		out.Trusted = &headShown{trusted.Sequence, trusted.Digest.String()}
	}
	var chain *journal.ChainError
	switch {
	case errors.As(err, &chain):
		out.Fault = &faultSeen{string(chain.Fault), chain.Sequence, chain.Detail}
	case r.Context().Err() != nil:
		return r.Context().Err()
	case err != nil: // the journal could not be read, or its trusted head not relied on
		out.Fault = &faultSeen{"unverifiable", 0, err.Error()}
	}
	return writeJSON(w, http.StatusOK, out)
}
