package gateway

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// ProxyTarget is the target of connections that speak to the HTTP proxy.
const ProxyTarget = ":proxy"

const (
	headerTime = 30 * time.Second // for the head of a request
	keepTime   = 2 * time.Minute  // a connection without a request
	maxHeader  = 64 << 10         // bytes of a request's head
)

// Gateway carries connections of cells. Make it with New, end it with Close.
type Gateway struct {
	opts    Options
	special ranges
	stats   counters

	mu       sync.Mutex
	apis     map[string]*api
	accounts map[string]*account
	closed   bool

	apiFeed, proxyFeed *feed
	servers            []*http.Server
	wg                 sync.WaitGroup
}

// New makes a gateway. It opens nothing: connections come through Carry.
func New(opts Options) (*Gateway, error) {
	g := &Gateway{opts: opts.withDefaults(), special: specialRanges(), accounts: map[string]*account{},
		apiFeed: newFeed(), proxyFeed: newFeed()}
	if err := g.Configure(opts.APIs); err != nil {
		return nil, err
	}
	g.serve(g.apiFeed, http.HandlerFunc(g.serveAPI))
	g.serve(g.proxyFeed, http.HandlerFunc(g.serveProxy))
	return g, nil
}

// Configure replaces the model APIs. Requests that are under way go on with
// what they began with.
func (g *Gateway) Configure(list []API) error {
	apis, err := g.makeAPIs(list)
	if err != nil {
		return err
	}
	g.mu.Lock()
	old := g.apis
	g.apis = apis
	g.mu.Unlock()
	for _, a := range old {
		a.transport.CloseIdleConnections()
	}
	return nil
}

// Check says what Configure would refuse.
func (g *Gateway) Check(list []API) error {
	_, err := g.makeAPIs(list)
	return err
}

func (g *Gateway) makeAPIs(list []API) (map[string]*api, error) {
	apis := make(map[string]*api, len(list))
	for _, a := range list {
		made, err := g.newAPI(a)
		if err != nil {
			return nil, fmt.Errorf("gateway %q: %w", a.Name, err)
		}
		apis[a.Name] = made
	}
	return apis, nil
}

type connKey struct{}

func (g *Gateway) serve(f *feed, h http.Handler) {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: keepTime, MaxHeaderBytes: maxHeader,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(io.Discard, "", 0), // it would print what cells send
		ConnContext:                  func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	g.servers = append(g.servers, s)
	g.wg.Go(func() { _ = s.Serve(f) })
}

// connOf is the connection that a request came over.
func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }

// Carry takes a connection that a process in a mission's cell has opened, and
// owns it. target is a gateway's name, ProxyTarget, or host:port. What the
// mission may not reach is closed at once, or answered with a refusal where
// the protocol has one.
func (g *Gateway) Carry(caller Caller, target string, nc net.Conn) {
	acc, err := g.account(caller)
	if err != nil {
		g.opts.Log.Error("a connection of a cell was closed", "mission", caller.Mission, "error", err)
		_ = nc.Close()
		return
	}
	c := &conn{Conn: nc, acc: acc}
	if !acc.admit(c, g.opts.MaxConns) {
		g.note(acc, "connections", "the mission is cut off, or has too many connections")
		_ = nc.Close()
		return
	}
	switch {
	case target == ProxyTarget && acc.proxy:
		if !g.proxyFeed.put(c) {
			_ = c.Close()
		}
	case strings.Contains(target, ":") && acc.proxy && target != ProxyTarget:
		g.forward(c, target)
	case slices.Contains(acc.apis, target):
		g.mu.Lock()
		c.api = g.apis[target]
		g.mu.Unlock()
		if c.api == nil || !g.apiFeed.put(c) {
			g.note(acc, "unknown", "the gateway is not configured")
			_ = c.Close()
		}
	default:
		g.note(acc, "not_listed", "the agent has no such way out")
		_ = c.Close()
	}
}

// account finds or opens a mission's account.
func (g *Gateway) account(c Caller) (*account, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, net.ErrClosed
	}
	if a := g.accounts[c.Mission]; a != nil && a.agent != "" {
		return a, nil
	}
	allow, err := ParseAllow(c.Allow)
	if err != nil {
		return nil, fmt.Errorf("allow list: %w", err)
	}
	a := newAccount(c, allow)
	if old := g.accounts[c.Mission]; old != nil { // cut off before its first connection
		a.cut = old.cut
		if a.cut {
			a.cancel()
		}
	}
	g.accounts[c.Mission] = a
	return a, nil
}

// Cut cuts a mission off: every open connection of it ends, and new ones are
// refused, until Restore. It gives how many connections were cut since the first
// Cut. It waits neither for the cell nor for an upstream: when it returns,
// everything that the mission had open is being broken off, and nothing new is
// begun.
func (g *Gateway) Cut(mission string) int {
	g.mu.Lock()
	a := g.accounts[mission]
	if a == nil {
		a = newAccount(Caller{Mission: mission}, AllowList{})
		g.accounts[mission] = a
	}
	g.mu.Unlock()
	n, first := a.close()
	if first {
		g.opts.Log.Info("a mission is cut off at the gateway", "mission", mission, "connections", n)
	}
	return n
}

// Restore lets a mission that was cut off call again.
func (g *Gateway) Restore(mission string) {
	g.mu.Lock()
	a := g.accounts[mission]
	g.mu.Unlock()
	if a != nil {
		a.restore()
	}
}

// Forget drops what is held of a mission that has ended.
func (g *Gateway) Forget(mission string) {
	g.mu.Lock()
	a := g.accounts[mission]
	delete(g.accounts, mission)
	g.mu.Unlock()
	if a != nil {
		a.close()
	}
}

// Close ends every connection.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	list := g.accounts
	g.accounts = map[string]*account{}
	apis := g.apis
	g.mu.Unlock()
	for _, a := range list {
		a.close()
	}
	for _, s := range g.servers {
		_ = s.Close()
	}
	_ = g.apiFeed.Close()
	_ = g.proxyFeed.Close()
	g.wg.Wait()
	for _, a := range apis {
		a.transport.CloseIdleConnections()
	}
}
