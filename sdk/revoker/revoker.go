// Package revoker is what the author of a revoker plugin imports: the Revoker
// interface and Serve. It imports sdk/plugin and proto only.
//
// The one idea: a revoker answers ACKNOWLEDGED only when the issuer itself has
// confirmed that the access is cut. Everything else is a failure, and an
// honest failure is worth more than a hopeful success.
package revoker

import (
	"context"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// FeatureGrants is the feature of a revoker that also makes credentials
// (Grant), named in DescribeResponse.features.
const FeatureGrants = "grants"

// Revoker is a revoker plugin. Embed plugin.Defaults and Unimplemented.
//
// The host calls methods concurrently. Every call is idempotent on its key and
// may come again after a crash. Make errors with the functions of sdk/plugin;
// a message never holds a secret.
type Revoker interface {
	plugin.Base
	pluginv1.RevokerServer

	// Grant makes a credential for a task. The host has journalled grant_id
	// before the call; the same grant_id answers the same credential, or a new
	// one after the old was voided.
	Grant(context.Context, *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error)
	// Revoke cuts the access of the task, of its sessions and of what it
	// delegated; idempotent on stop_id. An unknown grant is ACKNOWLEDGED. An
	// answer without a result is a failure. With dry_run nothing is cut and
	// detail says what would be.
	Revoke(context.Context, *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error)
	// Verify asks the issuer whether the grants are still accepted. Called
	// after a Revoke. An answer without a result counts as CANNOT_TELL.
	Verify(context.Context, *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error)
}

// Unimplemented refuses every method with Unimplemented. Embed it by value.
type Unimplemented = pluginv1.UnimplementedRevokerServer

// Serve runs the plugin until the host ends the process. It is the whole main
// of a revoker plugin; it does not return before.
func Serve(revoker Revoker) {
	plugin.Serve(pluginv1.Kind_KIND_REVOKER, revoker, func(s grpc.ServiceRegistrar) {
		pluginv1.RegisterRevokerServer(s, revoker)
	})
}

// Register puts a revoker on a gRPC server, for tests in one process.
func Register(s grpc.ServiceRegistrar, revoker Revoker) {
	plugin.RegisterBase(s, pluginv1.Kind_KIND_REVOKER, revoker)
	pluginv1.RegisterRevokerServer(s, revoker)
}
