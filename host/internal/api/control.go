package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// controlTask is POST /tasks/{id}/control {"action", "reason"?}: it answers
// with the new status, or for a stop with the stop receipt.
func (s *Server) controlTask(w http.ResponseWriter, r *http.Request, op *Operator) error {
	var action, reason string
	freeze := true
	err := s.readBody(w, r, false, member{"action", &action, true}, member{"reason", &reason, false}, member{"freeze", &freeze, false})
	if err != nil {
		return err
	}
	wait, err := stopWait(r)
	if err != nil {
		return err
	}
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	id := v.MissionID
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	switch action {
	case "pause":
		if !freeze {
			return coded(http.StatusUnprocessableEntity, "not_available", "a pause without a freeze is not available on this host")
		}
		err = s.opts.Engine.Pause(ctx, id, op.Name, reason)
	case "resume":
		err = s.opts.Engine.Resume(ctx, id, op.Name, reason)
	case "stop":
		return s.stop(ctx, w, op, v, reason, wait)
	case "restart":
		if v.State.Terminal() {
			return coded(http.StatusConflict, "terminal", "the mission has ended ("+string(v.State)+"); dispatch another one")
		}
		err = s.opts.Engine.Restart(ctx, id, op.Name)
	case "replan":
		return coded(http.StatusUnprocessableEntity, "not_available", "replan is not available on this host")
	default:
		return badAction(action)
	}
	if err != nil {
		return err
	}
	if v, err = s.opts.Engine.Mission(r.Context(), id); err != nil {
		return err
	}
	st, err := s.status(r, v)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, st)
}

func badAction(action string) *problem {
	p := refuse(http.StatusUnprocessableEntity, "action: it must be pause, resume, stop, restart or replan, not "+strconv.Quote(action))
	p.Field = "action"
	return p
}

// stopWait reads ?wait=: seconds or a duration, at most a minute; a second when
// it is not there.
func stopWait(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil || d < 0 {
		return 0, badField("wait", "it must be seconds or a duration such as 500ms")
	}
	return min(d, time.Minute), nil
}

// receipt is a stop receipt before the ladder is through (governance 3G): it
// says nothing about access, since that is not known yet.
type receipt struct {
	TaskID    string         `json:"task_id"`
	StopID    string         `json:"stop_id"`
	Epoch     *uint64        `json:"epoch"`
	Effective *time.Time     `json:"effective_at"`
	Running   []any          `json:"running"`
	Cancelled []any          `json:"cancellation_requests"`
	Issuers   map[string]any `json:"issuers"`
	Isolation any            `json:"isolation"`
	Audit     *string        `json:"audit_error"`
	Final     bool           `json:"final"`
}

// stop sets the latch and answers with the receipt: the final one if the ladder
// is through within the wait.
func (s *Server) stop(ctx context.Context, w http.ResponseWriter, op *Operator, v mission.View, reason string, wait time.Duration) error {
	head, err := s.opts.Events.Head(ctx, v.TaskID)
	if err != nil {
		head.Sequence = 0 // a broken store does not keep a stop from happening
	}
	after := head.Sequence
	switch {
	case v.State == mission.StateAborted:
		after = 0 // stopped already: the same receipt again
	case v.State.Terminal():
		return coded(http.StatusConflict, "terminal", "the mission has ended ("+string(v.State)+"), nothing runs")
	default:
		if err := s.opts.Engine.Abort(ctx, v.MissionID, op.Name, byOperator, reason); err != nil {
			return err
		}
		if v.WaitingFor == "stop" {
			after = 0 // the latch is older than this call
		}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	found := stopFound{taskID: v.TaskID}
	for {
		changed := s.opts.Events.EventsChanged(v.TaskID)
		// The read itself is not cut short: with wait=0 there is one look.
		if after, err = found.scan(context.WithoutCancel(ctx), s.opts.Events, after); err != nil {
			return err
		}
		if found.final != nil {
			return writeJSON(w, http.StatusOK, found.final)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return writeJSON(w, http.StatusOK, found.provisional())
		}
	}
}

// stopFound is what a task's journal says of its last stop, or of the one with
// the id.
type stopFound struct {
	taskID, id string
	latch      *receipt
	final      map[string]any
}

// scan reads on from a sequence and gives the last one read.
func (f *stopFound) scan(ctx context.Context, events Events, after uint64) (uint64, error) {
	for {
		page, err := events.Events(ctx, f.taskID, after, maxPage)
		if err != nil {
			return after, err
		}
		for i := range page {
			f.take(&page[i])
		}
		if len(page) == 0 {
			return after, nil
		}
		after = page[len(page)-1].Sequence
	}
}

func (f *stopFound) take(ev *journal.Event) {
	if ev.Kind != journal.Stop && ev.Kind != journal.StopAcknowledged {
		return
	}
	var p struct {
		ID      string         `json:"id"`
		StopID  string         `json:"stop_id"`
		Epoch   *uint64        `json:"epoch"`
		Receipt map[string]any `json:"receipt"`
	}
	if json.Unmarshal([]byte(ev.Payload), &p) != nil {
		return
	}
	if p.StopID == "" {
		p.StopID = p.ID
	}
	if f.id != "" && f.id != p.StopID {
		return
	}
	if ev.Kind == journal.Stop {
		at := ev.Timestamp
		f.latch = &receipt{
			TaskID: f.taskID, StopID: p.StopID, Epoch: p.Epoch, Effective: &at,
			Running: []any{}, Cancelled: []any{}, Issuers: map[string]any{},
		}
		return
	}
	f.final = map[string]any{"task_id": f.taskID, "stop_id": p.StopID}
	for k, v := range p.Receipt {
		f.final[k] = v
	}
	f.final["final"] = true
}

// provisional is the receipt of a stop whose latch holds.
func (f *stopFound) provisional() receipt {
	if f.latch != nil {
		return *f.latch
	}
	return receipt{TaskID: f.taskID, Running: []any{}, Cancelled: []any{}, Issuers: map[string]any{}}
}

// showStop is GET /tasks/{id}/stops/{stop}.
func (s *Server) showStop(w http.ResponseWriter, r *http.Request, op *Operator) error {
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	found := stopFound{taskID: v.TaskID, id: r.PathValue("stop")}
	if _, err := found.scan(r.Context(), s.opts.Events, 0); err != nil {
		return err
	}
	switch {
	case found.final != nil:
		return writeJSON(w, http.StatusOK, found.final)
	case found.latch != nil:
		return writeJSON(w, http.StatusOK, found.provisional())
	default:
		return engine.ErrNotFound
	}
}
