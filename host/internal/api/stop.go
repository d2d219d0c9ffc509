package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// A stop that is not to wait answers once the latch holds, whatever the store
// does (W6: under 50 ms): so long it waits for the journal entry, and so long
// for reading it back.
const (
	latchWait = 20 * time.Millisecond
	lookWait  = 15 * time.Millisecond
)

// stop sets the latch and answers with the receipt: the final one if the ladder
// is through within the wait. Nothing on the way to the latch waits for a
// commit, and an answer that the journal does not have yet comes without it.
func (s *Server) stop(w http.ResponseWriter, r *http.Request, op *Operator, reason string, wait time.Duration) error {
	id := r.PathValue("id")
	v, live := s.opts.Engine.Peek(id)
	if !live {
		var err error
		if v, err = s.opts.Engine.Mission(r.Context(), id); err != nil {
			if got := s.opts.Engine.QuarantineReceipt(id); got != nil && !op.Restricted() && errors.Is(err, engine.ErrNotFound) {
				return writeJSON(w, http.StatusOK, got) // the store had lost it, and it was stopped
			}
			return err
		}
	}
	if !op.MaySee(v.Agent) {
		return engine.ErrNotFound
	}
	if got := s.opts.Engine.QuarantineReceipt(id); got != nil && v.State.Terminal() { // a stop again: its receipt again
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		s.opts.Engine.AskIssuers(ctx, id) // those that have not acknowledged
		cancel()
		s.answered(r.Context(), got)
		return writeJSON(w, http.StatusOK, got)
	}
	if v.State.Terminal() && v.State != mission.StateAborted {
		return coded(http.StatusConflict, governance.CodeTerminal, "the mission has ended ("+string(v.State)+"), nothing runs")
	}
	found := stopFound{taskID: id}
	// A harness task can be stopped again and again, each time with a receipt: what
	// is answered is this call's.
	if v.Runtime == "harness" && !v.State.Terminal() {
		if head, err := s.opts.Events.Head(r.Context(), id); err == nil {
			found.since = head.Sequence
		}
	}
	began := s.now().UTC()
	provisional := receipt{TaskID: id, Effective: &began, Running: []any{}, Cancelled: []any{}, Issuers: map[string]any{}, Rungs: []engine.Rung{}}
	if v.State == mission.StateAborted {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		s.opts.Engine.AskIssuers(ctx, id) // those that have not acknowledged
		cancel()
	} else {
		ctx, cancel := context.WithTimeout(r.Context(), max(wait, latchWait))
		defer cancel()
		err := s.opts.Engine.Abort(ctx, id, op.Name, byOperator, reason)
		switch {
		case errors.Is(err, engine.ErrUnavailable): // the latch holds; its evidence does not (F7)
			text := err.Error()
			provisional.Audit = &text
		case err != nil:
			return err
		}
	}
	if got := s.opts.Engine.QuarantineReceipt(id); got != nil {
		return writeJSON(w, http.StatusOK, got)
	}
	ctx, cancel := context.WithTimeout(r.Context(), max(wait-s.now().Sub(began), lookWait))
	defer cancel()
	answer := make(chan any, 1)
	go func() { answer <- found.wait(ctx, s.opts.Events) }()
	var got any
	select {
	case got = <-answer:
	case <-ctx.Done():
		select { // a store that answers gets the time to say what it knows
		case got = <-answer:
		case <-time.After(lookWait):
		}
	}
	if got == nil {
		if stop, at, ok := s.opts.Engine.Stopping(id); ok {
			provisional.StopID, provisional.Effective = stop.ID, &at
		}
		got = provisional
	}
	switch got := got.(type) {
	case *receipt:
		got.climb(s.opts.Engine)
	case map[string]any:
		if v.State == mission.StateAborted {
			s.answered(r.Context(), got)
		}
	}
	return writeJSON(w, http.StatusOK, got)
}

// climb fills in how far the stop has come.
func (r *receipt) climb(e Engine) {
	if rungs := e.Climbing(r.TaskID, r.StopID); rungs != nil {
		r.Rungs = rungs
	}
}

// showStop is GET /tasks/{id}/stops/{stop}; "latest" is the last one of the task.
// Until the receipt is there it answers how far the stop has come.
func (s *Server) showStop(w http.ResponseWriter, r *http.Request, op *Operator) error {
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	found := stopFound{taskID: v.TaskID, id: r.PathValue("stop")}
	if got := s.opts.Engine.QuarantineReceipt(v.TaskID); got != nil && (found.id == "latest" || found.id == got["stop_id"]) {
		return writeJSON(w, http.StatusOK, got)
	}
	if found.id == "latest" {
		found.id, found.past = "", true
	}
	if err := found.look(r.Context(), s.opts.Events); err != nil {
		return err
	}
	switch {
	case found.final != nil:
		s.answered(r.Context(), found.final)
		return writeJSON(w, http.StatusOK, found.final)
	case found.latch != nil:
		found.latch.climb(s.opts.Engine)
		if st, err := s.opts.Engine.TaskStatus(r.Context(), v.TaskID); err == nil && st.Revocation.StopID == found.latch.StopID {
			for ref, res := range st.Revocation.Issuers {
				found.latch.Issuers[ref] = res
			}
		}
		return writeJSON(w, http.StatusOK, found.latch)
	default:
		return engine.ErrNotFound
	}
}

// answered puts into a final receipt what issuers have said since: it was
// written when the ladder was through, and whoever had not acknowledged by then
// goes on being asked. Each answer is in the journal as a revocation_result.
func (s *Server) answered(ctx context.Context, final map[string]any) {
	taskID, _ := final["task_id"].(string)
	st, err := s.opts.Engine.TaskStatus(ctx, taskID)
	if err != nil || st.Revocation.StopID == "" || st.Revocation.StopID != final["stop_id"] || len(st.Revocation.Issuers) == 0 {
		return
	}
	issuers := map[string]any{}
	if was, ok := final["issuers"].(map[string]any); ok {
		maps.Copy(issuers, was)
	}
	for ref, res := range st.Revocation.Issuers {
		issuers[ref] = map[string]any{"result": res.Result, "detail": res.Detail, "evidence": res.Evidence, "attempts": res.Attempts, "at": res.At}
	}
	all := governance.Acknowledged
	for ref := range issuers {
		if r, ok := st.Revocation.Issuers[ref]; !ok || r.Result != governance.Acknowledged {
			all = "partial_failure"
		}
	}
	final["issuers"], final["access_revocation"] = issuers, all
}
