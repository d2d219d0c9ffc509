package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Plan says how to start the command. It depends on nothing but the
// configuration and the objective: a mission that is resumed runs it again.
func (c *command) Plan(_ context.Context, req *pluginv1.PlanRequest) (*pluginv1.PlanResponse, error) {
	cfg := c.current.Load()
	if cfg == nil {
		return nil, plugin.FailedPrecondition("the instance is not configured yet")
	}
	objective := req.GetMission().GetObjective()
	switch {
	case strings.TrimSpace(objective) == "":
		return nil, plugin.InvalidArgument("the objective is empty: there is no command to run")
	case strings.IndexByte(objective, 0) >= 0:
		return nil, plugin.InvalidArgument("the objective has a NUL byte, which a command cannot have")
	}
	p := &pluginv1.LaunchPlan{
		Argv:      append(slices.Clone(cfg.Shell), objective),
		Env:       maps.Clone(cfg.Env),
		SubmitKey: []byte("\n"),
		Boundary:  pluginv1.Boundary_BOUNDARY_NONE,
		Output:    pluginv1.OutputNeed_OUTPUT_NEED_NONE,
		OnFull:    pluginv1.OnFull_ON_FULL_BLOCK, // nothing of a command's output is lost
	}
	if cfg.Terminal {
		p.Terminal = &pluginv1.Terminal{Cols: cfg.Cols, Rows: cfg.Rows}
		p.WatchWaiting = len(cfg.prompts) > 0
	}
	return &pluginv1.PlanResponse{Plan: p}, nil
}
