package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Orchestrator is one `aiwg serve`.
type Orchestrator struct {
	opt      Options
	client   *http.Client
	upgrader websocket.Upgrader
	life     context.Context
	end      context.CancelFunc
	running  sync.WaitGroup

	mu         sync.Mutex
	url        string
	server     *http.Server
	down       bool
	tokens     map[string]string // identity store: executor id -> token
	executors  map[string]*executor
	order      []string // executor ids in order of registration
	missions   map[string]*record
	ended      []string // mission ids, oldest first
	sandboxes  map[string]*sandbox
	sockets    map[*socket]bool
	feed       feed
	violations []Violation
	dropped    int
	changed    chan struct{} // closed at the next change of any mission
}

// New makes an orchestrator; Start or Serve opens it.
func New(opt Options) *Orchestrator {
	opt.defaults()
	life, end := context.WithCancel(context.Background())
	o := &Orchestrator{
		opt:    opt,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second}, Timeout: 60 * time.Second},
		life:   life, end: end,
		upgrader: websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }},
		tokens:   map[string]string{},
		sockets:  map[*socket]bool{},
		feed:     feed{changed: make(chan struct{})},
		changed:  make(chan struct{}),
	}
	o.forget()
	return o
}

// forget empties everything that serve keeps in memory; o.mu is held or not
// needed yet.
func (o *Orchestrator) forget() {
	o.executors = map[string]*executor{}
	o.order = nil
	o.missions = map[string]*record{}
	o.ended = nil
	o.sandboxes = map[string]*sandbox{}
}

// Start listens on addr, which must be a loopback address ("127.0.0.1:0"), and
// serves until Close.
func (o *Orchestrator) Start(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("orchestrator: %w", err)
	}
	srv, err := o.open(l)
	if err != nil {
		_ = l.Close()
		return err
	}
	o.running.Go(func() { _ = srv.Serve(l) })
	return nil
}

// Serve serves on l until Close; it then returns nil. It refuses a listener
// that is not on a loopback address: most of its routes ask for no credential.
func (o *Orchestrator) Serve(l net.Listener) error {
	srv, err := o.open(l)
	if err != nil {
		return err
	}
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("orchestrator: %w", err)
	}
	return nil
}

func (o *Orchestrator) open(l net.Listener) (*http.Server, error) {
	a, ok := l.Addr().(*net.TCPAddr)
	if !ok || !a.IP.IsLoopback() {
		return nil, fmt.Errorf("orchestrator: %s is not a loopback address", l.Addr())
	}
	srv := &http.Server{Handler: http.StripPrefix(o.opt.Path, o.Handler()), ReadHeaderTimeout: 10 * time.Second}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.url = "http://" + l.Addr().String() + o.opt.Path
	o.server = srv
	return srv, nil
}

// URL is the base URL after Start or Serve, without a trailing slash.
func (o *Orchestrator) URL() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.url
}

// Close ends the listener, every socket and every goroutine.
func (o *Orchestrator) Close() {
	o.end()
	o.mu.Lock()
	srv := o.server
	o.mu.Unlock()
	o.cut()
	if srv != nil {
		_ = srv.Close()
	}
	o.cut() // those that were upgraded in between
	o.running.Wait()
	o.client.CloseIdleConnections()
}

// Restart is serve killed and started again: sockets end without a close
// handshake, registrations, missions and sandboxes are forgotten, tokens are
// kept.
func (o *Orchestrator) Restart() {
	o.mu.Lock()
	o.forget()
	o.mu.Unlock()
	o.cut()
}

// SetDown makes the orchestrator unreachable, or reachable again: sockets are
// cut, every connection is closed without an answer. What it knows is kept.
func (o *Orchestrator) SetDown(down bool) {
	o.mu.Lock()
	o.down = down
	o.mu.Unlock()
	if down {
		o.cut()
	}
}

// CloseSockets closes every executor's socket with a close code.
func (o *Orchestrator) CloseSockets(code int, reason string) {
	for _, s := range o.allSockets() {
		s.close(code, reason)
	}
}

func (o *Orchestrator) cut() {
	for _, s := range o.allSockets() {
		_ = s.conn.NetConn().Close()
	}
}

func (o *Orchestrator) allSockets() []*socket {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []*socket
	for s := range o.sockets {
		all = append(all, s)
	}
	return all
}
