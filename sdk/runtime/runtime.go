// Package runtime is what the author of a runtime plugin imports: the Runtime
// interface and Serve. It imports sdk/plugin and proto only.
//
// The one idea: a runtime is a translator. It starts nothing; it says how an
// agent is started, and turns the agent's output into typed events and the
// host's decisions into input for the agent. It holds no state that a
// Checkpoint does not carry.
package runtime

import (
	"context"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Stream is one session's two-way stream, seen from the plugin.
type Stream = grpc.BidiStreamingServer[pluginv1.RunRequest, pluginv1.RunResponse]

// Runtime is a runtime plugin. Embed plugin.Defaults and Unimplemented.
//
// Serve and Register refuse in front of it what every plugin must refuse: a
// stream that does not begin with Open, unknown messages and unknown enums.
//
// The host calls methods concurrently, one Run for every live session. Make
// errors with the functions of sdk/plugin. The words MUST and SHOULD of
// runtime.proto apply; what follows is the short form.
type Runtime interface {
	plugin.Base
	pluginv1.RuntimeServer

	// Plan says how to start the agent for a mission in a cell. Called before
	// every session, and possibly again for the same mission; it has no side
	// effect. Resume is set when an earlier session ended with its work
	// undone. InvalidArgument = this mission cannot be run, and fails with the
	// message. The plan holds no secret, only SecretRefs.
	Plan(context.Context, *pluginv1.PlanRequest) (*pluginv1.PlanResponse, error)
	// Run follows one session. The first message is Open. Output comes in
	// order; what comes before CaughtUp is a replay, and no Proposal is decided
	// before it. After Exit answer with a Result, or with none, and return: the
	// exit alone decides then. When the stream breaks, the host opens a new
	// one, in this process or the next, from the last Checkpoint: every Write
	// carries a key, so that what was written before is not written twice.
	// Return nil or an error; an error ends the stream and the host tries
	// again, so say Problem{fatal} for a session that cannot go on.
	Run(Stream) error
}

// Unimplemented refuses every method with Unimplemented. Embed it by value.
type Unimplemented = pluginv1.UnimplementedRuntimeServer

// Serve runs the plugin until the host ends the process. It is the whole main
// of a runtime plugin; it does not return before.
func Serve(runtime Runtime) {
	plugin.Serve(pluginv1.Kind_KIND_RUNTIME, runtime, func(s grpc.ServiceRegistrar) {
		pluginv1.RegisterRuntimeServer(s, guard{runtime})
	})
}

// Register puts a runtime on a gRPC server, for tests in one process.
func Register(s grpc.ServiceRegistrar, runtime Runtime) {
	plugin.RegisterBase(s, pluginv1.Kind_KIND_RUNTIME, runtime)
	pluginv1.RegisterRuntimeServer(s, guard{runtime})
}
