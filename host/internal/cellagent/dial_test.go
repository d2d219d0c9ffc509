package cellagent

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/airlock-host/airlock/sdk/cell"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// linkOnly is an agent without processes, in this process.
func linkOnly(t *testing.T) (*Agent, string) {
	t.Helper()
	socket := filepath.Join(openTempDir(t), "link.sock")
	l, err := cell.ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{
		cfg: Config{Secret: make([]byte, 32)}, log: &logger{w: io.Discard},
		sessions: map[string]*session{}, links: newLinks(), asks: &asks{}, slack: newSlack(),
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() { defer close(served); a.serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		a.links.close()
		<-served
	})
	return a, socket
}

func TestDialWaitsForTheHostAndIsCarriedByIt(t *testing.T) {
	t.Parallel()
	a, socket := linkOnly(t)
	want := &cellv1.Dial{Target: "gateway", Pid: 17, StartTicks: 4711, SessionId: "s"}
	type result struct {
		c   net.Conn
		err error
	}
	opened := make(chan result, 1)
	go func() {
		c, err := a.openDial(long(t), want)
		opened <- result{c, err}
	}()
	got := make(chan *cellv1.Dial, 1)
	c, err := cell.Dial(long(t), socket, a.cfg.Secret, cell.WithDialHandler(func(d *cellv1.Dial, nc net.Conn) {
		got <- d
		_, _ = io.Copy(nc, nc)
		_ = nc.Close()
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if d := <-got; d.GetTarget() != "gateway" || d.GetPid() != 17 || d.GetStartTicks() != 4711 || d.GetSessionId() != "s" {
		t.Errorf("dial %v", d)
	}
	r := <-opened
	if r.err != nil {
		t.Fatal(r.err)
	}
	if _, err := r.c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	if _, err := io.ReadFull(r.c, buf); err != nil || string(buf) != "ping" {
		t.Errorf("%q %v", buf, err)
	}
	_ = r.c.Close()

	c.SetDialHandler(nil)
	conn, err := a.openDial(long(t), want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that the host does not want: %v", err)
	}
	_ = conn.Close()

	if err := c.Latch(long(t), 1); err != nil {
		t.Fatal(err)
	}
	_, err = a.openDial(long(t), want)
	wantErr(t, err, cell.ErrLatched)
}

// Latch answers only when no start is past its check of the latch any more.
func TestLatchWaitsForStartsThatAreUnderWay(t *testing.T) {
	t.Parallel()
	a, socket := linkOnly(t)
	c, err := cell.Dial(long(t), socket, a.cfg.Secret)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a.starting.RLock() // a fork
	latched := make(chan error, 1)
	go func() { latched <- c.Latch(long(t), 1) }()
	eventually(t, "the latch to wait", func() bool {
		if a.starting.TryRLock() {
			a.starting.RUnlock()
			return false
		}
		return true
	})
	select {
	case err := <-latched:
		t.Errorf("answered during a fork: %v", err)
	default:
	}
	a.starting.RUnlock()
	if err := <-latched; err != nil {
		t.Error(err)
	}
}
