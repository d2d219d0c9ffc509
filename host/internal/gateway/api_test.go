package gateway

import (
	"bufio"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTheHostsKeyReplacesWhateverTheCellSends(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{api: func(a *API) { a.Headers = append(a.Headers, NewHeader("Anthropic-Beta", "host-decides")) }})
	c := newLink(t, r.Gateway, caller("m1")).client("anthropic")
	req, _ := http.NewRequest("POST", "http://anthropic/v1/messages?beta=true", strings.NewReader(`{}`))
	for name, v := range map[string]string{"X-Api-Key": "placeholder", "Authorization": "Bearer other-account", "Cookie": "a=b", "Proxy-Authorization": "Basic x",
		"Anthropic-Beta": "cell", "X-Forwarded-For": "10.0.0.1", "Connection": "X-Hop", "X-Hop": "1", "X-App": "cli"} {
		req.Header.Set(name, v)
	}
	r.up.answer(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Set-Cookie", "s=1")
		w.Header().Set("X-Echo", "key was "+secretKey)
		plainAnswer(w)
	})
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	got, _ := r.up.last(t)
	for name, want := range map[string]string{"X-Api-Key": secretKey, "Authorization": "", "Cookie": "", "Proxy-Authorization": "",
		"Anthropic-Beta": "host-decides", "X-Forwarded-For": "", "X-Hop": "", "X-App": "cli"} {
		if h := got.Header.Get(name); h != want {
			t.Errorf("%s is %q at the upstream", name, h)
		}
	}
	if got.URL.String() != "/v1/messages?beta=true" || got.Host != strings.TrimPrefix(r.up.URL, "http://") {
		t.Errorf("asked for %s at %s", got.URL, got.Host)
	}
	if resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("X-Echo") != "" {
		t.Errorf("the cell sees %v", resp.Header)
	}
}

func TestUsageIsMeteredStreamedAndNot(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, []byte){
		"json": func(w http.ResponseWriter, _ *http.Request, _ []byte) { plainAnswer(w) },
		"events": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			say(w, messageStart+delta("hello"))
			say(w, "event: ping\ndata: {\"type\": \"ping\"}\n\n")
			say(w, messageEnd)
		},
		"events, byte by byte": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			for _, b := range []byte(messageStart + messageEnd) {
				say(w, string(b))
			}
		},
		"chunked json": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.(http.Flusher).Flush()
			plainAnswer(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change{})
			r.up.answer(answer)
			c := newLink(t, r.Gateway, caller("m1")).client("anthropic")
			if code, text := post(t, c, "/v1/messages", `{"model":"m","max_tokens":100}`); code != 200 || !strings.Contains(text, "cache_read_input_tokens") {
				t.Fatalf("%d %s", code, text)
			}
			// Known by the time that the cell has the whole answer.
			if used, reserved := r.ledger.Total("m1"); used != whole() || reserved != (Amount{}) {
				t.Errorf("used %+v, reserved %+v, want %+v", used, reserved, whole())
			}
			s := r.Stats()
			if s.Tokens["anthropic"] != 3150 || s.Requests["anthropic"] != 1 || len(s.Unpriced) > 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestEventsArriveAsTheyAreSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	next := make(chan string)
	r.up.answer(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		say(w, messageStart)
		for text := range next {
			say(w, delta(text))
		}
	})
	resp, err := newLink(t, r.Gateway, caller("m1")).client("anthropic").Post("http://x/v1/messages", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		next <- fmt.Sprintf("part %d", i) // the next one only after this was seen
		for lines.Scan() && !strings.Contains(lines.Text(), fmt.Sprintf("part %d", i)) {
		}
		if lines.Err() != nil {
			t.Fatal(lines.Err())
		}
	}
	close(next)
}

func TestOnlyAllowedPathsPlainlyWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	l := newLink(t, r.Gateway, caller("m1"))
	for _, path := range []string{"/v1/files", "/", "/v1/messages/../files", "/v1/messages/%2e%2e/files", "/v1//messages", "/v1/messages/..%2ffiles", "/v1/messages/\\files", "/v1/messages;x"} {
		c, err := l.dial("anthropic")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = c.Close()
		if resp.StatusCode != 403 || !strings.Contains(string(text), "allow_paths") || !strings.Contains(string(text), `"permission_error"`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
	if n := r.up.requests(); n != 0 {
		t.Errorf("%d requests reached the upstream", n)
	}
	if s := r.Stats(); s.Refused["path"] != 8 {
		t.Errorf("stats %+v", s)
	}
}

func TestAmbiguousRequestsDoNotReachTheUpstream(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	l := newLink(t, r.Gateway, caller("m1"))
	for name, text := range map[string]string{
		"two lengths":          "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"unknown coding":       "POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"coding in two fields": "POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
		"blank before colon":   "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
		"upgrade":              "GET /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"connect":              "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n",
		"trace":                "TRACE /v1/messages HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		c, err := l.dial("anthropic")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && resp.StatusCode < 400 {
			t.Errorf("%s: %s", name, resp.Status)
		}
		_ = c.Close()
	}
	// A length beside chunks is dropped, and the request is framed anew.
	c, err := l.dial("anthropic")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nGET /v1/files HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		t.Fatal(err)
	}
	if got, body := r.up.last(t); string(body) != "{}" || got.URL.Path != "/v1/messages" || r.up.requests() != 1 {
		t.Errorf("%d requests, the last one %s with %q", r.up.requests(), got.URL, body)
	}
}

func TestLargeBodiesBothWays(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]Amount{"no budget": {}, "budget": {Tokens: 100_000_000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change{})
			size := 10 << 20
			if raceEnabled { // where every byte costs a hundred times as much
				size = 2 << 20
			}
			body := `{"model":"m","max_tokens":10,"messages":"` + strings.Repeat("x", size) + `"}`
			r.up.answer(func(w http.ResponseWriter, _ *http.Request, got []byte) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"model":"m","sum":"%x","fill":"%s","usage":{"input_tokens":7,"output_tokens":3}}`, sha256.Sum256(got), strings.Repeat("y", size))
			})
			who := caller("m1")
			who.Limit = limit
			code, text := post(t, newLink(t, r.Gateway, who).client("anthropic"), "/v1/messages", body)
			if code != 200 || !strings.Contains(text, fmt.Sprintf("%x", sha256.Sum256([]byte(body)))) || len(text) < size {
				t.Errorf("%d, %d bytes", code, len(text))
			}
			if used, _ := r.ledger.Total("m1"); used.Tokens != 10 {
				t.Errorf("used %+v", used)
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	var trap = newUpstream(t, false)
	r.up.answer(func(w http.ResponseWriter, req *http.Request, _ []byte) {
		http.Redirect(w, req, trap.URL+"/steal", http.StatusTemporaryRedirect)
	})
	code, _ := post(t, newLink(t, r.Gateway, caller("m1")).client("anthropic"), "/v1/messages", `{}`)
	if code != http.StatusTemporaryRedirect || trap.requests() != 0 {
		t.Errorf("%d, %d requests at the redirect's target", code, trap.requests())
	}
}

func TestOtherMissionsGatewaysAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	if code, _ := post(t, newLink(t, r.Gateway, caller("m1")).client("anthropic"), "/v1/messages", `{}`); code != 200 {
		t.Fatal(code)
	}
	stranger := Caller{Mission: "m2", Agent: "other"} // no gateway in its agent block
	// The placeholder of another mission, or even the right key, is worth nothing.
	if code, text := post(t, newLink(t, r.Gateway, stranger).client("anthropic"), "/v1/messages", `{}`); code != 0 {
		t.Errorf("%d %s", code, text)
	}
	if used, _ := r.ledger.Total("m2"); used != (Amount{}) {
		t.Errorf("m2 used %+v", used)
	}
	for _, target := range []string{ProxyTarget, "127.0.0.1:80", "nope"} {
		if code, _ := post(t, newLink(t, r.Gateway, caller("m1")).client(target), "/v1/messages", `{}`); code != 0 {
			t.Errorf("%s answered %d", target, code)
		}
	}
	if r.up.requests() != 1 {
		t.Errorf("%d requests", r.up.requests())
	}
}

func TestUpstreamsAreVerified(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{tls: true})
	code, text := post(t, newLink(t, r.Gateway, caller("m1")).client("anthropic"), "/v1/messages", `{}`)
	if code != 502 || !strings.Contains(text, "certificate") || r.up.requests() != 0 {
		t.Errorf("unknown authority: %d %s", code, text)
	}
	pool := x509.NewCertPool()
	pool.AddCert(r.up.Certificate())
	r2 := newRig(t, change{opts: func(o *Options) { o.RootCAs = pool }, api: func(a *API) { *a.Upstream = *r.opts.APIs[0].Upstream }})
	if code, text := post(t, newLink(t, r2.Gateway, caller("m1")).client("anthropic"), "/v1/messages", `{}`); code != 200 {
		t.Errorf("known authority: %d %s", code, text)
	}
}

func TestAStreamThatGoesSilentIsCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(*API){
		"idle":  func(a *API) { a.Idle = 50 * time.Millisecond },
		"total": func(a *API) { a.Total = 50 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change{api: c})
			r.up.answer(func(w http.ResponseWriter, req *http.Request, _ []byte) {
				say(w, messageStart)
				<-req.Context().Done()
			})
			code, text := post(t, newLink(t, r.Gateway, caller("m1")).client("anthropic"), "/v1/messages", `{}`)
			if code != 200 || !strings.Contains(text, "EOF") {
				t.Errorf("%d %s", code, text)
			}
			r.up.answer(func(_ http.ResponseWriter, req *http.Request, _ []byte) { <-req.Context().Done() })
			code, text = post(t, newLink(t, r.Gateway, caller("m1")).client("anthropic"), "/v1/messages", `{}`)
			if code != 504 || !strings.Contains(text, "time-out") {
				t.Errorf("%d %s", code, text)
			}
			// The input of the broken stream was paid for.
			eventually(t, "the broken stream to be settled", func() bool { used, _ := r.ledger.Total("m1"); return used.Tokens == 3101 })
		})
	}
}

func TestCutEndsStreamsAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	gone := make(chan struct{}, 10)
	r.up.answer(func(w http.ResponseWriter, req *http.Request, _ []byte) {
		say(w, messageStart)
		<-req.Context().Done()
		gone <- struct{}{}
	})
	l, other := newLink(t, r.Gateway, caller("m1")), newLink(t, r.Gateway, caller("m2"))
	var ends sync.WaitGroup
	open := func(l *link) io.ReadCloser {
		resp, err := l.client("anthropic").Post("http://x/v1/messages", "application/json", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return resp.Body
	}
	for range 3 {
		b := open(l)
		ends.Go(func() {
			defer b.Close()
			if _, err := io.ReadAll(b); err == nil {
				t.Error("a stream that was cut looks whole")
			}
		})
	}
	kept := open(other)
	if n := r.Cut("m1"); n != 3 {
		t.Errorf("cut %d streams", n)
	}
	ends.Wait()
	for range 3 {
		<-gone // the upstream knows too
	}
	if code, _ := post(t, l.client("anthropic"), "/v1/messages", `{}`); code != 0 {
		t.Errorf("a mission that is cut off was answered with %d", code)
	}
	if n := r.Cut("m1"); n != 3 {
		t.Errorf("%d streams the second time", n)
	}
	if n := r.Cut("never seen"); n != 0 {
		t.Error(n)
	}
	if code, _ := post(t, newLink(t, r.Gateway, caller("never seen")).client("anthropic"), "/v1/messages", `{}`); code != 0 {
		t.Errorf("a mission that was cut off before its first call was answered with %d", code)
	}
	select {
	case <-gone:
		t.Error("another mission's stream was cut")
	default:
	}
	_ = kept.Close()
	<-gone
	r.up.answer(nil)
	r.Restore("m1")
	if code, text := post(t, l.client("anthropic"), "/v1/messages", `{}`); code != 200 {
		t.Errorf("after Restore: %d %s", code, text)
	}
	r.Forget("m1")
}

// frozen is a link whose cell does not read any more.
type frozen struct {
	net.Conn
	stop chan struct{}
}

func (f *frozen) Read(p []byte) (int, error) {
	<-f.stop
	return f.Conn.Read(p)
}

func TestCutDoesNotWaitForAFrozenCell(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	sent := make(chan struct{})
	r.up.answer(func(w http.ResponseWriter, req *http.Request, _ []byte) {
		defer close(sent)
		for req.Context().Err() == nil { // until every buffer is full, and on
			say(w, strings.Repeat("x", 32<<10))
		}
	})
	stop := make(chan struct{})
	l := linkTo(t, r.Gateway, caller("m1"), func(c net.Conn) net.Conn { return &frozen{c, stop} })
	c, err := l.dial("anthropic")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	eventually(t, "the request to arrive", func() bool { return r.up.requests() == 1 })
	done := make(chan int)
	go func() { done <- r.Cut("m1") }()
	select {
	case n := <-done:
		if n != 1 {
			t.Errorf("cut %d", n)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Cut waits for the cell")
	}
	<-sent
	close(stop)
}

func TestConnectionsOfAMissionAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{opts: func(o *Options) { o.MaxConns = 2 }})
	l := newLink(t, r.Gateway, caller("m1"))
	var conns []net.Conn
	refused := 0
	for range 5 {
		c, err := l.dial("anthropic")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		fmt.Fprint(c, "GET /v1/messages HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d of 5 were refused", refused)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	eventually(t, "room again", func() bool { code, _ := post(t, l.client("anthropic"), "/v1/messages", `{}`); return code == 200 })
}

func TestHTTPOnlyOnThisHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{api: func(a *API) { a.Upstream.Host = "192.0.2.1:9" }, opts: func(o *Options) { o.DialTimeout = time.Second }})
	code, text := post(t, newLink(t, r.Gateway, caller("m1")).client("anthropic"), "/v1/messages", `{}`)
	if code < 500 {
		t.Errorf("%d %s", code, text)
	}
	a := netAddr("192.0.2.1:80")
	if isLoopback(a) || !isLoopback(netAddr("127.0.0.1:80")) || !isLoopback(netAddr("[::1]:80")) {
		t.Error("isLoopback")
	}
}

type netAddr string

func (netAddr) Network() string  { return "tcp" }
func (a netAddr) String() string { return string(a) }

func TestHeadersPrintWithoutTheirValue(t *testing.T) {
	t.Parallel()
	a := API{Name: "x", Headers: []Header{NewHeader("x-api-key", secretKey)}}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, a); strings.Contains(s, secretKey) {
			t.Errorf("%s prints %s", format, s)
		}
	}
}
