package mcp

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Target is what a cell's connections to this endpoint ask for on their link.
const Target = ":mcp"

// maxCell is how many connections a mission may have open at once.
const maxCell = 32

const (
	headerTime = 10 * time.Second
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
	open map[string]map[*cellConn]bool // by mission
}

// cellConn is one of them.
type cellConn struct {
	net.Conn
	cells   *cells
	mission string
	once    sync.Once
}

type cellKey struct{}

func newCells(s *Server) *cells {
	c := &cells{feed: make(chan net.Conn), done: make(chan struct{}), open: map[string]map[*cellConn]bool{}}
	c.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cc, ok := r.Context().Value(cellKey{}).(*cellConn)
			if !ok || r.URL.Path != "/mcp" {
				http.NotFound(w, r)
				return
			}
			caller := kernel.Caller{Owner: workflow.Owner(cc.mission), Scopes: []string{kernel.AllScopes}, Cell: true}
			s.handler.ServeHTTP(w, r.WithContext(withCaller(r.Context(), caller)))
		}),
		ReadHeaderTimeout: headerTime, IdleTimeout: keepTime, MaxHeaderBytes: maxHeader,
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
	if len(c.open[mission]) >= maxCell {
		c.mu.Unlock()
		_ = nc.Close()
		return
	}
	if c.open[mission] == nil {
		c.open[mission] = map[*cellConn]bool{}
	}
	c.open[mission][cc] = true
	c.mu.Unlock()
	select {
	case c.feed <- cc:
	case <-c.done:
		_ = cc.Close()
	}
}

// Cut ends every connection of a mission's cell.
func (s *Server) Cut(mission string) {
	s.cells.mu.Lock()
	var list []*cellConn
	for cc := range s.cells.open[mission] {
		list = append(list, cc)
	}
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
		delete(c.cells.open[c.mission], c)
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
