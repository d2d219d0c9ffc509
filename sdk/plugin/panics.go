package plugin

import (
	"context"
	"runtime/debug"

	hclog "github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ServerOptions are the gRPC server options that every plugin runs with: the
// message limit, and handlers whose panic is an Internal error with the stack
// in the log.
func ServerOptions(log hclog.Logger) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
			defer func() { err = asStatus(recovered(log, info.FullMethod, recover(), err)) }()
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer func() { err = asStatus(recovered(log, info.FullMethod, recover(), err)) }()
			return next(srv, stream)
		}),
	}
}

// maxStack keeps the log line below the length that the host accepts.
const maxStack = 4 << 10

func recovered(log hclog.Logger, method string, cause any, err error) error {
	if cause == nil {
		return err
	}
	stack := debug.Stack()
	log.Error("panic in a plugin method", "method", method, "panic", cause, "stack", string(stack[:min(len(stack), maxStack)]))
	return status.Errorf(codes.Internal, "the plugin panicked in %s: %v", method, cause)
}
