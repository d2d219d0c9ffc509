package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// AllowList is which hosts and ports a cell may reach.
type AllowList struct{ entries []entry }

// entry is one line of an allow list. Exactly one of name and prefix is set.
type entry struct {
	name   string // "registry.example", "*.example.org", "*"
	prefix netip.Prefix
	port   uint16 // 0: any
}

var nameForm = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*$`)

// ParseAllow reads entries "HOST:PORT". HOST is a name, "*.DOMAIN" for every
// name below a domain, "*" for every name, an IP address, or a range
// "10.0.0.0/8"; IPv6 goes into brackets. PORT is 1 to 65535, or * for any. A
// name that resolves to an address which is not public counts only when an
// entry lists that address too.
func ParseAllow(list []string) (AllowList, error) {
	var a AllowList
	for _, text := range list {
		e, err := parseEntry(text)
		if err != nil {
			return AllowList{}, fmt.Errorf("%q: %w", text, err)
		}
		a.entries = append(a.entries, e)
	}
	return a, nil
}

func parseEntry(text string) (entry, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return entry{}, errors.New("is not host:port")
	}
	var e entry
	if port != "*" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return entry{}, errors.New("has no port from 1 to 65535, nor *")
		}
		e.port = uint16(n)
	}
	if p, err := netip.ParsePrefix(host); err == nil {
		e.prefix = p.Masked()
		return e, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return entry{}, errors.New("an address with a zone cannot be listed")
		}
		ip = ip.Unmap()
		e.prefix = netip.PrefixFrom(ip, ip.BitLen())
		return e, nil
	}
	e.name = canonical(host)
	rest := strings.TrimPrefix(e.name, "*.")
	if e.name != "*" && (len(rest) > 253 || !nameForm.MatchString(rest)) {
		return entry{}, errors.New("is not a host name, *.DOMAIN, an address or a range of addresses")
	}
	return e, nil
}

// canonical is a name as it is compared: lower case, without the last dot.
func canonical(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// name says whether a host name may be reached on a port.
func (a AllowList) name(host string, port uint16) bool {
	for _, e := range a.entries {
		if e.name == "" || e.port != 0 && e.port != port {
			continue
		}
		if e.name == "*" || e.name == host {
			return true
		}
		if domain, wild := strings.CutPrefix(e.name, "*"); wild && strings.HasSuffix(host, domain) && len(host) > len(domain) {
			return true
		}
	}
	return false
}

// addr says whether an address is listed as such.
func (a AllowList) addr(ip netip.Addr, port uint16) bool {
	for _, e := range a.entries {
		if e.name == "" && (e.port == 0 || e.port == port) && e.prefix.Contains(ip) {
			return true
		}
	}
	return false
}
