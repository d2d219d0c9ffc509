package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/airlock-host/airlock/config"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Isolation is a client of an isolation instance. It stays good when the
// process is replaced: every call goes to the process of the moment, waits a
// little when there is none, and has a deadline. An error says why the
// instance cannot be used at all.
func (c *Catalog) Isolation(ref string) (pluginv1.IsolationClient, error) {
	i, err := c.usable(ref, config.KindIsolation)
	if err != nil {
		return nil, err
	}
	return pluginv1.NewIsolationClient(i), nil
}

// Runtime is a client of a runtime instance; see Isolation.
func (c *Catalog) Runtime(ref string) (pluginv1.RuntimeClient, error) {
	i, err := c.usable(ref, config.KindRuntime)
	if err != nil {
		return nil, err
	}
	return pluginv1.NewRuntimeClient(i), nil
}

// Revoker is a client of a revoker instance; see Isolation.
func (c *Catalog) Revoker(ref string) (pluginv1.RevokerClient, error) {
	i, err := c.usable(ref, config.KindRevoker)
	if err != nil {
		return nil, err
	}
	return pluginv1.NewRevokerClient(i), nil
}

// Policy is a client of a policy plugin; see Isolation.
func (c *Catalog) Policy(ref string) (pluginv1.PolicyClient, error) {
	i, err := c.usable(ref, config.KindPolicy)
	if err != nil {
		return nil, err
	}
	return pluginv1.NewPolicyClient(i), nil
}

// ErrUnknown says that no instance has this name.
var ErrUnknown = errors.New("no such plugin instance")

func (c *Catalog) usable(ref, kind string) (*instance, error) {
	i := c.find(ref)
	if i == nil {
		return nil, fmt.Errorf("%s: %w", ref, ErrUnknown)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.spec.Kind != kind {
		return nil, fmt.Errorf("%s is no %s instance", ref, kind)
	}
	if state, reason := i.viewState(); state == Quarantined || state == Ended {
		return nil, fmt.Errorf("%s is %s: %s", ref, state, reason)
	}
	return i, nil
}

// slow is how long a call must have taken for its deadline to count against
// the plugin: a caller may have its own reasons for a shorter one.
const slow = time.Second

// Invoke makes a call on the process of the moment.
func (i *instance) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	p, err := i.acquire(ctx)
	if err != nil {
		return err
	}
	defer p.calls.Done()
	began := time.Now()
	ctx, cancel := i.bounded(ctx)
	defer cancel()
	return i.outcome(p, method, began, p.conn.Invoke(ctx, method, args, reply, options...))
}

// NewStream opens a stream on the process of the moment. List gets a deadline,
// since it ends; the others live as long as their context.
func (i *instance) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	p, err := i.acquire(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s := &stream{instance: i, process: p, method: method, began: began}
	if method == pluginv1.Isolation_List_FullMethodName {
		ctx, s.cancel = i.bounded(ctx)
	} else {
		s.finish() // an endless stream holds no reload up
	}
	s.ClientStream, err = p.conn.NewStream(ctx, desc, method, options...)
	if err != nil {
		s.finish()
		return nil, i.outcome(p, method, began, err)
	}
	return s, nil
}

// stream puts the instance's name and the plugin's fate into a stream's errors.
type stream struct {
	grpc.ClientStream
	instance *instance
	process  *process
	method   string
	began    time.Time
	cancel   context.CancelFunc
	done     sync.Once
}

func (s *stream) finish() {
	s.done.Do(func() {
		s.process.calls.Done()
		if s.cancel != nil {
			s.cancel()
		}
	})
}

// RecvMsg receives; at the end of the stream its resources are let go.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		return nil
	}
	s.finish()
	if errors.Is(err, io.EOF) {
		return err
	}
	return s.instance.outcome(s.process, s.method, s.began, err)
}

// acquire is the process that takes a call now; the caller says calls.Done.
func (i *instance) acquire(ctx context.Context) (*process, error) {
	var timeout <-chan time.Time
	for {
		i.mu.Lock()
		p, moved := i.current, i.moved
		state, reason := i.viewState()
		if p != nil {
			p.calls.Add(1)
		}
		i.mu.Unlock()
		if p != nil {
			return p, nil
		}
		if state == Quarantined || state == Ended {
			return nil, status.Errorf(codes.Unavailable, "%s is %s: %s", i.ref, state, reason)
		}
		if timeout == nil {
			timer := time.NewTimer(i.catalog.deadlines.Wait)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-moved:
		case <-timeout:
			return nil, status.Errorf(codes.Unavailable, "%s is %s: %s", i.ref, state, reason)
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// bounded gives a context a deadline if it has none.
func (i *instance) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, i.catalog.deadlines.Call)
}

// outcome turns the end of a call into what the caller sees, and into what the
// instance learns from it. Code and details of a status stay.
func (i *instance) outcome(p *process, method string, began time.Time, err error) error {
	if err == nil {
		i.answered(p, began)
		return nil
	}
	name := path.Base(method)
	st := status.Convert(err)
	code := st.Code()
	if strings.Contains(st.Message(), "the client connection is closing") {
		code = codes.Unavailable // nobody gave the call up: its process is going away
	}
	switch code {
	case codes.DeadlineExceeded:
		if took := time.Since(began); took >= min(slow, i.catalog.deadlines.Call) {
			i.missed(p, fmt.Sprintf("it does not answer: %s passed its deadline of %s", name, took.Round(100*time.Millisecond)))
		}
	case codes.Unavailable:
		if p.endsWithin(200 * time.Millisecond) {
			return status.Errorf(codes.Unavailable, "%s: the plugin ended during %s (%s)", i.ref, name, p.ending())
		}
	}
	named := st.Proto()
	named.Message = i.ref + ": " + clean(named.GetMessage(), maxFieldValue)
	return status.FromProto(named).Err()
}
