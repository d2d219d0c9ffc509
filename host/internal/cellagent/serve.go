package cellagent

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

const (
	// openTime is how long a connection may take to prove itself.
	openTime = 10 * time.Second
	// maxOpening is how many may be doing so at once.
	maxOpening = 16
)

// serve accepts connections until the listener is closed.
func (a *Agent) serve(ctx context.Context, listener net.Listener) {
	responder := cell.NewResponder(a.cfg.Secret)
	slots := make(chan struct{}, maxOpening)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, most likely
			a.log.warn("cannot accept a connection", "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		wg.Go(func() {
			proven := sync.OnceFunc(func() { <-slots })
			defer proven()
			stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(openTime))
			conn, err := responder.Accept(c, false).Next()
			if err != nil {
				stop()
				a.log.warn("refused a connection", "error", err)
				return
			}
			mux, err := conn.Mux()
			if err != nil {
				stop()
				return
			}
			defer mux.Close()
			l, err := openControl(conn, mux)
			if !stop() || err != nil {
				if err != nil {
					a.log.warn("refused a connection", "error", err)
				}
				return
			}
			_ = c.SetDeadline(time.Time{})
			proven()
			a.connected(l)
		})
	}
}

// openControl reads the hello of a connection and checks it.
func openControl(conn *cell.Link, mux *yamux.Session) (*link, error) {
	stream, err := mux.AcceptStream()
	if err != nil {
		return nil, err
	}
	var f cellv1.HostFrame
	if err := cell.NewDecoder(stream).Decode(&f); err != nil {
		return nil, err
	}
	h := f.GetHello()
	refusal := &cellv1.Error{}
	switch {
	case h == nil || !conn.Proven(h.GetProof()):
		refusal = &cellv1.Error{Code: cellv1.ErrorCode_ERROR_CODE_INVALID, Message: "wrong proof"}
	case h.GetProtoMin() > cell.ProtoMax || h.GetProtoMax() < cell.ProtoMin:
		refusal = &cellv1.Error{Code: cellv1.ErrorCode_ERROR_CODE_PROTOCOL, Message: "this agent speaks version 1"}
	default:
		l := newLink(mux, stream)
		l.helloID = f.GetId()
		return l, nil
	}
	_ = cell.NewEncoder(stream).Encode(&cellv1.AgentFrame{Id: f.GetId(), Error: refusal})
	_ = stream.Close()
	_ = stream.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = stream.Read(make([]byte, 1)) // until the host has read it
	return nil, errors.New(refusal.GetMessage())
}

// connected serves one proven connection until it ends.
func (a *Agent) connected(l *link) {
	defer a.links.gone(l)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.close()
	a.hello(l)
	wg.Go(l.write)
	wg.Go(func() { a.control(l) })
	for {
		stream, err := l.mux.AcceptStream()
		if err != nil {
			return
		}
		wg.Go(func() { a.readOutput(stream) })
	}
}
