package gateway

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// api is a model API that is configured.
type api struct {
	def       API
	transport *http.Transport

	mu    sync.Mutex
	noted map[string]bool // models whose price was missed, by name
}

func (g *Gateway) newAPI(def API) (*api, error) {
	u := def.Upstream
	switch {
	case u == nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("upstream is no http or https URL")
	case def.Name == "" || strings.Contains(def.Name, ":"):
		return nil, errors.New("the name cannot be one")
	}
	for _, h := range def.Headers {
		if h.value == "" || strings.ContainsAny(h.value, "\r\n\x00") {
			return nil, fmt.Errorf("the value of header %s cannot be one", h.Name)
		}
	}
	if def.Idle <= 0 {
		def.Idle = 2 * time.Minute
	}
	if def.Total <= 0 {
		def.Total = 20 * time.Minute
	}
	dialer := &net.Dialer{Timeout: g.opts.DialTimeout}
	t := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: g.opts.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: g.opts.DialTimeout, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 1 << 20,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err == nil && u.Scheme == "http" && !isLoopback(c.RemoteAddr()) {
				_ = c.Close()
				return nil, errors.New("the upstream is plain http and not on this host: the key would cross the network in the clear")
			}
			return c, err
		},
	}
	return &api{def: def, transport: t, noted: map[string]bool{}}, nil
}

func isLoopback(a net.Addr) bool {
	p, err := netip.ParseAddrPort(a.String())
	return err == nil && p.Addr().Unmap().IsLoopback()
}

// serveAPI serves one request to a model API.
func (g *Gateway) serveAPI(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	a := c.api
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace || r.Header.Get("Upgrade") != "" {
		g.denyAPI(w, c.acc, http.StatusForbidden, refuse("malformed", "gateway %q takes plain requests only", a.def.Name))
		return
	}
	if !pathAllowed(r.URL, a.def.Paths) {
		g.denyAPI(w, c.acc, http.StatusForbidden, refuse("path", "this path is not allowed at gateway %q; its attribute allow_paths lists those that are", a.def.Name))
		return
	}
	call := &call{g: g, acc: c.acc, api: a}
	defer call.settle()
	body, refused := call.prepare(w, r)
	if refused != nil {
		status := http.StatusForbidden
		if refused.reason == "malformed" {
			status = http.StatusBadRequest
		}
		g.denyAPI(w, c.acc, status, refused)
		return
	}
	if body != nil {
		r.Body, r.ContentLength = body, int64(body.Len())
		r.Header.Del("Transfer-Encoding")
	}
	ctx, cancel := g.bound(r.Context(), c.acc, a.def.Total)
	defer cancel(nil)
	if c.acc.context().Err() != nil { // and nothing is sent any more
		panic(http.ErrAbortHandler)
	}
	alive := newWatch(a.def.Idle, func() { cancel(errIdle) })
	defer alive.stop()
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { a.rewrite(p); p.Out.Body = alive.request(p.Out) },
		Transport:     a.transport,
		FlushInterval: -1,
		ErrorLog:      quiet(),
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == http.StatusSwitchingProtocols {
				return errors.New("the upstream switched protocols")
			}
			g.passed(a.def.Name)
			a.hide(resp.Header)
			resp.Body = alive.body(resp.Body)
			call.meter = newMeter(resp, call.maxOut, call.settle)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { g.upstreamFailed(w, ctx, c.acc, a, err) },
	}
	// An upstream may answer before it has the whole request.
	_ = http.NewResponseController(w).EnableFullDuplex()
	call.sent = true
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// rewrite makes the request the host's own: its credential, and none that the
// cell has sent.
func (a *api) rewrite(p *httputil.ProxyRequest) {
	u := *a.def.Upstream
	u.Path = strings.TrimRight(u.Path, "/") + p.In.URL.Path
	u.RawPath, u.RawQuery = "", p.In.URL.RawQuery
	p.Out.URL, p.Out.Host = &u, u.Host
	h := p.Out.Header
	for _, name := range []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie"} {
		h.Del(name)
	}
	h.Set("Accept-Encoding", "identity") // what cannot be read cannot be metered
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "airlock")
	}
	for _, own := range a.def.Headers {
		h.Set(own.Name, own.value)
	}
}

// hide takes away what is between host and upstream only.
func (a *api) hide(h http.Header) {
	h.Del("Set-Cookie")
	h.Del("Alt-Svc")
	for name, values := range h {
		for _, own := range a.def.Headers {
			if len(own.value) >= 8 && strings.Contains(strings.Join(values, "\n"), own.value) {
				h.Del(name)
			}
		}
	}
}

// denyAPI answers as the API itself would, so that clients show the text.
func (g *Gateway) denyAPI(w http.ResponseWriter, acc *account, status int, r *refusal) {
	g.note(acc, r.reason, r.text)
	apiError(w, status, "permission_error", r.text)
}

func apiError(w http.ResponseWriter, status int, kind, text string) {
	body, err := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": text}})
	if err != nil {
		body = nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (g *Gateway) upstreamFailed(w http.ResponseWriter, ctx context.Context, acc *account, a *api, err error) {
	status, words := http.StatusBadGateway, reachWords(err)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errCut):
		panic(http.ErrAbortHandler)
	case errors.Is(cause, errIdle), errors.Is(cause, errTotal):
		status, words = http.StatusGatewayTimeout, cause.Error()
	case errors.Is(cause, context.Canceled):
		panic(http.ErrAbortHandler) // the caller is gone
	}
	g.note(acc, "unreachable", fmt.Sprintf("gateway %s: %s", a.def.Name, words))
	apiError(w, status, "api_error", fmt.Sprintf("airlock: the upstream of gateway %q does not answer: %s", a.def.Name, words))
}
