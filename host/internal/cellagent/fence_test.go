package cellagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/cell"
)

func TestWrongSecretIsRefused(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	wrong := append([]byte(nil), a.secret...)
	wrong[31] ^= 1
	_, err := cell.Dial(long(t), a.socket(), wrong)
	wantErr(t, err, cell.ErrRefused)
	a.dial(t) // and the right one still works
}

func TestGarbageBeforeThePreamble(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	for name, garbage := range map[string]string{
		"text":                "GET / HTTP/1.1\r\n\r\n",
		"half of a magic":     "\xa7ALCE",
		"many marks":          "\xa7\xa7\xa7\x00\xa7A\xa7AL",
		"half of a preamble":  "\xa7ALCELL\x01\x02",
		"the agent's magic":   "\xa7ALCELL\x02................................",
		"a long torn message": string(make([]byte, 100_000)),
	} {
		nc, err := net.Dial("unix", a.socket())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write([]byte(garbage)); err != nil {
			t.Fatal(err)
		}
		c, err := cell.Open(long(t), nc, a.secret)
		if name == "half of a preamble" { // its MAC is made of what follows, and wrong
			wantErr(t, err, cell.ErrRefused)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := c.Ping(long(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = c.Close()
	}
}

func TestNewerConnectionReplacesTheOlder(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c1 := a.dial(t)
	c2 := a.dial(t)
	select {
	case <-c1.Done():
	case <-time.After(60 * time.Second):
		t.Fatal("the older connection lives on")
	}
	wantErr(t, c1.Err(), cell.ErrLinkLost)
	wantErr(t, c1.Ping(long(t)), cell.ErrLinkLost)
	if err := c2.Ping(long(t)); err != nil {
		t.Error(err)
	}
}

func TestGenerations(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c, err := cell.Dial(long(t), a.socket(), a.secret)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Hello().GetBound() != nil {
		t.Errorf("a new cell is bound: %v", c.Hello().GetBound())
	}
	s := a.sh("s", "read x; exit 0")
	s.Generation = 5
	_, err = c.Start(long(t), s)
	wantErr(t, err, cell.ErrStale) // not bound
	wantErr(t, c.Bind(long(t), "", 5), cell.ErrInvalid)
	wantErr(t, c.Bind(long(t), "mission", 0), cell.ErrInvalid)
	for range 2 {
		if err := c.Bind(long(t), "mission", 5); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, c.Bind(long(t), "mission", 4), cell.ErrStale)
	wantErr(t, c.Bind(long(t), "other", 6), cell.ErrConflict)
	start(t, c, s)
	if err := c.Bind(long(t), "mission", 6); err != nil {
		t.Fatal(err)
	}
	for _, g := range []uint64{5, 7} {
		s2 := a.sh("s2", "exit 0")
		s2.Generation = g
		_, err = c.Start(long(t), s2)
		wantErr(t, err, cell.ErrStale)
		wantErr(t, c.Input(long(t), "s", "k", []byte("x\n"), g), cell.ErrStale)
		wantErr(t, c.CloseInput(long(t), "s", g), cell.ErrStale)
		wantErr(t, c.Signal(long(t), "s", 2, g), cell.ErrStale)
		wantErr(t, c.Kill(long(t), "s", 0, g), cell.ErrStale)
	}
	h, err := a.redialHello()
	if err != nil || h.GetBound().GetMission() != "mission" || h.GetBound().GetGeneration() != 6 {
		t.Errorf("bound to %v, %v", h.GetBound(), err)
	}
	c = a.dial(t)
	if err := c.Input(long(t), "s", "k", []byte("x\n"), 6); err != nil {
		t.Fatal(err)
	}
	if e := event(t, c, exited); e.GetCode() != 0 {
		t.Error(e)
	}
}

func TestLatch(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.sh("s", "exec sleep 1000"))
	// The first fills the pipe that nobody reads, the second waits behind it and
	// must not be written once the latch is set.
	inputs := [][]byte{make([]byte, 1<<20), []byte("x")}
	for i, data := range inputs {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		wantErr(t, c.Input(ctx, "s", fmt.Sprint(i), data, 1), context.DeadlineExceeded)
	}
	stuck := make(chan error, 1)
	later := make(chan error, 1)
	go func() { stuck <- c.Input(long(t), "s", "0", inputs[0], 1) }()
	go func() { later <- c.Input(long(t), "s", "1", inputs[1], 1) }()
	if err := c.Latch(long(t), 7); err != nil {
		t.Fatal(err)
	}
	if err := c.Latch(long(t), 3); err != nil {
		t.Fatal(err)
	}
	_, err := c.Start(long(t), a.sh("s2", "exit 0"))
	wantErr(t, err, cell.ErrLatched)
	wantErr(t, c.Input(long(t), "s", "k2", []byte("x"), 1), cell.ErrLatched)
	if err := c.Kill(long(t), "", 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-stuck; !errors.Is(err, cell.ErrClosed) && !errors.Is(err, cell.ErrLatched) {
		t.Errorf("input that was stuck: %v", err)
	}
	if err := <-later; !errors.Is(err, cell.ErrClosed) && !errors.Is(err, cell.ErrLatched) {
		t.Errorf("input that was queued: %v", err)
	}
	h, err := a.redialHello()
	if err != nil || h.GetLatch().GetEpoch() != 7 {
		t.Errorf("latch %v, %v", h.GetLatch(), err)
	}
}

func TestLatchAgainstStartsThatAreUnderWay(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		errs := make(chan error, 40)
		for i := range 40 {
			go func() {
				_, err := c.Start(long(t), a.sh(string(rune('A'+i)), "exec sleep 1000"))
				errs <- err
			}()
		}
		if err := c.Latch(long(t), 1); err != nil {
			t.Fatal(err)
		}
		if err := c.Kill(long(t), "", 0, 0); err != nil {
			t.Fatal(err)
		}
		if left := a.survivors(); len(left) > 0 {
			t.Errorf("started behind the latch: %v", left)
		}
		for range 40 {
			if err := <-errs; err != nil && !errors.Is(err, cell.ErrLatched) {
				t.Error(err)
			}
		}
		if left := a.survivors(); len(left) > 0 {
			t.Errorf("started behind the latch: %v", left)
		}
	})
}

func TestProtocolVersions(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	h := c.Hello()
	if h.GetProto() != cell.ProtoMax || h.GetAgentVersion() != "test" || len(h.GetFeatures()) == 0 {
		t.Errorf("hello %v", h)
	}
	st, err := c.Stats(long(t))
	if err != nil || st.GetAgentRss() == 0 {
		t.Errorf("stats %v, %v", st, err)
	}
}

func TestSilentConnectionsDoNotShutTheHostOut(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	for range 3 * maxOpening {
		nc, err := net.Dial("unix", a.socket())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	if err := c.Ping(long(t)); err != nil { // the one that is proven is not touched
		t.Fatal(err)
	}
	eventually(t, "a new connection", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		c2, err := cell.Dial(ctx, a.socket(), a.secret)
		if err != nil {
			return false
		}
		_ = c2.Close()
		return true
	})
}
