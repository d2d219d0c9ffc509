package cellagent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// fetchStage is a program of the workload: it connects to an address, sends
// what it is told to, ends its own direction, and prints what comes back.
//
//	fetch ADDRESS TEXT
func fetchStage(args []string) int {
	if args[0] == "bench" {
		return benchStage(args[1])
	}
	addr := strings.TrimPrefix(args[0], "http://")
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		fmt.Println("not connected:", err)
		return 1
	}
	defer c.Close()
	_, _ = io.WriteString(c, args[1])
	if args[1] != "" {
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}
	n, err := io.Copy(os.Stdout, c)
	switch {
	case err != nil:
		fmt.Println("\nbroken:", errors.Unwrap(err))
	case n == 0:
		fmt.Println("nothing")
	}
	return 0
}

// carrier is the host's end of dials: it says what it was asked, and sends back
// whatever comes.
type carrier struct {
	mu    sync.Mutex
	dials []*cellv1.Dial
}

func (h *carrier) carry(d *cellv1.Dial, c net.Conn) {
	h.mu.Lock()
	h.dials = append(h.dials, d)
	h.mu.Unlock()
	defer c.Close()
	fmt.Fprintf(c, "%s: ", d.GetTarget())
	_, _ = io.Copy(c, c)
	_, _ = io.WriteString(c, " bye")
}

func (h *carrier) seen() []*cellv1.Dial {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*cellv1.Dial(nil), h.dials...)
}

func (a *agent) dialCarried(t testing.TB, h *carrier) *cell.Conn {
	t.Helper()
	c, err := cell.Dial(long(t), a.socket(), a.secret, cell.WithDialHandler(h.carry))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Bind(long(t), "mission", 1); err != nil {
		t.Fatal(err)
	}
	return c
}

// doored is a session with every kind of door; its script may use $FETCH.
func (a *agent) doored(id, script string, mainOnly bool) *cellv1.Start {
	s := a.sh(id, `FETCH="$AIRLOCK_CELL fetch"; `+script)
	s.Gateways = []*cellv1.Gateway{{Name: "api-1", MainOnly: mainOnly}}
	s.Proxy, s.Forwards = true, []string{"db.example:5432"}
	return s
}

func lastLines(o output) string { return strings.TrimSpace(string(o.all)) }

func TestDoorsLeadToTheHost(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a, h := startAgent(t, m), &carrier{}
		c := a.dialCarried(t, h)
		s := a.doored("s", `for at in $AIRLOCK_GATEWAY_API_1_SOCKET $AIRLOCK_GATEWAY_API_1_URL $AIRLOCK_FORWARD_DB_EXAMPLE_5432 $HTTPS_PROXY; do $FETCH $at hello; echo; done
			ls $AIRLOCK_GATEWAY_DIR; echo "$MODEL_URL $http_proxy $no_proxy"`, false)
		s.Env = append(s.Env, "MODEL_URL=${AIRLOCK_GATEWAY_API_1_URL}/v1 ${HOME}")
		start(t, c, s)
		got := strings.Split(lastLines(readAll(t, c, "s")), "\n")
		want := []string{"api-1: hello bye", "api-1: hello bye", "db.example:5432: hello bye", ":proxy: hello bye", "api-1.sock"}
		if len(got) != 6 {
			t.Fatalf("%q", got)
		}
		for i, w := range want {
			if got[i] != w {
				t.Errorf("line %d is %q, not %q", i, got[i], w)
			}
		}
		if f := strings.Fields(got[5]); len(f) != 4 || !strings.HasPrefix(f[0], "http://127.0.0.1:") || !strings.HasSuffix(f[0], "/v1") || f[1] != "${HOME}" || !strings.HasPrefix(f[2], "http://127.0.0.1:") || !strings.Contains(f[3], "127.0.0.1") {
			t.Errorf("environment %q", got[5])
		}
		for _, d := range h.seen() {
			gateway := d.GetTarget() == "api-1"
			if d.GetSessionId() != "s" || gateway != (d.GetPid() > 0) || gateway != (d.GetStartTicks() > 0) {
				t.Errorf("dial %v", d)
			}
		}
	})
}

// With main_only what the session's own process starts gets nothing, by
// whatever way.
func TestGatewaysOfTheMainProcessAlone(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a, h := startAgent(t, m), &carrier{}
		c := a.dialCarried(t, h)
		for _, at := range []string{"$AIRLOCK_GATEWAY_API_1_SOCKET", "$AIRLOCK_GATEWAY_API_1_URL"} {
			name := at[len(at)-3:]
			start(t, c, a.doored("main"+name, "exec $FETCH "+at+" hello", true))
			if got := lastLines(readAll(t, c, "main"+name)); got != "api-1: hello bye" {
				t.Errorf("%s: the main process got %q", at, got)
			}
			before := len(h.seen())
			start(t, c, a.doored("child"+name, "$FETCH "+at+" hello; setsid $FETCH "+at+" hello; true", true))
			if got := lastLines(readAll(t, c, "child"+name)); strings.Contains(got, "bye") || strings.Contains(got, "api-1") {
				t.Errorf("%s: a child got %q", at, got)
			}
			if len(h.seen()) != before {
				t.Error("a child's connection came to the host")
			}
		}
	})
}

func TestGatewaysOfTheWholeSessionAndNoOther(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a, h := startAgent(t, m), &carrier{}
		c := a.dialCarried(t, h)
		start(t, c, a.doored("s", `echo "at $AIRLOCK_GATEWAY_API_1_SOCKET $AIRLOCK_GATEWAY_API_1_URL"
			for at in $AIRLOCK_GATEWAY_API_1_SOCKET $AIRLOCK_GATEWAY_API_1_URL; do (setsid $FETCH $at hello; echo) & wait; done; echo ready; sleep 1000`, false))
		text := readUntil(t, c, "s", 0, "ready")
		if n := strings.Count(text, "api-1: hello bye"); n != 2 {
			t.Errorf("grandchildren got %q", text)
		}
		at := strings.Fields(text)[1:3]
		before := len(h.seen())
		// Another session of the cell, with the same uid.
		other := a.sh("other", fmt.Sprintf(`for at in %s %s; do $AIRLOCK_CELL fetch $at hello; done`, at[0], at[1]))
		start(t, c, other)
		if got := lastLines(readAll(t, c, "other")); strings.Contains(got, "bye") {
			t.Errorf("another session got %q", got)
		}
		// Somebody outside, with more rights than any workload.
		for _, to := range [][2]string{{"unix", at[0]}, {"tcp", strings.TrimPrefix(at[1], "http://")}} {
			x, err := net.Dial(to[0], to[1])
			if err != nil {
				continue // in another mount namespace
			}
			_ = x.SetDeadline(time.Now().Add(60 * time.Second))
			if n, err := x.Read(make([]byte, 10)); err == nil {
				t.Errorf("a stranger got %d bytes over %s", n, to[0])
			}
			_ = x.Close()
		}
		if len(h.seen()) != before {
			t.Error("a stranger's connection came to the host")
		}
		if err := c.Kill(long(t), "s", 0, 0); err != nil {
			t.Fatal(err)
		}
		event(t, c, func(e cell.Event) *cellv1.Exited {
			if e.Exited.GetSessionId() == "s" {
				return e.Exited
			}
			return nil
		})
		if _, err := os.Stat(at[0]); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
}

// A host that is away is waited for (see TestDialWaitsForTheHostAndIsCarriedByIt
// for the waiting itself); when it is lost, what was under way breaks and does
// not look as if it had ended.
func TestConnectionsBreakWithTheHost(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.doored("s", `echo up; until $FETCH $AIRLOCK_GATEWAY_API_1_URL hello | grep bye; do sleep 0.02; done; $FETCH $HTTP_PROXY ""`, false))
	readUntil(t, c, "s", 0, "up")
	_ = c.Close()
	reached := make(chan struct{})
	held := func(d *cellv1.Dial, nc net.Conn) {
		if d.GetTarget() != proxyTarget {
			(&carrier{}).carry(d, nc)
			return
		}
		_, _ = io.WriteString(nc, "half of it")
		close(reached) // and the host is killed
	}
	c, err := cell.Dial(long(t), a.socket(), a.secret, cell.WithDialHandler(held))
	if err != nil {
		t.Fatal(err)
	}
	<-reached
	readUntil(t, c, "s", 0, "half of it")
	_ = c.Close()
	got := lastLines(readAll(t, a.dial(t), "s"))
	if !strings.Contains(got, "api-1: hello bye") || !strings.Contains(got, "half of it\nbroken:") {
		t.Errorf("%q", got)
	}
}

func TestLatchClosesTheDoors(t *testing.T) {
	t.Parallel()
	a, h := startAgent(t, plain), &carrier{}
	c := a.dialCarried(t, h)
	sign := filepath.Join(openTempDir(t), "go")
	start(t, c, a.doored("s", `for at in $AIRLOCK_GATEWAY_API_1_URL $HTTP_PROXY; do $FETCH $at hello; done
		until [ -e `+sign+` ]; do sleep 0.02; done
		for at in $AIRLOCK_GATEWAY_API_1_URL $HTTP_PROXY; do $FETCH $at hello; done`, false))
	readUntil(t, c, "s", 0, ":proxy: hello bye")
	if err := c.Latch(long(t), 1); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := lastLines(readAll(t, c, "s")); strings.Count(got, "bye") != 2 || len(h.seen()) != 2 {
		t.Errorf("%q, %d dials", got, len(h.seen()))
	}
}

func TestStartRefusesDoorsThatCannotBe(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	for name, tc := range map[string]struct {
		change func(*cellv1.Start)
		want   error
	}{
		"path in a name":     {func(s *cellv1.Start) { s.Gateways = []*cellv1.Gateway{{Name: "../x"}} }, cell.ErrInvalid},
		"no name":            {func(s *cellv1.Start) { s.Gateways = []*cellv1.Gateway{{}} }, cell.ErrInvalid},
		"forward to no port": {func(s *cellv1.Start) { s.Forwards = []string{"example"} }, cell.ErrInvalid},
		"same variable twice": {func(s *cellv1.Start) {
			s.Gateways = []*cellv1.Gateway{{Name: "a-b"}, {Name: "a_b"}}
		}, cell.ErrStartFailed},
		"too many": {func(s *cellv1.Start) {
			for i := range maxDoors + 1 {
				s.Gateways = append(s.Gateways, &cellv1.Gateway{Name: fmt.Sprint("g", i)})
			}
		}, cell.ErrStartFailed},
		"program is not there": {func(s *cellv1.Start) {
			s.Gateways, s.Argv = []*cellv1.Gateway{{Name: "g"}}, []string{"/nonexistent"}
		}, cell.ErrStartFailed},
	} {
		s := a.sh("s", "true")
		tc.change(s)
		if _, err := c.Start(long(t), s); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := a.doored("s", "exec $FETCH /nonexistent x", false) // nothing of the failed ones is in the way
	start(t, c, s)
	readAll(t, c, "s")
}

func TestTableAddresses(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, network := range []string{"tcp4", "tcp"} {
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		peer, here := s.RemoteAddr().(*net.TCPAddr).AddrPort(), s.LocalAddr().(*net.TCPAddr).AddrPort()
		inode, uid, err := socketOf(peer, here)
		if err != nil || uid != uint32(os.Geteuid()) || !holds(os.Getpid(), inode) {
			t.Errorf("%s: inode %d, uid %d, %v", network, inode, uid, err)
		}
		_ = s.Close()
		_ = c.Close()
	}
}
