package gateway

import (
	"context"
	"net"
	"net/netip"
)

// special are ranges that are not the public internet, with what they are: a
// name that leads there may be an attempt to reach the host itself or its
// neighbours.
func special() []struct{ prefix, what string } {
	return []struct{ prefix, what string }{
		{"0.0.0.0/8", "this host"}, {"127.0.0.0/8", "loopback"}, {"10.0.0.0/8", "a private network"},
		{"172.16.0.0/12", "a private network"}, {"192.168.0.0/16", "a private network"},
		{"100.64.0.0/10", "a carrier's private network"}, {"169.254.0.0/16", "link-local (metadata services are there)"},
		{"192.0.0.0/24", "reserved"}, {"192.0.2.0/24", "reserved"}, {"198.18.0.0/15", "reserved"},
		{"198.51.100.0/24", "reserved"}, {"203.0.113.0/24", "reserved"}, {"192.88.99.0/24", "reserved"},
		{"168.63.129.16/32", "a metadata service"}, {"224.0.0.0/4", "multicast"}, {"240.0.0.0/4", "reserved"},
		{"::/128", "this host"}, {"::1/128", "loopback"}, {"fc00::/7", "a private network"},
		{"fe80::/10", "link-local"}, {"fec0::/10", "a private network"}, {"ff00::/8", "multicast"},
		{"2001:db8::/32", "reserved"}, {"100::/64", "reserved"}, {"2001::/23", "reserved"},
		// These hold IPv4 addresses, private ones too.
		{"::/96", "an embedded IPv4 address"}, {"64:ff9b::/96", "an embedded IPv4 address"},
		{"64:ff9b:1::/48", "an embedded IPv4 address"}, {"2002::/16", "an embedded IPv4 address"},
	}
}

type ranges []struct {
	prefix netip.Prefix
	what   string
}

func specialRanges() ranges {
	var out ranges
	for _, r := range special() {
		out = append(out, struct {
			prefix netip.Prefix
			what   string
		}{netip.MustParsePrefix(r.prefix), r.what})
	}
	return out
}

// of says what an address is when it is not public; empty: it is.
func (r ranges) of(ip netip.Addr) string {
	for _, s := range r {
		if s.prefix.Contains(ip) {
			return s.what
		}
	}
	if ownAddress(ip) {
		return "an address of this host"
	}
	return ""
}

// ownAddress says whether an address is one of this machine's: what listens
// there may trust its neighbours.
func ownAddress(ip netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == ip {
				return true
			}
		}
	}
	return false
}

func systemResolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
