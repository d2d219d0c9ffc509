package mcp

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Target is what a cell's connections to this endpoint ask for on their link.
const Target = ":mcp"

const (
	// maxCalls is how many calls of a mission may be under way at once.
	maxCalls = 32
	// maxCell is how many connections a mission may have open at once. With one
	// more the oldest that carries no call is closed: requests that never come to
	// their end keep no other out.
	maxCell = 2 * maxCalls
)

const (
	headerTime = 10 * time.Second
	bodyTime   = 30 * time.Second // from the first byte of a request to its last
	keepTime   = 2 * time.Minute
	maxHeader  = 64 << 10
)

// cells takes connections that processes in cells have opened. The link that
// one came over says whose it is: there is no token in a cell.
type cells struct {
	feed   chan net.Conn
	done   chan struct{}
	once   sync.Once
	server *http.Server
	wg     sync.WaitGroup

	mu   sync.Mutex
	open map[string][]*cellConn // by mission, the oldest first
}

// cellConn is one of them.
type cellConn struct {
	net.Conn
	cells   *cells
	mission string
	once    sync.Once
	busy    bool // it carries a call; under cells.mu
}

type cellKey struct{}

// cellOf is the connection of a cell that a request came over; nil: none.
func cellOf(ctx context.Context) *cellConn {
	cc, _ := ctx.Value(cellKey{}).(*cellConn)
	return cc
}

// begin takes a place for a call that has been read; false: all are taken.
func (c *cellConn) begin() bool {
	c.cells.mu.Lock()
	defer c.cells.mu.Unlock()
	n := 0
	for _, other := range c.cells.open[c.mission] {
		if other.busy {
			n++
		}
	}
	c.busy = n < maxCalls
	return c.busy
}

func (c *cellConn) end() {
	c.cells.mu.Lock()
	c.busy = false
	c.cells.mu.Unlock()
}

func newCells(s *Server) *cells {
	c := &cells{feed: make(chan net.Conn), done: make(chan struct{}), open: map[string][]*cellConn{}}
	c.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cc := cellOf(r.Context())
			if cc == nil || r.URL.Path != "/mcp" {
				http.NotFound(w, r)
				return
			}
			caller := kernel.Caller{Owner: workflow.Owner(cc.mission), Scopes: []string{kernel.AllScopes}, Cell: true}
			s.handler.ServeHTTP(w, r.WithContext(withCaller(r.Context(), caller)))
		}),
		ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, IdleTimeout: keepTime, MaxHeaderBytes: maxHeader,
		ErrorLog:    log.New(io.Discard, "", 0), // it would print what cells send
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context { return context.WithValue(ctx, cellKey{}, nc) },
	}
	c.wg.Go(func() { _ = c.server.Serve(c) })
	return c
}

// Carry takes a connection of a mission's cell, and owns it.
func (s *Server) Carry(mission string, nc net.Conn) {
	c := s.cells
	cc := &cellConn{Conn: nc, cells: c, mission: mission}
	c.mu.Lock()
	var old *cellConn
	if list := c.open[mission]; len(list) >= maxCell {
		// There are fewer calls than connections.
		old = list[slices.IndexFunc(list, func(o *cellConn) bool { return !o.busy })]
	}
	c.open[mission] = append(c.open[mission], cc)
	c.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	select {
	case c.feed <- cc:
	case <-c.done:
		_ = cc.Close()
	}
}

// Cut ends every connection of a mission's cell.
func (s *Server) Cut(mission string) {
	s.cells.mu.Lock()
	list := slices.Clone(s.cells.open[mission])
	s.cells.mu.Unlock()
	for _, cc := range list {
		_ = cc.Close()
	}
}

// Close ends the connections of all cells. Requests of the REST listener end
// with that.
func (s *Server) Close() {
	_ = s.cells.Close()
	_ = s.cells.server.Close()
	s.cells.wg.Wait()
}

// Close is net.Conn's.
func (c *cellConn) Close() error {
	c.once.Do(func() {
		c.cells.mu.Lock()
		c.cells.open[c.mission] = slices.DeleteFunc(c.cells.open[c.mission], func(o *cellConn) bool { return o == c })
		if len(c.cells.open[c.mission]) == 0 {
			delete(c.cells.open, c.mission)
		}
		c.cells.mu.Unlock()
	})
	return c.Conn.Close()
}

// Accept is net.Listener's.
func (c *cells) Accept() (net.Conn, error) {
	select {
	case nc := <-c.feed:
		return nc, nil
	case <-c.done:
		return nil, net.ErrClosed
	}
}

// Close is net.Listener's.
func (c *cells) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

// Addr is net.Listener's.
func (c *cells) Addr() net.Addr { return cellAddr{} }

type cellAddr struct{}

func (cellAddr) Network() string { return "cell" }
func (cellAddr) String() string  { return "cells" }
