package engine

import (
	"context"
	"slices"
	"strings"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// wake is a wake of the mission's agent that its next session is told of; the
// zero wake is none.
type wake struct{ id, text string }

// wakeOf prepares the wake that waits for a mission's agent. A workflow that
// cannot be read keeps no session from being started: the agent then finds its
// wake with get_mission_context.
func (e *Engine) wakeOf(ctx context.Context, a *actor) wake {
	if a.state().StartedAt == nil {
		return wake{} // its first session was not woken
	}
	p, waits, err := e.flow.Resume(ctx, workflow.Owner(a.id))
	if err != nil {
		e.log.Warn("the wake of a mission could not be prepared", "mission", a.id, "error", workflow.KindOf(err))
	}
	if err != nil || !waits {
		return wake{}
	}
	return wake{id: p.Context.Wake.WakeID, text: p.Text}
}

// told records whether a session that was started has been told of its wake: a
// runtime that has no prompt has left it out of its plan, and the wake waits on.
func (e *Engine) told(ctx context.Context, a *actor, w wake, plan *pluginv1.LaunchPlan) {
	if w.id == "" {
		return
	}
	d := workflow.DeliveredNo
	if carries(plan, w.id) {
		d = workflow.DeliveredYes
	}
	if err := e.flow.Delivered(ctx, workflow.Owner(a.id), w.id, d); err != nil {
		e.log.Warn("the delivery of a wake could not be recorded", "mission", a.id, "error", workflow.KindOf(err))
	}
}

// carries says whether a plan has a text anywhere that the session reads.
func carries(plan *pluginv1.LaunchPlan, text string) bool {
	has := func(s string) bool { return strings.Contains(s, text) }
	if slices.ContainsFunc(plan.GetArgv(), has) {
		return true
	}
	for _, value := range plan.GetEnv() {
		if has(value) {
			return true
		}
	}
	for _, f := range plan.GetFiles() {
		if has(string(f.GetContent())) {
			return true
		}
	}
	return false
}
