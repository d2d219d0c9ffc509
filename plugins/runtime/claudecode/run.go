package main

import (
	"errors"
	"io"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/runtime"
)

// received is what one Recv gave.
type received struct {
	m   *pluginv1.RunRequest
	err error
}

// Run follows one session: the machine decides, this carries.
func (p *claude) Run(stream runtime.Stream) error {
	first, err := stream.Recv()
	if err != nil {
		return ignoreEOF(err)
	}
	open := first.GetOpen()
	if open == nil {
		return plugin.InvalidArgument("the first message of a session is not open")
	}
	cfg := p.current.Load()
	if cfg == nil {
		return plugin.FailedPrecondition("the instance is not configured yet")
	}
	m := newMachine(open, cfg.session(open))
	if err := sendAll(stream, m.start(p.now(), open.GetOffset())); err != nil {
		return err
	}
	messages := make(chan received)
	go func() {
		for {
			in, err := stream.Recv()
			select {
			case messages <- received{in, err}:
			case <-stream.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return p.follow(stream, m, messages)
}

func (p *claude) follow(stream runtime.Stream, m *machine, messages <-chan received) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		var alarm <-chan time.Time
		if at := m.wake(); !at.IsZero() {
			timer.Reset(max(at.Sub(p.now()), time.Millisecond))
			alarm = timer.C
		}
		var out []*pluginv1.RunResponse
		select {
		case got := <-messages:
			if got.err != nil {
				return ignoreEOF(got.err)
			}
			out = m.handle(got.m, p.now())
			if got.m.GetExit() != nil {
				return sendAll(stream, out)
			}
		case <-alarm:
			out = m.tick(p.now())
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		if err := sendAll(stream, out); err != nil {
			return err
		}
	}
}

func sendAll(stream runtime.Stream, out []*pluginv1.RunResponse) error {
	for _, r := range out {
		if err := stream.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// ignoreEOF: the host closing its side is the end of a stream, not an error.
func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
