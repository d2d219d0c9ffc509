// Command scratch.
package main

import (
	"context"
	"fmt"
	"regexp"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/runtime"
)

type rt struct {
	plugin.Defaults
	runtime.Unimplemented
	cfg struct {
		Shell   []string `json:"shell"`
		Prompts []string `json:"prompts"`
	}
	res []*regexp.Regexp
}

func (r *rt) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{Name: "command", Version: "0.1.0", Capabilities: []string{"runtime:custom:command", "hitl"}, Summary: "x",
		Schema: plugin.Schema(plugin.StringList("shell", "shell", plugin.Default([]string{"/bin/sh", "-c"})), plugin.StringList("prompts", "prompts", plugin.Default([]string{})))}
}
func (r *rt) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	if err := plugin.DecodeConfig(req.GetConfigJson(), &r.cfg); err != nil {
		return err
	}
	for _, p := range r.cfg.Prompts {
		r.res = append(r.res, regexp.MustCompile(p))
	}
	return nil
}
func (r *rt) Plan(_ context.Context, req *pluginv1.PlanRequest) (*pluginv1.PlanResponse, error) {
	return &pluginv1.PlanResponse{Plan: &pluginv1.LaunchPlan{Argv: append(append([]string{}, r.cfg.Shell...), req.GetMission().GetObjective()), Terminal: &pluginv1.Terminal{}, SubmitKey: []byte("\n"),
		Boundary: pluginv1.Boundary_BOUNDARY_NONE, Output: pluginv1.OutputNeed_OUTPUT_NEED_NONE, OnFull: pluginv1.OnFull_ON_FULL_BLOCK, WatchWaiting: len(r.res) > 0}}, nil
}
func (r *rt) Run(s runtime.Stream) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		switch {
		case m.GetOpen() != nil:
			if len(m.GetOpen().GetState()) == 0 {
				_ = s.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Progress{Progress: &pluginv1.Progress{Phase: "execution"}}})
				_ = s.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Checkpoint{Checkpoint: &pluginv1.Checkpoint{State: []byte("1")}}})
			}
		case m.GetWaiting() != nil:
			for _, re := range r.res {
				if re.MatchString(m.GetWaiting().GetScreenLine()) {
					_ = s.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Question{Question: &pluginv1.Question{HitlId: fmt.Sprint("w", m.GetWaiting().GetOffset()), Prompt: m.GetWaiting().GetScreenLine()}}})
				}
			}
		case m.GetExit() != nil:
			return s.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Result{Result: &pluginv1.Result{Ok: m.GetExit().GetCode() == 0 && m.GetExit().GetSignal() == 0}}})
		}
	}
}
func main() { runtime.Serve(&rt{}) }
