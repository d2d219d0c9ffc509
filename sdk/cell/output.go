package cell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// OutputReader reads one session's output. Not reading it delays nobody else:
// the agent stops sending on its stream only.
type OutputReader struct {
	conn   *Conn
	stream *yamux.Stream
	dec    *Decoder
	stop   func() bool  // detaches from the context
	over   func() error // why the context is over
	any    bool         // a frame has come
	ended  bool
}

// ReadOutput reads a session's output from an offset to the end of the
// session, following it while it runs. ctx covers the whole reading: when it
// ends, so does Next. What the agent no longer holds comes as a Gap.
func (c *Conn) ReadOutput(ctx context.Context, session string, from uint64) (*OutputReader, error) {
	stream, err := c.mux.OpenStream()
	if err != nil {
		return nil, c.lost(err)
	}
	r := &OutputReader{conn: c, stream: stream, dec: NewDecoder(stream), over: ctx.Err}
	r.stop = context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	err = NewEncoder(stream).Encode(&cellv1.StreamHeader{Kind: &cellv1.StreamHeader_ReadOutput{
		ReadOutput: &cellv1.ReadOutput{SessionId: session, From: from}}})
	if err != nil {
		_ = r.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, c.lost(err)
	}
	return r, nil
}

// Next returns the next frame: data, a gap, or the end, after which it returns
// io.EOF. An unknown session is ErrNotFound, at the first call.
func (r *OutputReader) Next() (*cellv1.OutputFrame, error) {
	if r.ended {
		return nil, io.EOF
	}
	f := new(cellv1.OutputFrame)
	if err := r.dec.Decode(f); err != nil {
		return nil, r.why(err)
	}
	r.any = true
	if f.GetEnd() != nil {
		r.ended = true
		_ = r.Close()
	}
	return f, nil
}

func (r *OutputReader) why(err error) error {
	select {
	case <-r.conn.done:
		return r.conn.Err()
	default:
	}
	switch {
	case errors.Is(err, io.EOF) && !r.any && !r.conn.mux.IsClosed():
		return &Error{Code: cellv1.ErrorCode_ERROR_CODE_NOT_FOUND, Message: "session of this output"}
	case r.over() != nil:
		return r.over()
	case errors.Is(err, yamux.ErrTimeout):
		return net.ErrClosed
	default:
		return r.conn.lost(err)
	}
}

// Close ends the reading. It may be called more than once, and while Next
// waits.
func (r *OutputReader) Close() error {
	r.stop()
	_ = r.stream.SetReadDeadline(time.Unix(1, 0)) // wakes Next
	return r.stream.Close()
}

// lost turns an error of yamux into one of the link.
func (c *Conn) lost(err error) error {
	if e := c.Err(); e != nil {
		return e
	}
	return fmt.Errorf("%w: %w", ErrLinkLost, err)
}

// DialHandler carries a connection that a process in the cell has opened. It
// owns the connection and runs on a goroutine of its own.
type DialHandler func(*cellv1.Dial, net.Conn)

// SetDialHandler decides what becomes of connections that the agent opens.
// Without one they are closed at once.
func (c *Conn) SetDialHandler(h DialHandler) {
	c.mu.Lock()
	c.onDial = h
	c.mu.Unlock()
}

// acceptLoop takes the streams that the agent opens.
func (c *Conn) acceptLoop() {
	defer c.wg.Done()
	for {
		stream, err := c.mux.AcceptStream()
		if err != nil {
			c.fail(err)
			return
		}
		c.wg.Add(1)
		go c.accepted(stream)
	}
}

func (c *Conn) accepted(stream *yamux.Stream) {
	defer c.wg.Done()
	_ = stream.SetReadDeadline(time.Now().Add(DefaultTimeout))
	var h cellv1.StreamHeader
	if err := NewDecoder(stream).Decode(&h); err != nil || h.GetDial() == nil {
		_ = stream.Close()
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	c.mu.Lock()
	onDial := c.onDial
	c.mu.Unlock()
	if onDial == nil {
		_ = stream.Close()
		return
	}
	go onDial(h.GetDial(), stream)
}
