package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/yamux"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secretKey is what no cell and no log may ever hold.
const secretKey = "sk-the-real-key-canary-0123456789"

// link is a cell link: a yamux pair over a unix socket. Streams that the cell
// opens are carried by the gateway for the caller.
type link struct {
	t    testing.TB
	cell *yamux.Session
}

func newLink(t testing.TB, g *Gateway, caller Caller) *link { return linkTo(t, g, caller, nil) }

// linkTo sends each stream to the target that the cell names in a line at its
// beginning, as the Dial frame does.
func linkTo(t testing.TB, g *Gateway, caller Caller, wrap func(net.Conn) net.Conn) *link {
	t.Helper()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "l"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if wrap != nil {
		a = wrap(a)
	}
	conf := func() *yamux.Config {
		c := yamux.DefaultConfig()
		c.EnableKeepAlive, c.LogOutput = false, io.Discard
		return c
	}
	host, err := yamux.Server(b, conf())
	if err != nil {
		t.Fatal(err)
	}
	cell, err := yamux.Client(a, conf())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			s, err := host.AcceptStream()
			if err != nil {
				return
			}
			wg.Go(func() {
				target := make([]byte, 64)
				if _, err := io.ReadFull(s, target); err == nil {
					g.Carry(caller, strings.TrimRight(string(target), " "), s)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = cell.Close()
		_ = host.Close()
		wg.Wait()
	})
	return &link{t: t, cell: cell}
}

// dial opens a stream to a target.
func (l *link) dial(target string) (net.Conn, error) {
	s, err := l.cell.OpenStream()
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(s, "%-64s", target)
	return s, err
}

// client is an HTTP client in the cell whose connections go to a target.
func (l *link) client(target string) *http.Client {
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(target) }}
	l.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// proxied is a client that uses the HTTP proxy.
func (l *link) proxied() *http.Client {
	tr := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return l.dial(ProxyTarget) },
		Proxy:             func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy.invalid:1") },
		DisableKeepAlives: true,
	}
	l.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rig is a gateway with a stand-in upstream.
type rig struct {
	*Gateway
	ledger *Ledger
	log    *lockedBuffer
	up     *upstream
}

type change struct {
	api  func(*API)
	opts func(*Options)
	tls  bool
}

func newRig(t testing.TB, ch change) *rig {
	t.Helper()
	r := &rig{log: &lockedBuffer{}, up: newUpstream(t, ch.tls)}
	var err error
	if r.ledger, err = NewLedger("", nil); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(r.up.URL)
	if err != nil {
		t.Fatal(err)
	}
	api := API{Name: "anthropic", Upstream: u, Paths: []string{"/v1/messages*"}, Headers: []Header{NewHeader("x-api-key", secretKey)},
		Idle: time.Minute, Total: time.Minute, Prices: map[string]Price{"m": {Input: 3_000_000, Output: 15_000_000}}}
	if ch.api != nil {
		ch.api(&api)
	}
	opts := Options{APIs: []API{api}, Budget: r.ledger, Log: hclog.New(&hclog.LoggerOptions{Output: r.log, Level: hclog.Trace})}
	if ch.opts != nil {
		ch.opts(&opts)
	}
	if r.Gateway, err = New(opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		if strings.Contains(r.log.String(), secretKey) {
			t.Error("the key is in the log")
		}
	})
	return r
}

func caller(mission string) Caller {
	return Caller{Mission: mission, Agent: "agent-01", Gateways: []string{"anthropic"}}
}

// upstream is a stand-in model API.
type upstream struct {
	*httptest.Server
	mu      sync.Mutex
	handler func(w http.ResponseWriter, r *http.Request, body []byte)
	got     []*http.Request
	bodies  [][]byte
}

func newUpstream(t testing.TB, secure bool) *upstream {
	u := &upstream{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.got, u.bodies = append(u.got, r), append(u.bodies, body)
		f := u.handler
		u.mu.Unlock()
		if f == nil {
			plainAnswer(w)
			return
		}
		f(w, r, body)
	})
	if secure {
		u.Server = httptest.NewTLSServer(h)
	} else {
		u.Server = httptest.NewServer(h)
	}
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) answer(f func(w http.ResponseWriter, r *http.Request, body []byte)) {
	u.mu.Lock()
	u.handler = f
	u.mu.Unlock()
}

func (u *upstream) requests() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.got)
}

func (u *upstream) last(t testing.TB) (*http.Request, []byte) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.got) == 0 {
		t.Fatal("nothing reached the upstream")
	}
	return u.got[len(u.got)-1], u.bodies[len(u.bodies)-1]
}

func plainAnswer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"type":"message","model":"m","content":[],"usage":{"input_tokens":1000,"output_tokens":50,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000}}`)
}

const (
	messageStart = `event: message_start
data: {"type":"message_start","message":{"model":"m-20260101","usage":{"input_tokens":1000,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":1}}}

`
	messageEnd = `event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":50}}

event: message_stop
data: {"type":"message_stop"}

`
)

func delta(text string) string {
	return fmt.Sprintf("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":%q}}\n\n", text)
}

// say writes a part of a stream at once.
func say(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

// whole is what a call with these counts costs: see plainAnswer.
func whole() Amount {
	return Amount{Tokens: 3150, CostMicro: Price{Input: 3_000_000, Output: 15_000_000}.cost(usage{input: 1000, output: 50, cacheWrite: 100, cacheRead: 2000})}
}

func post(t testing.TB, c *http.Client, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("POST", "http://anthropic"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", "placeholder")
	req.Header.Set("Authorization", "Bearer placeholder")
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(text) + " " + err.Error()
	}
	return resp.StatusCode, string(text)
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("it did not come to this: %s", what)
}

// names is a resolver with fixed answers; each look-up takes the next one.
type names struct {
	mu   sync.Mutex
	list map[string][][]netip.Addr
	n    int
}

func (r *names) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	answers := r.list[host]
	if len(answers) == 0 {
		return nil, fmt.Errorf("no such host")
	}
	if len(answers) > 1 {
		r.list[host] = answers[1:]
	}
	return append([]netip.Addr(nil), answers[0]...), nil
}
