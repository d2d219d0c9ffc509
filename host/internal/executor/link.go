package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// runLink keeps the executor link up: register, open the socket, serve it; wait
// and begin again. Registration comes first at every attempt, because a
// restarted serve takes an old token on a socket and then drops every event.
func (x *Executor) runLink(ctx context.Context) {
	b := backoff{min: x.opt.Timings.BackoffMin, max: x.opt.Timings.BackoffMax}
	for ctx.Err() == nil && !x.leaving.Load() {
		lived, err := x.connect(ctx)
		if ctx.Err() != nil || x.leaving.Load() {
			break
		}
		if lived >= x.opt.Timings.StableAfter {
			b.reset()
		}
		if errors.Is(err, errPlanned) {
			x.letGo(ctx)
			continue
		}
		wait := b.wait()
		var a *answerError
		if errors.As(err, &a) {
			wait = min(max(wait, a.RetryAfter), x.opt.Timings.BackoffMax)
		}
		x.log.Warn("link to the orchestrator is down", "error", err, "retry_in", wait)
		x.setLink(func(l *linkState) { l.linkError, l.backoff = err.Error(), wait })
		x.sleep(ctx, wait)
		x.setLink(func(l *linkState) { l.backoff = 0 })
	}
	<-ctx.Done()
}

// letGo waits a moment until serve shows that it has let go of the socket that
// was just closed. Serve keeps one socket per executor, and the late end of an
// old one would take the new one down with it.
func (x *Executor) letGo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.opt.Timings.CloseWait)
	defer cancel()
	for ctx.Err() == nil {
		if up, err := x.serve.connected(ctx, x.opt.Timings.CloseWait, x.opt.ID); err != nil || !up {
			return
		}
		select {
		case <-time.After(unackedPoll):
		case <-ctx.Done():
		}
	}
}

// sleep waits, unless an operator asks for a reconnect.
func (x *Executor) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.again:
	case <-ctx.Done():
	}
}

// connect registers, opens the socket and serves it until it ends. lived is how
// long serve was seen to accept it.
func (x *Executor) connect(ctx context.Context) (lived time.Duration, err error) {
	t := x.opt.Timings
	select { // a wish from before is fulfilled with this attempt
	case <-x.again:
	default:
	}
	capabilities := x.capabilities()
	token, err := x.serve.register(ctx, t.RequestWait, x.registration(capabilities))
	if err != nil {
		err = fmt.Errorf("registration: %w", err)
		x.setLink(func(l *linkState) { l.registerError = err.Error() })
		return 0, err
	}
	x.remember(token)
	if x.leaving.Load() {
		return 0, errClosing
	}
	x.token.Store(&token)
	x.setLink(func(l *linkState) { l.registerError, l.capabilities = "", capabilities })

	sock, err := dial(ctx, x.opt.Endpoint, "/ws/executors/"+segment(x.opt.ID), token, t, x.redact)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	return x.serveSocket(sock, capabilities)
}

// serveSocket runs one connection and returns when nothing of it is left.
func (x *Executor) serveSocket(sock *socket, capabilities []string) (lived time.Duration, err error) {
	d := newDelivery(x, sock)
	var wg sync.WaitGroup
	sock.start(x.inbox.frame, d.acked)

	err = x.resync(d)
	if err == nil {
		up := time.Now()
		x.setLink(func(l *linkState) { l.connected, l.linkError, l.lastConnected = true, "", x.opt.Now() })
		x.log.Info("link to the orchestrator is up", "endpoint", endpointText(x.opt.Endpoint))
		d.run(&wg)
		x.publish(d)
		wg.Go(func() { x.watch(sock, capabilities) })
		<-sock.ctx.Done()
		lived = time.Since(up)
	}
	sock.cancel(err)
	x.unpublish()
	x.setLink(func(l *linkState) { l.connected = false })
	why, ours := sock.ended(x.redact)
	code := 0
	if ours {
		code = websocket.CloseNormalClosure
	}
	sock.close(code)
	wg.Wait()
	d.settle()
	return lived, why
}

// publish makes a delivery the current one and hands it the missions that are
// watched since before.
func (x *Executor) publish(d *delivery) {
	x.mu.Lock()
	x.delivery = d
	watched := maps.Clone(x.watched)
	x.mu.Unlock()
	for id, until := range watched {
		d.restate(id, until)
	}
}

func (x *Executor) unpublish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.delivery = nil
}

// watch looks after a connection that is up: a change of capabilities or an
// operator's wish renews it, and so does a serve that does not show it as
// connected (a registration beside the open socket does that).
func (x *Executor) watch(sock *socket, registered []string) {
	t := x.opt.Timings
	check := time.NewTicker(t.CheckEvery)
	defer check.Stop()
	for {
		changed := x.opt.Engine.CapabilitiesChanged()
		if !slices.Equal(x.capabilities(), registered) {
			select {
			case <-time.After(t.Debounce):
			case <-sock.ctx.Done():
				return
			}
			if !slices.Equal(x.capabilities(), registered) {
				sock.cancel(errPlanned)
				return
			}
			continue
		}
		select {
		case <-changed:
		case <-x.again:
			sock.cancel(errPlanned)
			return
		case <-check.C:
			ok, err := x.serve.connected(sock.ctx, t.RequestWait, x.opt.ID)
			switch {
			case err != nil && sock.ctx.Err() == nil:
				x.log.Warn("own registration cannot be read", "error", err)
			case err == nil && !ok:
				sock.cancel(errNotKnown)
				return
			}
		case <-sock.ctx.Done():
			return
		}
	}
}
