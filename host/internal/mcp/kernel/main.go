package kernel

import (
	"context"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// main gets leave for the main call, writes its intent, dispatches it, writes
// what came of it, and runs the phase after.
func (r *run) main(ctx context.Context, req any) Answer {
	by := r.c.by()
	leave, denied := r.admit(ctx, by, req)
	if denied != nil {
		return r.unbegun(ctx, *denied)
	}
	if r.row != nil {
		if err := r.k.opts.Service.Intend(ctx, r.row, leave.CallID); err != nil {
			if leave.Abandon != nil {
				leave.Abandon()
			}
			// Without its intent nothing is dispatched: absence proves that main
			// never ran.
			return r.unbegun(ctx, *stopped(err))
		}
	}
	settled := make(chan struct{})
	defer close(settled)
	by.CallID, by.Leave, by.Row, by.Settled = leave.CallID, leave.Leave, r.row, settled
	if leave.Request != nil {
		req = leave.Request
	}
	res := r.dispatch(ctx, by, req)

	// From here on the request does not matter any more.
	ctx, cancel := r.detached(ctx)
	defer cancel()
	why := ""
	if r.phases != nil && r.phases.After != nil {
		why = r.skip(res)
	}
	if r.row != nil {
		m := workflow.MainOutcome{State: res.State, StateChanged: res.Change.wire()}
		if err := r.k.opts.Service.Settle(ctx, r.row, m, why); err != nil {
			r.unrecorded(err)
		}
	}
	if r.control != nil {
		r.control.Main = mainView(res)
		r.after(ctx, why)
	}
	return r.answer(ctx, res)
}

// admit asks for leave where the tool needs it. A panic there is before the
// dispatch, and still nobody knows whether leave was taken.
func (r *run) admit(ctx context.Context, by By, req any) (a Admission, denied *Result) {
	t := r.c.Tool
	if t.admit == nil {
		return Admission{}, nil
	}
	defer func() {
		var res Result
		if r.caught(recover(), t.Name, errMainPanicked, &res) {
			denied = &res
		}
	}()
	return t.admit(ctx, by, req)
}

func (r *run) dispatch(ctx context.Context, by By, req any) (res Result) {
	defer r.recovered(r.c.Tool.Name, errMainPanicked, &res)
	return r.c.Tool.run(ctx, by, req).valid()
}

// unbegun ends a call whose main part was not let in, after the phase before may
// have been committed.
func (r *run) unbegun(ctx context.Context, why Result) Answer {
	if r.control != nil {
		r.control.Main = mainView(why)
		r.control.After = skipped(r.phases.After, skipNotStarted)
	}
	r.forget(ctx)
	return r.answer(ctx, why)
}

// skip says why the phase after is not run; empty when it is (R24 to R26).
func (r *run) skip(main Result) string {
	switch main.State {
	case workflow.Succeeded:
	case workflow.Started:
		return skipNotCompleted
	case workflow.Unknown:
		return skipUnknown
	case workflow.NeverStarted:
		return skipNotStarted
	default:
		return skipFailed
	}
	// Only what ends something asks whether the work may be closed; a todo asks
	// no more than that the call succeeded.
	if r.phases.After.Kind.Closing() {
		out, err := main.body(nil)
		if err != nil || blocking(out) {
			return skipBlocking
		}
	}
	return ""
}

// after runs the phase after, unless there is a reason not to. It never changes
// what is said of the main call (R32).
func (r *run) after(ctx context.Context, why string) {
	m := r.phases.After
	if m == nil {
		return
	}
	if why != "" {
		r.control.After = skipped(m, why)
		return
	}
	res := r.mutate(ctx, m, workflow.After)
	r.control.After = phaseView(m.Kind, res)
	if res.State == workflow.Unknown {
		if err := r.k.opts.Service.Note(ctx, r.row, workflow.After, *r.control.After.outcome()); err != nil {
			r.unrecorded(err)
		}
	}
}

// decorate adds what the envelope asked to see beside its control member.
func (r *run) decorate(ctx context.Context, extra map[string]any) {
	env := r.c.Envelope
	if env == nil || ctx.Err() != nil {
		return
	}
	if env.Record != "" && r.recorded {
		if a := r.attention(ctx); a != nil {
			extra["session_attention"] = a
		}
	}
	if len(env.Context) > 0 && r.recorded {
		extra["context_projection"] = r.context(ctx)
	}
}
