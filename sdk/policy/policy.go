// Package policy is what the author of a policy plugin imports: the Policy
// interface and Serve. It imports sdk/plugin and proto only.
//
// The one idea: a policy plugin can only make a decision more severe. Nothing
// to object is an answer without findings; an opinion that does not come in
// time is no opinion, and the host's configuration says what that means.
package policy

import (
	"context"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Policy is a policy plugin. Embed plugin.Defaults and Unimplemented.
//
// The host calls Evaluate concurrently, and perhaps again for the same
// proposal. Make errors with the functions of sdk/plugin; a message never holds
// an argument's value.
type Policy interface {
	plugin.Base
	pluginv1.PolicyServer

	// Evaluate judges one proposed call within the context's deadline. An answer
	// without findings objects to nothing. A finding with an unspecified outcome
	// is a failure.
	Evaluate(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error)
}

// Unimplemented refuses every method with Unimplemented. Embed it by value.
type Unimplemented = pluginv1.UnimplementedPolicyServer

// Serve runs the plugin until the host ends the process. It is the whole main
// of a policy plugin; it does not return before.
func Serve(policy Policy) {
	plugin.Serve(pluginv1.Kind_KIND_POLICY, policy, func(s grpc.ServiceRegistrar) {
		pluginv1.RegisterPolicyServer(s, policy)
	})
}

// Register puts a policy on a gRPC server, for tests in one process.
func Register(s grpc.ServiceRegistrar, policy Policy) {
	plugin.RegisterBase(s, pluginv1.Kind_KIND_POLICY, policy)
	pluginv1.RegisterPolicyServer(s, policy)
}
