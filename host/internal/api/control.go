package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// controlTask is POST /tasks/{id}/control {"action", "reason"?, "freeze"?}: it
// answers with the new status, or for a stop with the stop receipt.
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
	if !freeze && action != "pause" {
		return badField("freeze", "it goes with the action pause only")
	}
	if action == "stop" {
		return s.stop(w, r, op, reason, wait)
	}
	do := s.control(action, reason, freeze, op)
	if do == nil {
		return badAction(action)
	}
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	if v.State.Terminal() || action == "restart" && v.WaitingFor == "stop" && v.Runtime != harnessRuntime {
		return coded(http.StatusConflict, governance.CodeTerminal, "the mission has ended or is ending ("+string(v.State)+"); dispatch another one")
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	if err := do(ctx, v.MissionID); err != nil {
		return err
	}
	return s.writeStatus(w, r)
}

// harnessRuntime is the runtime of a task whose agent runs outside of any cell;
// only such a task can be restarted after a stop.
const harnessRuntime = "harness"

// control finds what an action does; nil for one that there is not.
func (s *Server) control(action, reason string, freeze bool, op *Operator) func(ctx context.Context, id string) error {
	e := s.opts.Engine
	switch action {
	case "pause":
		return func(ctx context.Context, id string) error {
			if freeze {
				return e.Pause(ctx, id, op.Name, reason)
			}
			return e.PauseGate(ctx, id, op.Name, reason)
		}
	case "resume":
		return func(ctx context.Context, id string) error { return e.Resume(ctx, id, op.Name, reason) }
	case "restart":
		return func(ctx context.Context, id string) error { return e.Restart(ctx, id, op.Name) }
	case "replan":
		return func(ctx context.Context, id string) error { return e.Replan(ctx, id, op.Name, reason) }
	}
	return nil
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
