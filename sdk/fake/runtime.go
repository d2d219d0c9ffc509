package fake

import (
	"context"
	"errors"
	"io"
	"strings"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/runtime"
)

// Runtime is a runtime whose objective is a shell command.
type Runtime struct {
	base
	runtime.Unimplemented
}

// NewRuntime is a runtime without faults.
func NewRuntime() *Runtime {
	return &Runtime{base: newBase("runtime", "A runtime for tests: the objective is a shell command.",
		[]string{"runtime:custom:fake"}, nil)}
}

// Plan runs the objective in a shell, over pipes.
func (r *Runtime) Plan(ctx context.Context, req *pluginv1.PlanRequest) (*pluginv1.PlanResponse, error) {
	if err := r.Hit(ctx, "Plan"); err != nil {
		return nil, err
	}
	if strings.Contains(req.GetMission().GetObjective(), "\x00") {
		return nil, plugin.InvalidArgument("the objective has a NUL byte")
	}
	return &pluginv1.PlanResponse{Plan: &pluginv1.LaunchPlan{
		Argv:     []string{"/bin/sh", "-c", req.GetMission().GetObjective()},
		Boundary: pluginv1.Boundary_BOUNDARY_NONE,
		Output:   pluginv1.OutputNeed_OUTPUT_NEED_NONE,
		OnFull:   pluginv1.OnFull_ON_FULL_BLOCK,
	}}, nil
}

// Run reports one step of progress, writes answers down, and a result at exit.
func (r *Runtime) Run(stream runtime.Stream) error {
	if err := r.Hit(stream.Context(), "Run"); err != nil {
		return err
	}
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out := answer(in)
		if out == nil {
			continue
		}
		if err := stream.Send(out); err != nil {
			return err
		}
		if in.GetExit() != nil {
			return nil
		}
	}
}

func answer(in *pluginv1.RunRequest) *pluginv1.RunResponse {
	switch m := in.GetMessage().(type) {
	case *pluginv1.RunRequest_Open:
		return &pluginv1.RunResponse{Message: &pluginv1.RunResponse_Progress{
			Progress: &pluginv1.Progress{Phase: "execution"},
		}}
	case *pluginv1.RunRequest_Answer:
		return &pluginv1.RunResponse{Message: &pluginv1.RunResponse_Write{
			Write: &pluginv1.Write{Key: "answer/" + m.Answer.GetHitlId(), Data: []byte(m.Answer.GetText() + "\n")},
		}}
	case *pluginv1.RunRequest_Exit:
		x := m.Exit
		return &pluginv1.RunResponse{Message: &pluginv1.RunResponse_Result{
			Result: &pluginv1.Result{Ok: x.GetCode() == 0 && x.GetSignal() == 0 && !x.GetUnknown()},
		}}
	}
	return nil
}
