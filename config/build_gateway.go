package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// kindGateway is the name of gateway blocks.
const kindGateway = "gateway"

// Gateway is one gateway block.
type Gateway struct {
	Name         string
	Upstream     string // http(s) URL
	AllowPaths   []string
	IdleTimeout  time.Duration
	TotalTimeout time.Duration
	Prices       []Price
	Headers      []Header
	Range        hcl.Range
	// Invalid says why the block cannot be used; every agent that refers to it is
	// quarantined too.
	Invalid string
}

// Ref is how a gateway is named in HCL: "gateway.anthropic".
func (g Gateway) Ref() string { return kindGateway + "." + g.Name }

// Price is what a model costs, in millionths of a USD per million tokens; "*"
// is the default. A cache price of 0 is not set.
type Price struct {
	Model                                string
	Input, Output, CacheRead, CacheWrite int64
}

// Header is a header that the host sets.
type Header struct {
	Name  string
	Value Secret
}

// Secret is a value that is never printed: not by fmt, not as JSON.
type Secret struct{ text string }

// Reveal is the value.
func (s Secret) Reveal() string { return s.text }

// String is what is printed instead.
func (s Secret) String() string { return notShown }

// GoString is String.
func (s Secret) GoString() string { return notShown }

// MarshalText is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(notShown), nil }

// Gateway is the gateway with a ref such as "gateway.anthropic".
func (c *Config) Gateway(ref string) (Gateway, bool) {
	for _, g := range c.Gateways {
		if g.Ref() == ref {
			return g, true
		}
	}
	return Gateway{}, false
}

// gateways fills the gateway blocks in; what is wrong inside of one quarantines
// that one, and the agents that refer to it.
func (b *builder) gateways(root *node) {
	seen := map[string]int{}
	for _, n := range root.all(kindGateway) {
		g, diags := gateway(n)
		diags = append(everything(n), diags...)
		if i, dup := seen[g.Name]; dup {
			first := &b.cfg.Gateways[i]
			diags = append(diags, errorAt(n.rng, "Block given twice", "There is a block %s at %s already.", n.title(), place(first.Range)))
			first.Invalid = b.quarantine(n, diags)
			continue
		}
		g.Invalid = b.quarantine(n, diags)
		seen[g.Name] = len(b.cfg.Gateways)
		b.cfg.Gateways = append(b.cfg.Gateways, g)
	}
}

func gateway(n *node) (Gateway, hcl.Diagnostics) {
	g := Gateway{Name: n.labels[0], Range: n.rng, Upstream: get[string](n, "upstream"), AllowPaths: get[[]string](n, "allow_paths"),
		IdleTimeout: get[time.Duration](n, "idle_timeout"), TotalTimeout: get[time.Duration](n, "total_timeout")}
	var diags hcl.Diagnostics
	if u, err := url.Parse(g.Upstream); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		diags = append(diags, errorAt(n.at("upstream"), "Upstream without TLS",
			"%s is not a loopback address: the credential would cross the network in the clear. Use https.", u.Hostname()))
	}
	taken := map[string]bool{}
	once := func(c *node, key string) {
		if taken[c.spec.name+" "+key] {
			diags = append(diags, errorAt(c.rng, "Block given twice", "There is a block %s in this gateway already.", c.title()))
		}
		taken[c.spec.name+" "+key] = true
	}
	for _, c := range n.all("price") {
		once(c, c.labels[0])
		g.Prices = append(g.Prices, Price{Model: c.labels[0], Input: get[int64](c, "input"), Output: get[int64](c, "output"),
			CacheRead: get[int64](c, "cache_read"), CacheWrite: get[int64](c, "cache_write")})
	}
	for _, c := range n.all("header") {
		name := strings.ToLower(c.labels[0])
		once(c, name)
		if !headerForm.MatchString(name) || framing(name) {
			diags = append(diags, errorAt(c.rng, "Bad name", "%s is not a header that a gateway can set.", quote(c.labels[0])))
		}
		g.Headers = append(g.Headers, Header{Name: c.labels[0], Value: Secret{get[string](c, "value")}})
	}
	return g, diags
}

var headerForm = regexp.MustCompile("^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$")

// framing says that a header belongs to the connection, not to the request.
func framing(name string) bool {
	switch name {
	case "host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "keep-alive", "proxy-connection", "expect", "accept-encoding":
		return true
	}
	return false
}

// summary is the block for status: the headers by name.
func (g Gateway) summary() map[string]any {
	headers := []string{}
	for _, h := range g.Headers {
		headers = append(headers, h.Name)
	}
	return map[string]any{"ref": g.Ref(), "upstream": g.Upstream, "allow_paths": g.AllowPaths, "idle_timeout": g.IdleTimeout.String(),
		"total_timeout": g.TotalTimeout.String(), "prices": g.Prices, "headers": headers, "invalid": g.Invalid}
}

// headerValue names no part of the value: it may be a secret.
func headerValue(s string) error {
	for _, c := range []byte(s) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return errors.New("holds a control character, such as a line break")
		}
	}
	return nil
}

func gatewayPath(s string) error {
	if !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "*") {
		return fmt.Errorf("%s does not begin with a slash", quote(s))
	}
	return nil
}

// allowEntry is one entry of network.allow: what host/internal/gateway reads.
func allowEntry(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%s is not host:port", quote(s))
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "*" && (err != nil || n == 0) {
		return fmt.Errorf("%s has no port from 1 to 65535, nor *", quote(s))
	}
	if _, err := netip.ParsePrefix(host); err == nil || host == "*" {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		return nil
	}
	rest := strings.TrimSuffix(strings.TrimPrefix(host, "*."), ".")
	if len(rest) > 253 || !allowedName.MatchString(rest) {
		return fmt.Errorf("%s is not a host name, *.DOMAIN, an address or a range of addresses", quote(host))
	}
	return nil
}

var allowedName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*$`)
