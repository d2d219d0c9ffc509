package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
)

// Server is the operator's API. Make it with New, then call Serve once, or use
// its handlers.
type Server struct {
	opts      Options
	log       hclog.Logger
	now       func() time.Time
	operators atomic.Pointer[Operators]
	hosts     map[string]bool
	limiter   *limiter
	metrics   *metrics
	writers   *writers
	unproven  chan struct{}
	ui        *uiSessions
	screens   chan struct{} // one for each terminal that is being shown
	verifying chan struct{}
	life      context.Context // ends when streams and sockets have to
	end       context.CancelFunc
	rest, ws  http.Handler
}

// New makes a server.
func New(opts Options) (*Server, error) {
	if opts.WriteTimeout <= 0 {
		opts.WriteTimeout = 10 * time.Second
	}
	if opts.BodyTimeout <= 0 {
		opts.BodyTimeout = 30 * time.Second
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	m, err := newMetrics(opts.Register)
	if err != nil {
		return nil, fmt.Errorf("api metrics: %w", err)
	}
	s := &Server{
		opts: opts, log: opts.Log, now: opts.Now, hosts: map[string]bool{}, metrics: m,
		limiter:  &limiter{now: opts.Now, remotes: map[string]*failures{}},
		writers:  &writers{taken: map[string]bool{}},
		unproven: make(chan struct{}, maxUnproven),
		ui:       newUISessions(opts.Now),
		screens:  make(chan struct{}, maxScreens), verifying: make(chan struct{}, maxVerifying),
	}
	for _, h := range opts.Hosts {
		if name := hostname(h); name != "" {
			s.hosts[name] = true
		}
	}
	s.operators.Store(opts.Operators)
	s.life, s.end = context.WithCancel(context.Background())
	s.rest = s.guard(s.router(s.Routes()))
	s.ws = s.guard(s.wsRouter(s.WSRoutes()))
	return s, nil
}

// SetOperators puts another table in, at a reload. Open streams go on.
func (s *Server) SetOperators(t *Operators) { s.operators.Store(t) }

// REST is the handler of the REST listener and of the operator socket. The
// WebSockets are there too: who has one address needs no other.
func (s *Server) REST() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/ws/") {
			s.ws.ServeHTTP(w, r)
			return
		}
		s.rest.ServeHTTP(w, r)
	})
}

// WS is the handler of the WebSocket listener.
func (s *Server) WS() http.Handler { return s.ws }

// Close ends every stream and socket; Serve does it by itself.
func (s *Server) Close() { s.end() }

// Listeners are what Serve serves; nil ones are left out. They are closed when
// Serve returns.
type Listeners struct {
	REST, WS, Operator net.Listener
	TLS                *tls.Config // of REST and WS; nil: none
}

// Serve serves until ctx ends, then ends the streams, lets the requests that
// run finish within the grace and returns nil. An error is a listener's.
func (s *Server) Serve(ctx context.Context, l Listeners, grace time.Duration) error {
	defer s.end()
	if l.TLS != nil {
		if l.REST != nil {
			l.REST = tls.NewListener(l.REST, l.TLS)
		}
		if l.WS != nil {
			l.WS = tls.NewListener(l.WS, l.TLS)
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, one := range []struct {
		l net.Listener
		h http.Handler
	}{{l.REST, s.REST()}, {l.WS, s.ws}, {l.Operator, s.REST()}} {
		if one.l == nil {
			continue
		}
		srv, open := s.httpServer(one.h), &conns{}
		srv.ConnState = open.note
		g.Go(func() error {
			err := srv.Serve(one.l)
			if gctx.Err() != nil && (errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed)) {
				return nil
			}
			return fmt.Errorf("listener %s: %w", one.l.Addr(), err)
		})
		g.Go(func() error {
			<-gctx.Done()
			s.wind(srv, one.l, open, newWait, grace)
			return nil
		})
	}
	return g.Wait()
}

// newWait is how long a connection may take, once nobody is accepted any more, to
// send what it came for.
const newWait = 250 * time.Millisecond

// wind ends a server without dropping a request: http.Server.Shutdown would drop
// one that is being read, and whoever sent it could not know whether it counts.
func (s *Server) wind(srv *http.Server, l net.Listener, open *conns, first, grace time.Duration) {
	_ = l.Close()
	srv.SetKeepAlivesEnabled(false) // closes idle ones, and the others with their answer
	open.until(first, func(states map[http.ConnState]int) bool { return states[http.StateNew] == 0 })
	s.end()
	open.until(grace, func(states map[http.ConnState]int) bool { return states[http.StateActive] == 0 })
	_ = srv.Close()
}

// conns are a server's open connections, with their states.
type conns struct {
	mu   sync.Mutex
	open map[net.Conn]http.ConnState
}

func (c *conns) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.open, conn)
		return
	}
	if c.open == nil {
		c.open = map[net.Conn]http.ConnState{}
	}
	c.open[conn] = state
}

// until waits until the connections are as wanted, no longer than that.
func (c *conns) until(most time.Duration, wanted func(states map[http.ConnState]int) bool) {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(time.Millisecond) {
		states := map[http.ConnState]int{}
		c.mu.Lock()
		for _, state := range c.open {
			states[state]++
		}
		c.mu.Unlock()
		if wanted(states) {
			return
		}
	}
}

// httpServer has the time-outs that keep slow clients from holding on. There is
// none for writing: streams set theirs for each write.
func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       connContext,
		BaseContext:       func(net.Listener) context.Context { return s.life },
		ErrorLog:          s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
}
