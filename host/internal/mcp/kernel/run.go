package kernel

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// run is one call on its way.
type run struct {
	k       *Kernel
	c       *Call
	phases  *envelope.Phases // nil: the call has no control member
	control *Control         // likewise
	row     *workflow.Call   // nil: the call leaves no row
	// What the envelope's messages came to, before main.
	ack     *workflow.AckResult
	resolve *resolved
	// recorded: the recorder is authorized and the call is past its admission.
	recorded bool
}

// all is the order of a call (R19).
func (r *run) all(ctx context.Context) (Answer, error) {
	if refused := r.k.admission(r.c); refused != nil {
		return r.refused(*refused), nil
	}
	if refused := r.recorder(ctx); refused != nil {
		return r.refused(*refused), nil
	}
	if !r.c.Caller.May(r.c.Tool.Scope) {
		return r.refused(Refuse(errScope, "the token's scopes do not cover this tool", workflow.UserAction)), nil
	}
	req, err := r.c.Tool.decode(r.c.Args)
	if err != nil {
		if r.control == nil {
			return Answer{}, &ArgumentError{Text: err.Error()}
		}
		return r.refused(Refuse(errArguments, err.Error(), workflow.FixInput)), nil
	}
	if refused := r.target(ctx, req); refused != nil {
		return r.refused(*refused), nil
	}
	if refused := r.open(); refused != nil {
		return r.refused(*refused), nil
	}
	defer r.close()
	r.recorded = true
	if refused := r.messages(ctx); refused != nil {
		a := r.refused(*refused)
		r.forget(ctx)
		return a, nil
	}
	if failed := r.before(ctx); failed != nil {
		r.forget(ctx)
		return r.answer(ctx, *failed), nil
	}
	return r.main(ctx, req), nil
}

// refused ends a call of which nothing has run.
func (r *run) refused(why Result) Answer {
	if r.control != nil {
		r.control.Main = mainView(why)
		r.control.Before = skipped(r.phases.Before, skipRejected)
		if r.control.Before != nil && why.Fault.Kind == errReserved {
			r.control.Before.ErrorKind = errReserved
		}
		r.control.After = skipped(r.phases.After, skipNotStarted)
	}
	return r.answer(context.Background(), why)
}

// recorder authorizes the session that the call is recorded in.
func (r *run) recorder(ctx context.Context) *Result {
	if r.c.Envelope == nil || r.c.Envelope.Record == "" {
		return nil
	}
	if _, err := r.k.opts.Service.Recorder(ctx, r.c.Caller.Owner, r.c.Envelope.Record); err != nil {
		return stopped(err)
	}
	return nil
}

// stopped is an error of the domain that ends a call before its main part.
func stopped(err error) *Result {
	res := FromError(err)
	res.State, res.Change, res.Output = workflow.NeverStarted, Unchanged, nil
	return &res
}

// target authorizes what the main call is about, before anything is changed on
// its behalf.
func (r *run) target(ctx context.Context, req any) *Result {
	t := r.c.Tool
	if t.session != nil {
		_, err := r.k.opts.Service.Recorder(ctx, r.c.Caller.Owner, t.session(req))
		// A session that is closed is the tool's to judge.
		if kind := workflow.KindOf(err); err != nil && kind != "session_closed" {
			return stopped(err)
		}
	}
	if t.validate != nil {
		return t.validate(ctx, r.c.by(), req)
	}
	return nil
}

// open begins the row of a call that leaves one.
func (r *run) open() *Result {
	if r.control == nil && r.c.Nonce == "" {
		return nil
	}
	n := workflow.NewCall{Tool: r.c.Tool.Name, Nonce: r.c.Nonce, Effect: r.c.Tool.Effect}
	if p := r.phases; p != nil && p.Before != nil {
		n.BeforeKind = string(p.Before.Kind)
	}
	if p := r.phases; p != nil && p.After != nil {
		n.AfterKind = string(p.After.Kind)
	}
	row, err := r.k.opts.Service.Open(r.c.Caller.Owner, n)
	if err != nil {
		return stopped(err)
	}
	r.row = row
	return nil
}

func (r *run) close() {
	if r.row != nil {
		r.k.opts.Service.Close(r.row)
	}
}

// messages resolves and acknowledges what the envelope names.
func (r *run) messages(ctx context.Context) *Result {
	env := r.c.Envelope
	if env == nil {
		return nil
	}
	by := r.c.by().Caller
	if m := env.Resolve; m != nil {
		in := workflow.ResolveMessage{SessionID: env.Record, MessageID: m.MessageID, Resolution: m.Resolution}
		got, err := r.k.opts.Service.ResolveMessage(ctx, by, in)
		if err != nil {
			return stopped(err)
		}
		r.resolve = &resolved{MessageID: got.Message.MessageID, StateChanged: got.StateChanged, Replayed: got.Replayed}
	}
	if len(env.Ack) > 0 {
		got, err := r.k.opts.Service.Ack(ctx, by, env.Record, env.Ack)
		if err != nil {
			return stopped(err)
		}
		r.ack = &got
	}
	return nil
}

// before runs the phase before. What it gives ends the call: main is not begun.
func (r *run) before(ctx context.Context) *Result {
	if r.phases == nil || r.phases.Before == nil {
		return nil
	}
	m := r.phases.Before
	res := r.mutate(ctx, m, workflow.Before)
	r.control.Before = phaseView(m.Kind, res)
	if res.Success() {
		return nil
	}
	r.control.After = skipped(r.phases.After, skipNotStarted)
	f := Refuse(errBefore, fmt.Sprintf("before %s: %s; the main call was not begun", m.Kind, code(res.Fault.Kind)), res.Fault.Recovery)
	f.Fault.Revision = res.Fault.Revision
	r.control.Main = mainView(f)
	return &f
}

// mutate runs the canonical tool of a phase, through the entry that it has when
// it is called alone. It has the caller's scopes and the recorder's voice; it
// has no envelope and no capability.
func (r *run) mutate(ctx context.Context, m *envelope.Mutation, p workflow.Phase) (res Result) {
	by := By{Caller: workflow.Caller{Owner: r.c.Caller.Owner, Session: r.c.Envelope.Record, Call: r.row, Phase: p}}
	t := r.k.byName[m.Kind.Tool()]
	defer func() { r.k.opts.Observe(Observation{Tool: t.Name, Kind: m.Kind, State: res.State}) }()
	defer r.recovered(t.Name, errPhasePanicked, &res)
	return t.run(ctx, by, m.Request).valid()
}

// recovered makes an unknown outcome of a panic.
func (r *run) recovered(tool, kind string, res *Result) { r.caught(recover(), tool, kind, res) }

// caught says whether there was a panic. What panicked is in the log, without
// its value: that may hold what a caller sent.
func (r *run) caught(v any, tool, kind string, res *Result) bool {
	if v == nil {
		return false
	}
	r.k.opts.Log.Error("a tool panicked", "tool", tool, "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
	*res = Unsure(kind, "the host failed while it worked on this; whether anything was changed is not known")
	return true
}

// detached is a context that outlives the request: what follows a dispatch is
// carried through, whether somebody still reads the answer or not.
func (r *run) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), r.k.opts.PhaseTimeout)
}

// forget records that main was not begun.
func (r *run) forget(ctx context.Context) {
	if r.row == nil {
		return
	}
	ctx, cancel := r.detached(ctx)
	defer cancel()
	var before, after *workflow.PhaseOutcome
	if r.control != nil {
		before, after = r.control.Before.outcome(), r.control.After.outcome()
	}
	if err := r.k.opts.Service.Refuse(ctx, r.row, before, after); err != nil {
		r.unrecorded(err)
	}
}

// unrecorded says that a fact about a call is not in its row. The answer says
// it all the same.
func (r *run) unrecorded(err error) {
	r.k.opts.Log.Warn("what came of a call could not be recorded", "invocation", r.row.ID, "error", workflow.KindOf(err))
}

// answer puts everything together.
func (r *run) answer(ctx context.Context, res Result) Answer {
	extra := map[string]any{}
	if r.control != nil {
		extra["control"] = r.control
	}
	if r.row != nil {
		extra["invocation_id"] = r.row.ID
	}
	r.decorate(ctx, extra)
	if res.Fault != nil && res.Change == Unchanged && r.wroteMessages() {
		extra["state_changed"] = true // the main call has changed nothing, and this call has
	}
	a := Answer{Success: res.Success(), Control: r.control, State: res.State}
	var err error
	if a.Output, err = res.body(extra); err != nil {
		// It ran, and only its answer cannot be written.
		r.k.opts.Log.Error("an answer could not be written", "tool", r.c.Tool.Name, "error", err)
		res = Unsure("result_serialization_failed", "the call ran, and its answer could not be written")
		if r.control != nil {
			r.control.Main = mainView(res)
		}
		a.Success, a.State = false, res.State
		a.Output, _ = res.body(extra)
	}
	if res.Fault != nil {
		a.Error = res.Fault.Kind + ": " + res.Fault.Message
		a.Note = a.Error
	}
	r.k.opts.Observe(Observation{Tool: r.c.Tool.Name, State: res.State})
	return a
}
