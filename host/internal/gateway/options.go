package gateway

import (
	"context"
	"crypto/x509"
	"net/netip"
	"net/url"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Options of a Gateway. Zero values are the defaults.
type Options struct {
	APIs   []API
	Budget Budget // nil: nothing is limited or counted
	Log    hclog.Logger
	Now    func() time.Time // nil: time.Now

	// Resolve looks a host name up, all its addresses; nil: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// RootCAs verify upstreams; nil: the system's.
	RootCAs *x509.CertPool
	// MaxConns is how many connections a mission may have open; 0 = 128.
	MaxConns int
	// Idle ends a connection to an allowed host on which nothing moves; 0 = 10 m.
	Idle time.Duration
	// Total ends every connection to an allowed host; 0 = 12 h.
	Total time.Duration
	// MaxBody is how much of a request is read to fit it into a budget, in bytes;
	// 0 = 32 MiB.
	MaxBody int64
	// DialTimeout bounds the way to an upstream; 0 = 15 s.
	DialTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Budget == nil {
		o.Budget = unlimited{}
	}
	if o.Resolve == nil {
		o.Resolve = systemResolve
	}
	if o.MaxConns == 0 {
		o.MaxConns = 128
	}
	if o.Idle == 0 {
		o.Idle = 10 * time.Minute
	}
	if o.Total == 0 {
		o.Total = 12 * time.Hour
	}
	if o.MaxBody == 0 {
		o.MaxBody = 32 << 20
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 15 * time.Second
	}
	return o
}

// API is one model API.
type API struct {
	Name     string
	Upstream *url.URL // http only with a loopback address
	// Paths that may be called, with * for any characters; empty: all.
	Paths  []string
	Idle   time.Duration // longest silence of the upstream
	Total  time.Duration // longest time of one request
	Prices map[string]Price
	// Headers are set on every request, whatever the caller has sent in them.
	Headers []Header
}

// Header is a header with its secret value. It prints as its name only.
type Header struct {
	Name  string
	value string
}

// NewHeader makes a Header.
func NewHeader(name, value string) Header { return Header{Name: name, value: value} }

// String is the header without its value.
func (h Header) String() string { return h.Name }

// GoString is String: %#v must not print the value either.
func (h Header) GoString() string { return h.Name }

// Caller is the mission at the cell's end of a connection, as the host knows
// it.
type Caller struct {
	Mission string
	Agent   string // its agent block, for what refusals say
	// Gateways are the names of the APIs that it may use.
	Gateways []string
	// Proxy says that it may use the HTTP proxy and forwards, within Allow.
	Proxy bool
	Allow []string // see ParseAllow
	Limit Amount   // of its model calls
}
