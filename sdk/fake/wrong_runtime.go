package fake

import (
	"context"
	"fmt"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/runtime"
)

// WrongRuntime is a way in which a runtime can be wrong.
type WrongRuntime struct {
	// Name says what is wrong.
	Name string
	// Check is the check of the conformance kit that must see it.
	Check string
	// Runtime is a Runtime with that one thing wrong.
	Runtime func() runtime.Runtime
}

type wrongRuntime struct {
	*Runtime
	plan func(*pluginv1.LaunchPlan)
	say  func(in *pluginv1.RunRequest) []*pluginv1.RunResponse // beside what is right
	out  func(*pluginv1.RunResponse) *pluginv1.RunResponse     // instead of what is right; nil = nothing
	deaf bool                                                  // does not close after the exit
}

func (w *wrongRuntime) Plan(ctx context.Context, req *pluginv1.PlanRequest) (*pluginv1.PlanResponse, error) {
	r, err := w.Runtime.Plan(ctx, req)
	if err == nil && w.plan != nil {
		w.plan(r.GetPlan())
	}
	return r, err
}

func (w *wrongRuntime) Run(stream runtime.Stream) error {
	for {
		in, err := stream.Recv()
		if err != nil {
			return nil
		}
		var all []*pluginv1.RunResponse
		if m := answer(in); m != nil {
			if w.out != nil {
				m = w.out(m)
			}
			if m != nil {
				all = append(all, m)
			}
		}
		if w.say != nil {
			all = append(w.say(in), all...)
		}
		for _, m := range all {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		if in.GetExit() != nil && !w.deaf {
			return nil
		}
	}
}

// WrongRuntimes are runtimes with one thing wrong each.
func WrongRuntimes() []WrongRuntime {
	one := func(name, check string, w wrongRuntime) WrongRuntime {
		return WrongRuntime{name, check, func() runtime.Runtime {
			mine := w
			mine.Runtime = NewRuntime()
			return &mine
		}}
	}
	write := func(key string) *pluginv1.RunResponse {
		return &pluginv1.RunResponse{Message: &pluginv1.RunResponse_Write{Write: &pluginv1.Write{Key: key, Data: []byte("y\n")}}}
	}
	onOutput := func(m func() *pluginv1.RunResponse) func(*pluginv1.RunRequest) []*pluginv1.RunResponse {
		return func(in *pluginv1.RunRequest) []*pluginv1.RunResponse {
			if in.GetOutput() == nil {
				return nil
			}
			return []*pluginv1.RunResponse{m()}
		}
	}
	return []WrongRuntime{
		one("the boundary is left open", "plan-valid", wrongRuntime{plan: func(p *pluginv1.LaunchPlan) { p.Boundary = 0 }}),
		one("a governed agent may lose output", "plan-valid", wrongRuntime{plan: func(p *pluginv1.LaunchPlan) {
			p.Boundary, p.OnFull, p.Output = pluginv1.Boundary_BOUNDARY_PROTOCOL, pluginv1.OnFull_ON_FULL_DROP_OLDEST, pluginv1.OutputNeed_OUTPUT_NEED_ALL
		}}),
		one("a file is placed at a relative path", "plan-valid", wrongRuntime{plan: func(p *pluginv1.LaunchPlan) {
			p.Files = append(p.Files, &pluginv1.PlanFile{Path: "settings.json", Mode: 0o644})
		}}),
		one("another program each time", "plan-repeatable", wrongRuntime{plan: func(p *pluginv1.LaunchPlan) {
			p.Argv[0] = fmt.Sprint("/bin/", time.Now().UnixNano())
		}}),
		one("every exit is a success", "run-exit-result", wrongRuntime{out: func(m *pluginv1.RunResponse) *pluginv1.RunResponse {
			if r := m.GetResult(); r != nil {
				r.Ok = true
			}
			return m
		}}),
		one("an unknown exit is a success", "run-exit-unknown-is-no-success", wrongRuntime{
			out: func(m *pluginv1.RunResponse) *pluginv1.RunResponse {
				if r := m.GetResult(); r != nil {
					r.Ok = true
				}
				return m
			}}),
		one("no progress", "run-progress", wrongRuntime{out: func(m *pluginv1.RunResponse) *pluginv1.RunResponse {
			if m.GetProgress() != nil {
				return nil
			}
			return m
		}}),
		one("a write has no key", "run-messages-valid", wrongRuntime{say: onOutput(func() *pluginv1.RunResponse { return write("") })}),
		one("keys are new after a restart", "replay-same-keys", wrongRuntime{say: onOutput(func() *pluginv1.RunResponse {
			return write(fmt.Sprint(time.Now().UnixNano()))
		})}),
		one("a replay is acted on", "replay-brings-no-decision", wrongRuntime{say: onOutput(func() *pluginv1.RunResponse {
			return &pluginv1.RunResponse{Message: &pluginv1.RunResponse_Admit{Admit: &pluginv1.Admit{ProposalId: "p"}}}
		})}),
		one("a checkpoint runs ahead", "run-messages-valid", wrongRuntime{say: onOutput(func() *pluginv1.RunResponse {
			return &pluginv1.RunResponse{Message: &pluginv1.RunResponse_Checkpoint{Checkpoint: &pluginv1.Checkpoint{Offset: 1 << 40}}}
		})}),
		one("the stream stays open after the exit", "run-exit-result", wrongRuntime{deaf: true}),
		one("a stray verdict runs a call", "verdict-unknown-proposal", wrongRuntime{say: func(in *pluginv1.RunRequest) []*pluginv1.RunResponse {
			if in.GetVerdict().GetDecision() != pluginv1.Decision_DECISION_ALLOW {
				return nil
			}
			return []*pluginv1.RunResponse{{Message: &pluginv1.RunResponse_Admit{Admit: &pluginv1.Admit{ProposalId: in.GetVerdict().GetProposalId()}}}}
		}}),
		one("questions have new ids", "run-waiting", wrongRuntime{say: func(in *pluginv1.RunRequest) []*pluginv1.RunResponse {
			if in.GetWaiting() == nil {
				return nil
			}
			return []*pluginv1.RunResponse{{Message: &pluginv1.RunResponse_Question{Question: &pluginv1.Question{
				HitlId: fmt.Sprint(time.Now().UnixNano()), Prompt: "?"}}}}
		}}),
	}
}
