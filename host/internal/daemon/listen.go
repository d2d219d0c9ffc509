package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/airlock-host/airlock/host/internal/api"
)

// listeners are the host's three doors.
type listeners struct {
	rest, ws, socket net.Listener
	tls              *tls.Config
	restPort         string
	addresses        Addresses
}

// listen opens them all or none.
func (h *host) listen() (_ *listeners, err error) {
	l := &listeners{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	scheme := ""
	if h.cfg.TLS != nil {
		scheme = "s"
		if l.tls, err = api.TLSConfig(h.cfg.TLS); err != nil {
			return nil, err
		}
	}
	if l.rest, err = net.Listen("tcp", h.cfg.Listen.REST); err != nil {
		return nil, listenError("listen.rest", h.cfg.Listen.REST, err)
	}
	if l.ws, err = net.Listen("tcp", h.cfg.Listen.WS); err != nil {
		return nil, listenError("listen.ws", h.cfg.Listen.WS, err)
	}
	path := filepath.Join(h.cfg.RunDir, "airlock.sock")
	// The store's lock says that no other host of this data directory runs, so
	// a socket that is there is left over.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("operator socket: %w", err)
	}
	if l.socket, err = net.Listen("unix", path); err != nil {
		return nil, fmt.Errorf("operator socket: %w", err)
	}
	// Who may do what is decided by the peer's uid; the mode lets the uids of
	// operator blocks connect at all.
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, fmt.Errorf("operator socket: %w", err)
	}
	_, l.restPort, _ = net.SplitHostPort(l.rest.Addr().String())
	l.addresses = Addresses{REST: "http" + scheme + "://" + l.rest.Addr().String(), WS: "ws" + scheme + "://" + l.ws.Addr().String(), Socket: path}
	return l, nil
}

func listenError(attr, addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s = %q: the address is in use; is another host running? (`airlock status` asks it): %w", attr, addr, err)
	}
	return fmt.Errorf("%s = %q: %w", attr, addr, err)
}

func (l *listeners) forAPI() api.Listeners {
	return api.Listeners{REST: l.rest, WS: l.ws, Operator: l.socket, TLS: l.tls}
}

func (l *listeners) close() {
	for _, one := range []net.Listener{l.rest, l.ws, l.socket} {
		if one != nil {
			_ = one.Close()
		}
	}
}
