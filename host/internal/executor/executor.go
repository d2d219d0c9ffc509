package executor

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Executor speaks the executor contract for one host. Make it with New, mount
// Register, call Run once.
type Executor struct {
	opt   Options
	log   hclog.Logger
	serve *serveClient
	token atomic.Pointer[string] // nil: not registered
	// handed is a token of before, good for dispatches that were on their way
	// while this process took over; nil: none.
	handed atomic.Pointer[string]
	inbox  *inbox
	again  chan struct{} // an operator asks for a reconnect
	// leaving is set by Deregister: no registration follows it.
	leaving atomic.Bool

	mu       sync.Mutex
	link     linkState
	sandbox  sandboxState
	secrets  []string
	delivery *delivery            // of the connection that is up; nil: none
	watched  map[string]time.Time // missions whose state is to be restated, until when
}

// New makes an executor. Without an endpoint it answers 503 to every dispatch
// and Run only waits.
func New(opt Options) *Executor {
	opt.defaults()
	opt.Endpoint = strings.TrimRight(opt.Endpoint, "/")
	x := &Executor{opt: opt, log: opt.Logger, again: make(chan struct{}, 1), watched: map[string]time.Time{}}
	if u, err := url.Parse(opt.Endpoint); err == nil && u.User != nil {
		if p, ok := u.User.Password(); ok && p != "" {
			x.remember(p)
		}
	}
	x.serve = newServeClient(opt.Endpoint, x.redact)
	x.inbox = newInbox(x)
	x.Adopt(opt.Token)
	return x
}

// Adopt takes the token of a registration over that an earlier process of this
// host has; empty: none. It comes before Run.
func (x *Executor) Adopt(token string) {
	if token == "" || !x.configured() {
		return
	}
	x.remember(token)
	x.token.Store(&token)
	x.handed.Store(&token)
}

// Token is that of the registration, to hand over to the next process of this
// host; empty: not registered.
func (x *Executor) Token() string {
	if t := x.token.Load(); t != nil && !x.leaving.Load() {
		return *t
	}
	return ""
}

func (x *Executor) configured() bool { return x.opt.Endpoint != "" }

// Run keeps the links up until ctx ends, then closes the socket with 1000. It
// does not deregister.
func (x *Executor) Run(ctx context.Context) {
	if !x.configured() {
		<-ctx.Done()
		return
	}
	if x.handed.Load() != nil {
		old := time.AfterFunc(handedFor, func() { x.handed.Store(nil) })
		defer old.Stop()
	}
	stop := x.inbox.start(ctx)
	var wg sync.WaitGroup
	if x.opt.Sandbox {
		wg.Go(func() { x.runSandbox(ctx) })
	}
	x.runLink(ctx)
	wg.Wait()
	stop()
	x.serve.http.CloseIdleConnections()
}

// Flush waits until everything that serve takes has been delivered, until ctx
// ends, or until the link is down: what is left stays in the outbox.
func (x *Executor) Flush(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		x.mu.Lock()
		d := x.delivery
		x.mu.Unlock()
		if d == nil || d.sock.ctx.Err() != nil || d.idle(ctx) {
			return ctx.Err()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Deregister tells serve that this executor is gone (drain and uninstall only).
// It may be called before or after Run has ended; no registration follows.
func (x *Executor) Deregister(ctx context.Context) error {
	x.leaving.Store(true)
	token := x.token.Swap(nil)
	x.handed.Store(nil)
	if !x.configured() || token == nil {
		return nil
	}
	err := x.serve.deregister(ctx, x.opt.Timings.RequestWait, x.opt.ID, *token)
	x.serve.http.CloseIdleConnections()
	return err
}

// Reconnect skips the wait before the next attempt, or renews a link that is up.
func (x *Executor) Reconnect() {
	select {
	case x.again <- struct{}{}:
	default:
	}
}

// restate sees to it for a while that serve shows the mission's true state. It
// survives a reconnect.
func (x *Executor) restate(missionID string) {
	until := time.Now().Add(x.opt.Timings.RestateFor)
	x.mu.Lock()
	x.watched[missionID] = until
	d := x.delivery
	x.mu.Unlock()
	if d != nil {
		d.restate(missionID, until)
	}
}

func (x *Executor) restated(missionID string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if until, ok := x.watched[missionID]; ok && !time.Now().Before(until) {
		delete(x.watched, missionID)
	}
}
