package cellagent

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/sdk/cell"
)

// portLink is the way to the host of an agent that has virtio-serial ports:
// streams that each have one connection at a time, one after the other.
type portLink struct {
	ports []*vmPort
	rekey *os.File // gives a new secret when the cell has been restored; or nil

	mu        sync.Mutex
	responder *cell.Responder
}

const secretBytes = 32

// portFromFlags takes over what the init of a VM has opened: the ports, one
// descriptor after the other, and behind them rekey; nil = no VM.
func portFromFlags(port, rekey int) (*portLink, error) {
	if port < 0 {
		return nil, nil
	}
	own := func(fd int, name string) *os.File {
		unix.CloseOnExec(fd)
		_ = unix.SetNonblock(fd, true)
		return os.NewFile(uintptr(fd), name)
	}
	l := &portLink{}
	for fd := port; fd == port || fd < rekey; fd++ {
		p, err := newPort(own(fd, "port"))
		if err != nil {
			return nil, err
		}
		l.ports = append(l.ports, p)
	}
	if rekey >= 0 {
		l.rekey = own(rekey, "rekey")
	}
	return l, nil
}

// stopGrace is how long sessions may take to end once the agent is told to. In
// a VM, which may be emulated, it is the driver that has the host's deadline,
// and ends the VM at it.
func (a *Agent) stopGrace() time.Duration {
	if a.cfg.port != nil {
		return 30 * time.Second
	}
	return 250 * time.Millisecond
}

// servePort serves the ports until ctx ends.
func (a *Agent) servePort(ctx context.Context, p *portLink) {
	p.responder = cell.NewResponder(a.cfg.Secret)
	if p.rekey != nil {
		go p.rekeys() // until the init is gone, and the VM with it
	}
	var wg sync.WaitGroup
	for _, port := range p.ports {
		wg.Go(func() { a.serveOnePort(ctx, p, port) })
	}
	wg.Wait()
}

func (a *Agent) serveOnePort(ctx context.Context, p *portLink, port *vmPort) {
	stop := context.AfterFunc(ctx, func() { _ = port.Close() })
	defer stop()
	for ctx.Err() == nil {
		p.mu.Lock()
		responder := p.responder
		p.mu.Unlock()
		acceptor := responder.Accept(port, true)
		for ctx.Err() == nil {
			conn, err := acceptor.Next()
			if errors.Is(err, cell.ErrForged) {
				a.log.warn("refused a connection", "error", err)
				continue
			}
			if err != nil && !errors.Is(err, io.EOF) {
				_ = port.SetReadDeadline(time.Time{})
				break // rekeyed, or the port is closed
			}
			if err == nil {
				a.servePortLink(ctx, conn)
			}
		}
	}
}

// servePortLink serves one connection until the next one takes the port over,
// or the host goes.
func (a *Agent) servePortLink(ctx context.Context, conn *cell.Link) {
	mux, err := conn.Mux()
	if err != nil {
		return
	}
	defer mux.Close()
	slow := time.AfterFunc(openTime, func() { _ = mux.Close() })
	l, err := openControl(conn, mux)
	if !slow.Stop() || err != nil {
		if err != nil && !errors.Is(err, io.EOF) {
			a.log.warn("refused a connection", "error", err)
		}
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = mux.Close() })
	defer stop()
	a.connected(l)
}

// rekeys takes new secrets from the init of the VM; each is confirmed with a
// byte when nothing opens to the old one any more.
func (p *portLink) rekeys() {
	secret := make([]byte, secretBytes)
	for {
		if _, err := io.ReadFull(p.rekey, secret); err != nil {
			return
		}
		p.mu.Lock()
		p.responder = cell.NewResponder(secret)
		p.mu.Unlock()
		// Whoever waits for an opening with the old one begins anew.
		for _, port := range p.ports {
			_ = port.SetReadDeadline(time.Unix(1, 0))
		}
		if _, err := p.rekey.Write([]byte{1}); err != nil {
			return
		}
	}
}
