package plugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NotFound says that what was named does not exist (any more).
func NotFound(format string, args ...any) error { return errorf(codes.NotFound, format, args) }

// AlreadyExists says that what was to be made exists already.
func AlreadyExists(format string, args ...any) error {
	return errorf(codes.AlreadyExists, format, args)
}

// InvalidArgument says that the request is wrong whatever the state.
func InvalidArgument(format string, args ...any) error {
	return errorf(codes.InvalidArgument, format, args)
}

// FailedPrecondition says that the state does not allow the call now.
func FailedPrecondition(format string, args ...any) error {
	return errorf(codes.FailedPrecondition, format, args)
}

// ResourceExhausted says that a limit or a quota is used up.
func ResourceExhausted(format string, args ...any) error {
	return errorf(codes.ResourceExhausted, format, args)
}

// Unavailable says that something outside is away; trying again may help.
func Unavailable(format string, args ...any) error { return errorf(codes.Unavailable, format, args) }

// Unimplemented says that the plugin does not have this optional part.
func Unimplemented(format string, args ...any) error {
	return errorf(codes.Unimplemented, format, args)
}

func errorf(code codes.Code, format string, args []any) error {
	return status.Error(code, fmt.Sprintf(format, args...))
}

// NeedsRestart refuses a live reconfigure: the attribute can be changed only
// with a new process. Return it from Configure.
func NeedsRestart(attribute, why string) error {
	st := status.Newf(codes.FailedPrecondition, "changing %s needs a new plugin process: %s", attribute, why)
	detailed, err := st.WithDetails(&errdetails.PreconditionFailure{
		Violations: []*errdetails.PreconditionFailure_Violation{{
			Type: restartViolation, Subject: attribute, Description: why,
		}},
	})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}

const restartViolation = "airlock.plugin.restart"

// RestartAttribute is the attribute that a NeedsRestart names; ok is false for
// any other error.
func RestartAttribute(err error) (attribute string, ok bool) {
	for _, detail := range status.Convert(err).Details() {
		failure, is := detail.(*errdetails.PreconditionFailure)
		if !is {
			continue
		}
		for _, v := range failure.GetViolations() {
			if v.GetType() == restartViolation {
				return v.GetSubject(), true
			}
		}
	}
	return "", false
}

// asStatus gives an error that a handler returned its gRPC code, so that the
// host never sees Unknown for a deadline.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
