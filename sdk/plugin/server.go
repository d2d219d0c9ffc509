package plugin

import (
	"context"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// RegisterBase puts a plugin's Base on a gRPC server as the Plugin service.
// Serve does it; tests use it to run a plugin in their own process.
func RegisterBase(s grpc.ServiceRegistrar, kind pluginv1.Kind, base Base) {
	pluginv1.RegisterPluginServer(s, &server{kind: kind, base: base})
}

// server is the Plugin service in front of a Base.
type server struct {
	pluginv1.UnimplementedPluginServer
	kind pluginv1.Kind
	base Base
}

func (s *server) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	d := s.base.Describe()
	if d == nil {
		return nil, FailedPrecondition("the plugin does not describe itself")
	}
	d = proto.Clone(d).(*pluginv1.DescribeResponse)
	if d.Kind == pluginv1.Kind_KIND_UNSPECIFIED {
		d.Kind = s.kind
	}
	if len(d.Contracts) == 0 {
		d.Contracts = []string{Contract}
	}
	if d.Schema == nil {
		d.Schema = &pluginv1.ConfigSchema{}
	}
	return d, nil
}

func (s *server) Validate(ctx context.Context, req *pluginv1.ValidateRequest) (*pluginv1.ValidateResponse, error) {
	return &pluginv1.ValidateResponse{Diagnostics: s.base.Validate(ctx, req.GetConfigJson())}, nil
}

func (s *server) Configure(ctx context.Context, req *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	if err := s.base.Configure(ctx, req); err != nil {
		return nil, err
	}
	s.base.Health().settle()
	return &pluginv1.ConfigureResponse{}, nil
}

func (s *server) Shutdown(ctx context.Context, _ *pluginv1.ShutdownRequest) (*pluginv1.ShutdownResponse, error) {
	if err := s.base.Shutdown(ctx); err != nil {
		return nil, err
	}
	return &pluginv1.ShutdownResponse{}, nil
}

func (s *server) Health(_ *pluginv1.HealthRequest, stream grpc.ServerStreamingServer[pluginv1.HealthResponse]) error {
	return s.base.Health().Watch(stream.Context(), stream.Send)
}
