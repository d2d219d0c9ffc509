package driver

import (
	"context"
	"errors"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/airlock-host/airlock/sdk/plugin"
)

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// fault gives what the engine says its code. An engine that is away may come
// back; what it refuses it will refuse again.
func (e *engine) fault(what string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	text := strings.TrimPrefix(err.Error(), "Error response from daemon: ")
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Errorf(codes.DeadlineExceeded, "%s: the engine at %s did not answer in time", what, e.socket)
	case errors.Is(err, context.Canceled):
		return status.Errorf(codes.Canceled, "%s: the call was given up", what)
	case client.IsErrConnectionFailed(err):
		return plugin.Unavailable("%s: the engine at %s is away: %s", what, e.socket, text)
	case strings.Contains(text, "is too new"):
		// The engine came up between the question for its version and the call.
		return plugin.Unavailable("%s: the engine at %s has just been started", what, e.socket)
	case strings.Contains(text, "no space left on device"):
		return plugin.ResourceExhausted("%s: %s", what, text)
	case cerrdefs.IsNotFound(err), cerrdefs.IsConflict(err), cerrdefs.IsInvalidArgument(err), cerrdefs.IsInternal(err),
		cerrdefs.IsPermissionDenied(err), cerrdefs.IsUnauthorized(err), cerrdefs.IsNotImplemented(err):
		return plugin.FailedPrecondition("%s: %s", what, text)
	}
	// The connection ended in the middle of an answer, or the engine is about
	// to start or to end.
	return plugin.Unavailable("%s: %s", what, text)
}
