package conformance

import (
	"context"
	"slices"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// RuntimeOptions say what to check a runtime with.
type RuntimeOptions struct {
	// Mission is what the runtime is asked to do; nil = the objective "echo
	// hello". It must be one that the configuration can run.
	Mission *pluginv1.MissionSpec
	// Secrets are values that must not be in a plan.
	Secrets []string
	// Changed says whether the plugin has left something behind since the last
	// call, in its directories or as a process; nil = it is not looked at.
	Changed func() error
	// Restart kills the plugin with SIGKILL and starts it again with the same
	// configuration. nil = checks that need it are not run.
	Restart func(context.Context) (pluginv1.RuntimeClient, error)
	// Timeout bounds one check; 0 = a minute.
	Timeout time.Duration
	// Only names the checks to run; none = all.
	Only []string
	// Progress is called after every check; nil = nobody asks.
	Progress func(Check)
}

type runtimeCheck struct {
	name string
	run  func(context.Context, *runtimeKit) error
}

type runtimeKit struct {
	client pluginv1.RuntimeClient
	opts   RuntimeOptions
}

// Runtime runs every check of a runtime, one after the other. The plugin must
// be configured. Nothing is started: the kit plays the host and the session.
func Runtime(ctx context.Context, client pluginv1.RuntimeClient, opts RuntimeOptions) []Check {
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	k := &runtimeKit{client, opts}
	var out []Check
	for _, c := range slices.Concat(planChecks(), runChecks(), replayChecks()) {
		if len(opts.Only) > 0 && !slices.Contains(opts.Only, c.name) {
			continue
		}
		got := Check{Name: c.name, Result: Pass}
		begun := time.Now()
		checkCtx, cancel := context.WithTimeout(ctx, opts.Timeout)
		got.settle(c.run(checkCtx, k))
		cancel()
		got.Took = time.Since(begun)
		out = append(out, got)
		if opts.Progress != nil {
			opts.Progress(got)
		}
	}
	return out
}

// planRequest is a good request; m may be nil.
func planRequest(m *pluginv1.MissionSpec) *pluginv1.PlanRequest {
	if m == nil {
		m = &pluginv1.MissionSpec{MissionId: "conformance/" + newID(), Objective: "echo hello", Agent: "agent-01"}
	}
	return &pluginv1.PlanRequest{Mission: m, Cell: &pluginv1.CellFacts{
		Os: "linux", Arch: "amd64", Root: "a root of its own", Network: pluginv1.NetworkMode_NETWORK_MODE_NONE,
		Link: pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED, Uid: 71234, Gid: 71234, Workspace: "/workspace",
	}}
}
