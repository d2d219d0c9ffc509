package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// serveProxy is the HTTP proxy that cells see: CONNECT for everything that is
// encrypted, absolute-form requests for plain HTTP.
func (g *Gateway) serveProxy(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	if r.Method == http.MethodConnect {
		g.connect(w, r, c)
		return
	}
	if r.URL.Scheme != "http" || r.URL.Host == "" || r.URL.User != nil {
		g.deny(w, c.acc, refuse("malformed", "this is an HTTP proxy: it takes CONNECT host:port and requests for http://host/path"))
		return
	}
	hostport := r.URL.Host
	if r.URL.Port() == "" {
		hostport = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	t, refused := parseTarget(hostport)
	if refused != nil {
		g.deny(w, c.acc, refused)
		return
	}
	if r.Header.Get("Upgrade") != "" {
		g.deny(w, c.acc, refuse("malformed", "a request to be upgraded has to come through CONNECT"))
		return
	}
	g.plain(w, r, c, t)
}

// plain forwards a plain HTTP request. Its connection is used for nothing else:
// the next mission may not be allowed what this one is.
func (g *Gateway) plain(w http.ResponseWriter, r *http.Request, c *conn, t target) {
	ctx, cancel := g.bound(r.Context(), c.acc, g.opts.Total)
	defer cancel(nil)
	alive := newWatch(g.opts.Idle, func() { cancel(errIdle) })
	defer alive.stop()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Host, p.Out.Host = t.String(), r.URL.Host
			p.Out.Body = alive.request(p.Out)
		},
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return g.open(ctx, c.acc, t) },
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 1 << 20,
		},
		FlushInterval: -1,
		ErrorLog:      quiet(),
		ModifyResponse: func(resp *http.Response) error {
			g.passed("proxy")
			if resp.StatusCode == http.StatusSwitchingProtocols {
				return errors.New("the upstream switched protocols")
			}
			resp.Body = alive.body(resp.Body)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { g.failed(w, c.acc, t, err) },
	}
	_ = http.NewResponseController(w).EnableFullDuplex()
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// connect opens a tunnel.
func (g *Gateway) connect(w http.ResponseWriter, r *http.Request, c *conn) {
	t, refused := parseTarget(r.Host)
	if refused != nil {
		g.deny(w, c.acc, refused)
		return
	}
	ctx, cancel := g.bound(r.Context(), c.acc, g.opts.DialTimeout)
	defer cancel(nil)
	up, err := g.open(ctx, c.acc, t)
	if err != nil {
		g.failed(w, c.acc, t, err)
		return
	}
	defer up.Close()
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		g.failed(w, c.acc, t, err)
		return
	}
	defer down.Close()
	_ = down.SetDeadline(time.Time{})
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	if n := buffered.Reader.Buffered(); n > 0 { // sent before the answer
		early, _ := buffered.Reader.Peek(n)
		if _, err := up.Write(early); err != nil {
			return
		}
	}
	g.passed("proxy")
	g.tunnel(c, up)
}

// forward carries a plain connection to a target.
func (g *Gateway) forward(c *conn, hostport string) {
	defer c.Close()
	t, refused := parseTarget(hostport)
	if refused != nil {
		g.note(c.acc, refused.reason, refused.text)
		return
	}
	up, err := g.open(c.acc.context(), c.acc, t)
	if err != nil {
		g.count(c.acc, t, err)
		return
	}
	defer up.Close()
	g.passed("forward")
	g.tunnel(c, up)
}

// bound is a request's context: it ends with the mission's cut-off and after
// the time given, too.
func (g *Gateway) bound(ctx context.Context, acc *account, most time.Duration) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(acc.context(), func() { cancel(errCut) })
	timer := time.AfterFunc(most, func() { cancel(errTotal) })
	return ctx, func(cause error) {
		stop()
		timer.Stop()
		cancel(cause)
	}
}

var (
	errCut   = errors.New("the mission is cut off")
	errIdle  = errors.New("nothing moved for the idle time-out")
	errTotal = errors.New("the total time-out is over")
)

// deny answers with a refusal.
func (g *Gateway) deny(w http.ResponseWriter, acc *account, r *refusal) {
	g.note(acc, r.reason, r.text)
	http.Error(w, r.text, http.StatusForbidden)
}

// failed answers for an upstream that was not reached.
func (g *Gateway) failed(w http.ResponseWriter, acc *account, t target, err error) {
	var refused *refusal
	if errors.As(err, &refused) {
		g.deny(w, acc, refused)
		return
	}
	g.count(acc, t, err)
	http.Error(w, "airlock: "+t.String()+" could not be reached: "+reachWords(err), http.StatusBadGateway)
}

func (g *Gateway) count(acc *account, t target, err error) {
	var refused *refusal
	if errors.As(err, &refused) {
		g.note(acc, refused.reason, refused.text)
		return
	}
	g.note(acc, "unreachable", t.String()+": "+reachWords(err))
}

// reachWords says why an upstream was not reached, without its URL.
func reachWords(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}
