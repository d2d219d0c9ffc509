// Package isolation is what the author of an isolation driver imports: the
// Driver interface and Serve. It imports sdk/plugin and proto only.
//
// The one idea: a driver makes places and starts one program, the cell agent,
// in each. It never starts a mission's process and never sees its output, its
// prompt or its credentials; the cell agent gives it exec, terminals, signals,
// output and exit codes for nothing.
package isolation

import (
	"context"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Optional features of a driver, named in DescribeResponse.features. The host
// never calls a method whose feature is not named.
const (
	FeaturePause      = "pause"      // Pause and Resume
	FeatureCheckpoint = "checkpoint" // Checkpoint and Restore
)

// Driver is an isolation driver. Embed Unimplemented, which refuses what the
// driver does not have, and plugin.Defaults.
//
// The host calls methods concurrently, for different cells and for the same
// one; it has called Configure before. Every ctx has a deadline: give up and
// clean up when it ends. Make errors with the functions of sdk/plugin
// (plugin.NotFound and so on), nothing else. The words MUST and SHOULD of
// isolation.proto apply; what follows is the short form.
type Driver interface {
	plugin.Base
	pluginv1.IsolationServer

	// Create makes a cell and starts the cell agent (spec.agent_binary) in it.
	// Called when a mission needs a cell or a warm one is kept ready. The host
	// has made link_dir and the volumes, has written down that it is about to
	// call, and calls again with the same spec after a crash: the answer is
	// then the same cell. A known cell with another incarnation is
	// FailedPrecondition. Answer only once <link_dir>/link.sock exists. After
	// an error List must not show anything of the cell.
	Create(context.Context, *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error)
	// Recover finds a cell again from its ref alone, after the plugin or the
	// host was started anew. Its state may be any, exited included. NotFound =
	// it is gone. A ref that this driver has not made is InvalidArgument.
	Recover(context.Context, *pluginv1.RecoverRequest) (*pluginv1.RecoverResponse, error)
	// Pause freezes everything in a cell, the cell agent too. Idempotent.
	Pause(context.Context, *pluginv1.PauseRequest) (*pluginv1.PauseResponse, error)
	// Resume thaws a cell. Idempotent.
	Resume(context.Context, *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error)
	// Checkpoint writes a cell to disk and stops it. Idempotent on
	// checkpoint_id.
	Checkpoint(context.Context, *pluginv1.CheckpointRequest) (*pluginv1.CheckpointResponse, error)
	// Restore makes a cell from a checkpoint, at most once.
	Restore(context.Context, *pluginv1.RestoreRequest) (*pluginv1.RestoreResponse, error)
	// Stop ends everything in a cell: ask, wait for the grace, kill. An answer
	// without an error means that nothing of the cell runs; a proof without a
	// method is refused by the host, and UNPROVEN is the honest answer where
	// it cannot be known. Idempotent. NotFound = no such cell.
	Stop(context.Context, *pluginv1.StopRequest) (*pluginv1.StopResponse, error)
	// Destroy removes a cell and every trace of it, from the ref alone, with
	// or without driver_state. A running cell is FailedPrecondition unless
	// force is set. A cell that is gone is a success.
	Destroy(context.Context, *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error)
	// Inspect asks the platform, not memory, how a cell is. The host decides
	// by it whether a silent cell is lost. NotFound = no trace of it.
	Inspect(context.Context, *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error)
	// List sends every cell with this host's label, in any state, and returns.
	// The host adopts or removes by it what a crash has left. Nothing sent and
	// no error = there is none, and the host believes it.
	List(*pluginv1.ListRequest, grpc.ServerStreamingServer[pluginv1.ListResponse]) error
	// Stats sends measurements until the cell ends or the host closes. Leave
	// a field absent that was not measured.
	Stats(*pluginv1.StatsRequest, grpc.ServerStreamingServer[pluginv1.StatsResponse]) error
}

// Unimplemented refuses every method with Unimplemented. Embed it by value.
type Unimplemented = pluginv1.UnimplementedIsolationServer

// Serve runs the driver until the host ends the process. It is the whole main
// of a driver; it does not return before.
func Serve(driver Driver) {
	plugin.Serve(pluginv1.Kind_KIND_ISOLATION, driver, func(s grpc.ServiceRegistrar) {
		pluginv1.RegisterIsolationServer(s, driver)
	})
}

// Register puts a driver on a gRPC server, for tests in one process.
func Register(s grpc.ServiceRegistrar, driver Driver) {
	plugin.RegisterBase(s, pluginv1.Kind_KIND_ISOLATION, driver)
	pluginv1.RegisterIsolationServer(s, driver)
}
