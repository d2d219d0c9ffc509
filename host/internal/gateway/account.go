package gateway

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// account is what the gateway holds of one mission.
type account struct {
	mission string
	agent   string
	apis    []string
	proxy   bool
	allow   AllowList
	limit   Amount

	mu     sync.Mutex
	cut    bool
	ended  int // connections that were cut since
	conns  map[*conn]struct{}
	ctx    context.Context // ends when the mission is cut off
	cancel context.CancelFunc

	notes   throttle
	refused atomic.Uint64
}

func newAccount(c Caller, allow AllowList) *account {
	a := &account{mission: c.Mission, agent: c.Agent, apis: slices.Clone(c.Gateways), proxy: c.Proxy, allow: allow,
		limit: c.Limit, conns: map[*conn]struct{}{}}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// admit takes a connection in, unless the mission is cut off or has too many.
func (a *account) admit(c *conn, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cut || len(a.conns) >= most {
		return false
	}
	a.conns[c] = struct{}{}
	return true
}

func (a *account) drop(c *conn) {
	a.mu.Lock()
	delete(a.conns, c)
	a.mu.Unlock()
}

// close cuts every connection and gives how many it has cut so far; first says that
// the mission was not cut off before.
func (a *account) close() (n int, first bool) {
	a.mu.Lock()
	open := make([]*conn, 0, len(a.conns))
	for c := range a.conns {
		open = append(open, c)
	}
	first, a.cut = !a.cut, true
	a.ended += len(open)
	n = a.ended
	a.cancel()
	a.mu.Unlock()
	for _, c := range open {
		_ = c.SetDeadline(time.Unix(1, 0))
		go c.Close() // it waits for the link, which may be held up by a frozen cell
	}
	return n, first
}

func (a *account) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ctx
}

// restore lets the mission call again.
func (a *account) restore() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cut {
		a.cut, a.ended = false, 0
		a.ctx, a.cancel = context.WithCancel(context.Background())
	}
}

// conn is a connection from a cell, with the mission that it belongs to.
type conn struct {
	net.Conn
	acc  *account
	api  *api // nil: for the proxy or a forward
	once sync.Once
}

// Close ends both directions at once.
func (c *conn) Close() error {
	var err error
	c.once.Do(func() {
		c.acc.drop(c)
		_ = c.Conn.SetDeadline(time.Unix(1, 0)) // wakes whoever reads or writes
		err = c.Conn.Close()
	})
	return err
}

// CloseWrite ends the direction to the cell: a yamux stream that is closed can
// still be read.
func (c *conn) CloseWrite() error { return c.Conn.Close() }

// feed is a listener for connections that are there already.
type feed struct {
	ch   chan net.Conn
	done chan struct{}
	once sync.Once
}

func newFeed() *feed { return &feed{ch: make(chan net.Conn), done: make(chan struct{})} }

// put hands a connection to the server.
func (f *feed) put(c net.Conn) bool {
	select {
	case f.ch <- c:
		return true
	case <-f.done:
		return false
	}
}

// Accept gives the next connection.
func (f *feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.ch:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close ends the listener.
func (f *feed) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// Addr is nothing that can be dialled.
func (f *feed) Addr() net.Addr { return &net.UnixAddr{Name: "cell links", Net: "unix"} }

// throttle lets one note a second through and counts the others.
type throttle struct {
	mu     sync.Mutex
	next   time.Time
	hidden int
}

func (t *throttle) pass(now time.Time) (hidden int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.hidden++
		return 0, false
	}
	hidden, t.hidden, t.next = t.hidden, 0, now.Add(time.Second)
	return hidden, true
}
