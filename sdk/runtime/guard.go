package runtime

import (
	"context"

	"google.golang.org/protobuf/reflect/protoreflect"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// guard stands in front of a runtime and refuses, with InvalidArgument, what
// the contract has every plugin refuse: a stream that does not begin with Open,
// an empty message, and an enum that is unspecified or not known.
type guard struct{ Runtime }

// Plan refuses unknown enums of the request.
func (g guard) Plan(ctx context.Context, req *pluginv1.PlanRequest) (*pluginv1.PlanResponse, error) {
	if req.GetMission() == nil {
		return nil, plugin.InvalidArgument("the request has no mission")
	}
	if err := checkEnums(req.ProtoReflect(), false); err != nil {
		return nil, err
	}
	return g.Runtime.Plan(ctx, req)
}

// Run refuses a stream that does not begin with Open.
func (g guard) Run(stream Stream) error { return g.Runtime.Run(&guardedStream{Stream: stream}) }

type guardedStream struct {
	Stream
	opened bool
}

// Recv gives what may be given to the plugin.
func (s *guardedStream) Recv() (*pluginv1.RunRequest, error) {
	m, err := s.Stream.Recv()
	if err != nil {
		return nil, err
	}
	if (m.GetOpen() != nil) == s.opened {
		return nil, plugin.InvalidArgument("open is the first message of a stream, and only that one")
	}
	s.opened = true
	if m.GetMessage() == nil {
		return nil, plugin.InvalidArgument("a message of a kind that this plugin does not know")
	}
	if err := checkEnums(m.ProtoReflect(), true); err != nil {
		return nil, err
	}
	return m, nil
}

// checkEnums refuses values that have no name, and with zero also unspecified
// ones.
func checkEnums(m protoreflect.Message, zero bool) error {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.IsList() || f.IsMap() {
			continue // no message of this contract has an enum in there
		}
		switch {
		case f.Kind() == protoreflect.EnumKind:
			n := m.Get(f).Enum()
			if n == 0 && !zero || n != 0 && f.Enum().Values().ByNumber(n) != nil {
				continue
			}
			return plugin.InvalidArgument("%s has the value %d, which is unspecified or not known", f.FullName(), n)
		case f.Message() != nil && m.Has(f):
			if err := checkEnums(m.Get(f).Message(), zero); err != nil {
				return err
			}
		}
	}
	return nil
}
