package helper

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
)

type rawBuffer struct{ bytes []byte }

func (b *rawBuffer) Write(p []byte) (int, error) {
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// agentMagic begins the agent's answer to a preamble (sdk/cell). The agent
// gives it to nobody who does not know the cell's secret.
const agentMagic = "\xa7ALCELL\x02"

// relay carries connections of link.sock to the agent. Whoever comes gets a
// port of his own, beside the connection that counts: that is cut when the
// agent has answered the new one, and not for a stranger.
type relay struct {
	reach func(ctx context.Context, socket string) (net.Conn, error)

	mu    sync.Mutex
	ports [Links]*carried
	count uint64
}

// carried is one connection that is being relayed.
type carried struct {
	host    net.Conn
	serial  uint64 // by age
	proven  bool
	cut     context.CancelFunc
	stopped chan struct{} // closed when nothing of it is left
}

// serve relays until the listener is closed, or there is no VM.
func (r *relay) serve(ctx context.Context, listener net.Listener) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		host, err := listener.Accept()
		if err != nil {
			return
		}
		c := &carried{host: host, stopped: make(chan struct{})}
		own, cut := context.WithCancel(ctx)
		c.cut = cut
		i, before := r.place(c)
		wg.Go(func() {
			defer close(c.stopped)
			defer r.leave(i, c)
			defer host.Close()
			defer cut()
			if before != nil {
				before.cut()
				<-before.stopped
			}
			port, err := r.reach(own, LinkSocket(i))
			if err != nil {
				if own.Err() == nil {
					cancel()
				}
				return
			}
			r.carry(own, c, port)
		})
	}
}

// place gives a connection a port: one that nobody has, else that of whoever
// has waited longest for an answer of the agent.
func (r *relay) place(c *carried) (i int, before *carried) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	c.serial = r.count
	for n, old := range r.ports {
		switch now := r.ports[i]; {
		case old == nil:
			r.ports[n] = c
			return n, nil
		case now.proven || !old.proven && old.serial < now.serial:
			i = n
		}
	}
	before = r.ports[i]
	r.ports[i] = c
	return i, before
}

func (r *relay) leave(i int, c *carried) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ports[i] == c {
		r.ports[i] = nil
	}
}

// prove says that the agent has answered a connection: it is the one that
// counts, and the one before is over.
func (r *relay) prove(c *carried) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.proven = true
	for _, old := range r.ports {
		if old != nil && old != c && old.proven {
			old.cut()
		}
	}
}

// carry copies both ways until one end goes or the connection is cut.
func (r *relay) carry(ctx context.Context, c *carried, port net.Conn) {
	var wg sync.WaitGroup
	defer wg.Wait()
	end := func() {
		_ = c.host.Close()
		_ = port.Close()
	}
	defer end()
	stop := context.AfterFunc(ctx, end)
	defer stop()
	wg.Go(func() { defer end(); _, _ = io.Copy(port, c.host) })
	if r.awaitAnswer(c, port) == nil {
		_, _ = io.Copy(c.host, port)
	}
}

// awaitAnswer copies from the agent up to its answer. What an earlier
// connection has left in the port may come before it.
func (r *relay) awaitAnswer(c *carried, port net.Conn) error {
	buf := make([]byte, 32<<10)
	kept := 0 // of the last read: the magic may lie across two
	for {
		n, err := port.Read(buf[kept:])
		if n > 0 {
			seen := buf[:kept+n]
			found := bytes.Contains(seen, []byte(agentMagic))
			if found {
				r.prove(c)
			}
			if _, err := c.host.Write(seen[kept:]); err != nil || found {
				return err
			}
			tail := seen[max(0, len(seen)-len(agentMagic)+1):]
			kept = copy(buf, tail)
		}
		if err != nil {
			return err
		}
	}
}
