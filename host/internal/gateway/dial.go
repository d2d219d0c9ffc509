package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// refusal is a connection or request that is not let through. Its text is for
// the caller in the cell: what was refused, and what would allow it.
type refusal struct {
	reason string // one word, for the counters
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, text: "airlock: " + fmt.Sprintf(format, args...)}
}

// target is a host and port that was asked for, checked for its form.
type target struct {
	host string // canonical name; empty: ip is given
	ip   netip.Addr
	port uint16
}

// String is the target as host:port, fit for logs.
func (t target) String() string {
	host := t.host
	if host == "" {
		host = t.ip.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(t.port)))
}

func parseTarget(hostport string) (target, *refusal) {
	bad := refuse("malformed", "the target is not host:port with a host name or an address")
	host, port, err := net.SplitHostPort(hostport)
	n, bad2 := strconv.ParseUint(port, 10, 16)
	if err != nil || bad2 != nil || n == 0 {
		return target{}, bad
	}
	t := target{port: uint16(n)}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return target{}, bad
		}
		t.ip = ip.Unmap()
		return t, nil
	}
	if t.host = canonical(host); len(t.host) > 253 || !nameForm.MatchString(t.host) {
		return target{}, bad
	}
	return t, nil
}

// open reaches a target for a mission: it resolves the name once, checks every
// address that came, and connects to one of those, so that another answer of
// the name server changes nothing any more.
func (g *Gateway) open(ctx context.Context, acc *account, t target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.opts.DialTimeout)
	defer cancel()
	addrs, err := g.addresses(ctx, acc, t)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	var failed error
	for _, ip := range addrs {
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(ip, t.port).String())
		if err == nil {
			return c, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// addresses are where a target is, every one of them allowed.
func (g *Gateway) addresses(ctx context.Context, acc *account, t target) ([]netip.Addr, error) {
	allow := acc.allow
	if t.host == "" {
		if !allow.addr(t.ip, t.port) {
			return nil, notListed(acc, t)
		}
		return []netip.Addr{t.ip}, nil
	}
	if !allow.name(t.host, t.port) {
		return nil, notListed(acc, t)
	}
	addrs, err := g.opts.Resolve(ctx, t.host)
	if err != nil || len(addrs) == 0 {
		return nil, fmt.Errorf("%s cannot be resolved by the host", t.host)
	}
	for i, ip := range addrs {
		ip = ip.Unmap()
		addrs[i] = ip
		if what := g.special.of(ip); what != "" && !allow.addr(ip, t.port) {
			return nil, refuse("address", "%s is allowed by name, but it resolves to %s, which is %s; that address has to be listed too, as %q in the attribute allow of network in agent %q",
				t, ip, what, netip.AddrPortFrom(ip, t.port), acc.agent)
		}
	}
	return addrs, nil
}

func notListed(acc *account, t target) *refusal {
	return refuse("not_listed", "%s is not allowed for agent %q; %q in the attribute allow of its network block would allow it", t, acc.agent, t.String())
}
