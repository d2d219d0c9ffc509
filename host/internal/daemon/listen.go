package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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
		l.tls = api.TLSConfig(h.now.tls.Load)
	}
	if l.rest, err = h.opts.Handed.tcp("rest", h.cfg.Listen.REST); err != nil {
		return nil, listenError("listen.rest", h.cfg.Listen.REST, err)
	}
	if l.ws, err = h.opts.Handed.tcp("ws", h.cfg.Listen.WS); err != nil {
		return nil, listenError("listen.ws", h.cfg.Listen.WS, err)
	}
	if l.socket, err = h.opts.Handed.socket(h.cfg.RunDir, h.operators.Load().UIDs()); err != nil {
		return nil, err
	}
	h.opts.Handed.close()
	_, l.restPort, _ = net.SplitHostPort(l.rest.Addr().String())
	l.addresses = Addresses{REST: "http" + scheme + "://" + l.rest.Addr().String(), WS: "ws" + scheme + "://" + l.ws.Addr().String(), Socket: filepath.Join(h.cfg.RunDir, api.SocketName)}
	return l, nil
}

func listenError(attr, addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s = %q: the address is in use; is another host running? (`airlock status` asks it): %w", attr, addr, err)
	}
	return fmt.Errorf("%s = %q: %w", attr, addr, err)
}

// restBase is the REST listener's URL as people reach it: where it listens, or
// where that is every address under the advertised name.
func (l *listeners) restBase(advertise string) string {
	scheme := "http://"
	if l.tls != nil {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(l.rest.Addr().String())
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() || l.tls != nil {
		host = advertise // a certificate is for a name
	}
	return scheme + net.JoinHostPort(host, port)
}

func (l *listeners) forAPI() api.Listeners {
	return api.Listeners{REST: l.rest, WS: l.ws, Operator: l.socket, TLS: l.tls}
}

// hand has the listeners' addresses stay when they are closed; keep takes that
// back.
func (l *listeners) hand() { l.handed(true) }
func (l *listeners) keep() { l.handed(false) }

func (l *listeners) handed(are bool) {
	if s, ok := l.socket.(interface{ Handed(bool) }); ok {
		s.Handed(are)
	}
}

func (l *listeners) close() {
	for _, one := range []net.Listener{l.rest, l.ws, l.socket} {
		if one != nil {
			_ = one.Close()
		}
	}
}
