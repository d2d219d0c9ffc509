package cell

import (
	"context"
	"errors"
	"net"
	"syscall"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// outgoing is a frame on its way to the writer.
type outgoing struct {
	ctx   context.Context // given up before it was begun = not sent
	frame *cellv1.HostFrame
}

func (c *Conn) writeLoop() {
	defer c.wg.Done()
	enc := NewEncoder(c.control)
	for {
		select {
		case o := <-c.out:
			if o.ctx.Err() != nil {
				continue
			}
			if err := enc.Encode(o.frame); err != nil {
				c.fail(err)
				return
			}
		case <-c.done:
			return
		}
	}
}

// readLoop never waits for anybody but the agent.
func (c *Conn) readLoop() {
	defer c.wg.Done()
	dec := NewDecoder(c.control)
	for {
		f := new(cellv1.AgentFrame)
		if err := dec.Decode(f); err != nil {
			c.fail(err)
			return
		}
		if f.GetId() == 0 {
			if e, ok := eventOf(f); ok {
				c.events.push(e)
			}
			continue
		}
		c.mu.Lock()
		reply := c.pending[f.GetId()]
		delete(c.pending, f.GetId())
		c.mu.Unlock()
		if reply != nil {
			reply <- f
		}
	}
}

// call sends a frame and waits for its reply.
func (c *Conn) call(ctx context.Context, f *cellv1.HostFrame) (*cellv1.AgentFrame, error) {
	ctx, cancel := withDefault(ctx)
	defer cancel()
	reply := make(chan *cellv1.AgentFrame, 1)
	c.mu.Lock()
	c.nextID++
	f.Id = c.nextID
	c.pending[f.Id] = reply
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, f.Id)
		c.mu.Unlock()
	}()
	select {
	case c.out <- &outgoing{ctx: ctx, frame: f}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.Err()
	}
	select {
	case r := <-reply:
		if e := r.GetError(); e != nil {
			return nil, &Error{Code: e.GetCode(), Message: e.GetMessage()}
		}
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.Err()
	}
}

// isReset says whether the far end closed with bytes of ours unread.
func isReset(err error) bool {
	var op *net.OpError
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || (errors.As(err, &op) && errors.Is(op.Err, net.ErrClosed))
}
