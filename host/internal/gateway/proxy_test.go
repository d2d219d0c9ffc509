package gateway

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// site is a server on loopback that a cell may be allowed to reach.
func site(t testing.TB, secure bool) (hostport string, cert *x509.Certificate) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %q %s", r.Method, r.Host, r.URL, r.Header.Get("Proxy-Authorization"), b)
	})
	s := httptest.NewUnstartedServer(h)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), s.Certificate()
}

func egress(mission string, allow ...string) Caller {
	return Caller{Mission: mission, Agent: "agent-01", Proxy: true, Allow: allow}
}

// fetch gets a URL through the proxy; code 0 = it was not answered.
func fetch(c *http.Client, url string) (int, string) {
	req, err := http.NewRequest("POST", url, strings.NewReader("body"))
	if err != nil {
		return 0, err.Error()
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// connect asks the proxy for a tunnel.
func connect(t testing.TB, l *link, target string) (net.Conn, *bufio.Reader, int, string) {
	t.Helper()
	c, err := l.dial(ProxyTarget)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return c, r, 0, err.Error()
	}
	text := ""
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		text = string(b)
	}
	return c, r, resp.StatusCode, text
}

func TestProxyReachesWhatIsListed(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	plain, _ := site(t, false)
	secure, cert := site(t, true)
	c := newLink(t, r.Gateway, egress("m1", plain, secure)).proxied()
	if code, text := fetch(c, "http://"+plain+"/a?b=c"); code != 200 || text != fmt.Sprintf(`POST %s /a?b=c "" body`, plain) {
		t.Errorf("%d %s", code, text)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool} // the cell's own TLS, end to end
	if code, text := fetch(c, "https://"+secure+"/x"); code != 200 || !strings.HasPrefix(text, "POST") {
		t.Errorf("%d %s", code, text)
	}
	if s := r.Stats(); s.Requests["proxy"] != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestProxyRefusesEverythingElse(t *testing.T) {
	t.Parallel()
	known := &names{list: map[string][][]netip.Addr{
		"public.example": {{netip.MustParseAddr("93.184.215.14")}},
		"inside.example": {{netip.MustParseAddr("10.0.0.5")}},
		"mixed.example":  {{netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("169.254.169.254")}},
		"mapped.example": {{netip.MustParseAddr("::ffff:127.0.0.1")}},
		"nat64.example":  {{netip.MustParseAddr("64:ff9b::7f00:1")}},
	}}
	r := newRig(t, change{opts: func(o *Options) { o.Resolve = known.resolve }})
	l := newLink(t, r.Gateway, egress("m1", "inside.example:5432", "mixed.example:80", "mapped.example:80", "nat64.example:80", "*.org:443", "gone.example:1"))
	for target, want := range map[string]string{
		"public.example:443":     `"public.example:443" in the attribute allow`,
		"inside.example:443":     "not allowed",
		"inside.example:5432":    `10.0.0.5, which is a private network; that address has to be listed too, as "10.0.0.5:5432"`,
		"mixed.example:80":       "169.254.169.254",
		"mapped.example:80":      "127.0.0.1, which is loopback",
		"nat64.example:80":       "embedded",
		"127.0.0.1:80":           "not allowed",
		"[::1]:80":               "not allowed",
		"[::ffff:127.0.0.1]:80":  "not allowed",
		"169.254.169.254:80":     "not allowed",
		"10.0.0.1:22":            "not allowed",
		"192.168.1.1:443":        "not allowed",
		"2130706433:80":          "not allowed", // 127.0.0.1 as a number: a name like any other
		"0x7f.1:80":              "not allowed",
		"127.1:80":               "not allowed",
		"org:443":                "not allowed",
		"evil.org.example:443":   "not allowed",
		"a.org:80":               "not allowed",
		"[fe80::1%25eth0]:443":   "not host:port",
		"exa mple.org:443":       "",
		"a.org:0":                "not host:port",
		"a.org":                  "not host:port",
		"a.org:443/path":         "",
		"host.org\x1b[31m:443":   "",
		strings.Repeat("a", 300): "not host:port",
	} {
		_, _, code, text := connect(t, l, target)
		if code == 200 || !strings.Contains(text, want) || want != "" && code != 403 {
			t.Errorf("%q: %d %s", target, code, text)
		}
		if want != "" && !strings.HasPrefix(text, "airlock: ") {
			t.Errorf("%q: %s", target, text)
		}
	}
	if _, _, code, text := connect(t, l, "gone.example:1"); code != 502 || !strings.Contains(text, "cannot be resolved") {
		t.Errorf("%d %s", code, text)
	}
	c := l.proxied()
	for _, url := range []string{"http://127.0.0.1/", "http://public.example/", "http://[::1]:8122/"} {
		if code, text := fetch(c, url); code != 403 || !strings.Contains(text, "not allowed") {
			t.Errorf("%s: %d %s", url, code, text)
		}
	}
	raw, err := l.dial(ProxyTarget)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	fmt.Fprint(raw, "GET /origin-form HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(raw), nil)
	if err != nil || resp.StatusCode != 403 {
		t.Errorf("origin form: %v %v", resp, err)
	}
	if s := r.Stats(); s.Refused["not_listed"] < 10 || s.Refused["address"] != 4 || s.Requests["proxy"] != 0 {
		t.Errorf("stats %+v", s)
	}
	if text := r.log.String(); !strings.Contains(text, "was refused a way out") || strings.Contains(text, "\x1b") {
		t.Errorf("log %q", text)
	}
}

// A name that answers with an allowed address first and another one then gets
// nowhere: it is resolved once for each connection, and the address that was
// checked is the one that is dialled.
func TestRebindingNamesGetNowhere(t *testing.T) {
	t.Parallel()
	hostport, _ := site(t, false)
	at := netip.MustParseAddrPort(hostport)
	port := fmt.Sprint(at.Port())
	known := &names{list: map[string][][]netip.Addr{
		"rebind.example": {{at.Addr()}, {netip.MustParseAddr("10.9.9.9")}},
	}}
	r := newRig(t, change{opts: func(o *Options) { o.Resolve = known.resolve }})
	c := newLink(t, r.Gateway, egress("m1", "rebind.example:"+port, hostport)).proxied()
	if code, text := fetch(c, "http://rebind.example:"+port+"/"); code != 200 || !strings.Contains(text, "rebind.example:"+port) {
		t.Errorf("%d %s", code, text)
	}
	if known.n != 1 {
		t.Errorf("resolved %d times for one connection", known.n)
	}
	if code, text := fetch(c, "http://rebind.example:"+port+"/"); code != 403 || !strings.Contains(text, "10.9.9.9") {
		t.Errorf("%d %s", code, text)
	}
}

func TestTheHostsOwnAddressesAreNotPublic(t *testing.T) {
	t.Parallel()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	s := specialRanges()
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if s.of(ip.Unmap()) == "" {
			t.Errorf("%s counts as public", a)
		}
	}
	for _, ip := range []string{"93.184.215.14", "8.8.8.8", "2606:4700::1111", "172.32.0.1", "100.128.0.1"} {
		if what := s.of(netip.MustParseAddr(ip)); what != "" {
			t.Errorf("%s is %s", ip, what)
		}
	}
	for _, ip := range []string{"0.0.0.0", "127.8.8.8", "10.1.1.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "169.254.169.254", "168.63.129.16",
		"224.0.0.1", "255.255.255.255", "::", "::1", "fd00:ec2::254", "fe80::1", "ff02::1", "2002:7f00:1::", "64:ff9b::a00:1", "::127.0.0.1"} {
		if s.of(netip.MustParseAddr(ip)) == "" {
			t.Errorf("%s counts as public", ip)
		}
	}
}

func TestAllowList(t *testing.T) {
	t.Parallel()
	a, err := ParseAllow([]string{"Registry.Example.:443", "*.example.org:443", "10.1.0.0/16:5432", "[2001:db8::1]:*", "*:8443", "192.0.2.7:80"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host string
		port uint16
		want bool
	}{
		{"registry.example", 443, true}, {"registry.example", 80, false}, {"xregistry.example", 443, false}, {"sub.registry.example", 443, false},
		{"a.example.org", 443, true}, {"a.b.example.org", 443, true}, {"example.org", 443, false}, {"badexample.org", 443, false}, {"a.example.org", 80, false},
		{"anything", 8443, true},
	} {
		if got := a.name(c.host, c.port); got != c.want {
			t.Errorf("%s:%d %v", c.host, c.port, got)
		}
	}
	for _, c := range []struct {
		ip   string
		port uint16
		want bool
	}{{"10.1.2.3", 5432, true}, {"10.2.0.1", 5432, false}, {"10.1.2.3", 80, false}, {"2001:db8::1", 1, true}, {"2001:db8::2", 1, false}, {"192.0.2.7", 80, true}, {"8.8.8.8", 8443, false}} {
		if got := a.addr(netip.MustParseAddr(c.ip), c.port); got != c.want {
			t.Errorf("%s:%d %v", c.ip, c.port, got)
		}
	}
	for _, bad := range []string{"", "example", "example:0", "example:65536", "example:http", "exam ple:1", "**.example:1", "a.*.example:1", "fe80::1:443", "[fe80::1%eth0]:443", ":443", "http://example:443"} {
		if _, err := ParseAllow([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// echo answers every byte, and says goodbye when its reader has ended.
func echo(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
				_, _ = io.WriteString(c, "goodbye")
			}()
		}
	}()
	return l.Addr().String()
}

func TestTunnelsAndForwardsPassTheEndOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, change{})
	at := echo(t)
	l := newLink(t, r.Gateway, egress("m1", at))
	tunnel, rd, code, text := connect(t, l, at)
	if code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	forward, err := l.dial(at)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		net.Conn
		io.Reader
	}{"tunnel": {tunnel, rd}, "forward": {forward, forward}} {
		payload := strings.Repeat("0123456789", 100_000)
		go func() {
			_, _ = io.WriteString(c.Conn, payload)
			_ = c.Conn.Close() // yamux: its own direction only
		}()
		got, err := io.ReadAll(c.Reader)
		if err != nil || string(got) != payload+"goodbye" {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	for _, target := range []string{"127.0.0.1:1", "nonsense:x"} {
		c, err := l.dial(target)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: read %d", target, n)
		}
	}
}

func TestTunnelsEndWhenIdleInAllOrCut(t *testing.T) {
	t.Parallel()
	at := echo(t)
	for name, c := range map[string]struct {
		opts func(*Options)
		do   func(*rig)
		talk bool
	}{
		"idle":  {opts: func(o *Options) { o.Idle = 50 * time.Millisecond }},
		"total": {opts: func(o *Options) { o.Total = 100 * time.Millisecond }, talk: true},
		"cut":   {do: func(r *rig) { r.Cut("m1") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change{opts: c.opts})
			l := newLink(t, r.Gateway, egress("m1", at))
			tunnel, rd, code, _ := connect(t, l, at)
			if code != 200 {
				t.Fatal(code)
			}
			if c.talk {
				stop := make(chan struct{})
				defer close(stop)
				go func() {
					for {
						if _, err := tunnel.Write([]byte("x")); err != nil {
							return
						}
						select {
						case <-stop:
							return
						case <-time.After(5 * time.Millisecond):
						}
					}
				}()
			}
			if c.do != nil {
				c.do(r)
			}
			_, _ = io.Copy(io.Discard, rd)
		})
	}
}
