package cellagent

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/cell"
)

func TestInputIsAppliedOncePerKey(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		start(t, c, a.sh("s", "exec cat"))
		for i := range 10 {
			for range 3 { // each three times, on two connections
				if err := c.Input(long(t), "s", fmt.Sprint("key", i), fmt.Appendf(nil, "line %d\n", i), 1); err != nil {
					t.Fatal(err)
				}
			}
			c = a.dial(t)
			keys := c.Hello().GetSessions()[0].GetAppliedKeys()
			if len(keys) != i+1 || keys[i] != fmt.Sprint("key", i) {
				t.Errorf("applied keys %v", keys)
			}
			if err := c.Input(long(t), "s", fmt.Sprint("key", i), fmt.Appendf(nil, "line %d\n", i), 1); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // without a key, each one counts
			if err := c.Input(long(t), "s", "", []byte("more\n"), 1); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := c.CloseInput(long(t), "s", 1); err != nil {
				t.Fatal(err)
			}
		}
		var want strings.Builder
		for i := range 10 {
			fmt.Fprintf(&want, "line %d\n", i)
		}
		want.WriteString("more\nmore\n")
		if o := readAll(t, c, "s"); string(o.stdout) != want.String() {
			t.Errorf("input was %q", o.stdout)
		}
		event(t, c, exited)
		wantErr(t, c.Input(long(t), "s", "late", []byte("x"), 1), cell.ErrClosed)
		if err := c.Input(long(t), "s", "key9", []byte("x"), 1); err != nil {
			t.Errorf("an applied key after the end: %v", err)
		}
	})
}

// A write that is under way when the connection is lost, and is sent again on
// the next one, is one write.
func TestInputUnderWayWhenTheLinkIsLost(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	dir := openTempDir(t)
	start(t, c, a.sh("s", "while [ ! -e "+dir+"/go ]; do sleep 0.02; done; exec cat"))
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<15) // 512 KiB: more than a pipe holds
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	wantErr(t, c.Input(ctx, "s", "k", data, 1), context.DeadlineExceeded)
	c = a.dial(t)
	if keys := c.Hello().GetSessions()[0].GetAppliedKeys(); len(keys) != 0 {
		t.Errorf("applied before it was written: %v", keys)
	}
	second := make(chan error, 1)
	go func() { second <- c.Input(long(t), "s", "k", data, 1) }()
	start(t, c, a.sh("opener", "touch "+dir+"/go"))
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if err := c.CloseInput(long(t), "s", 1); err != nil {
		t.Fatal(err)
	}
	if o := readAll(t, c, "s"); !bytes.Equal(o.stdout, data) {
		t.Errorf("%d bytes arrived, want %d", len(o.stdout), len(data))
	}
}

func TestWorkloadThatDoesNotReadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.sh("deaf", "exec sleep 1000"))
	replies := make(chan error, 8)
	for i := range 8 {
		go func() { replies <- c.Input(long(t), "deaf", fmt.Sprint(i), make([]byte, 1<<20), 1) }()
	}
	start(t, c, a.sh("other", "exec cat"))
	if err := c.Input(long(t), "other", "k", []byte("hello\n"), 1); err != nil {
		t.Fatal(err)
	}
	readUntil(t, c, "other", 0, "hello")
	if err := c.Kill(long(t), "deaf", 0, 1); err != nil {
		t.Fatal(err)
	}
	full := 0
	for range 8 {
		switch err := <-replies; {
		case err == nil:
			t.Error("an input that nobody read was reported as written")
		case strings.Contains(err.Error(), "full"):
			full++
		default:
			wantErr(t, err, cell.ErrClosed)
		}
	}
	if full == 0 {
		t.Error("the queue has no bound")
	}
	wantErr(t, c.Input(long(t), "other", "k2", make([]byte, maxInput+1), 1), cell.ErrInvalid)
}

func TestOnlyTheNewestKeysAreRemembered(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.sh("s", "cat >/dev/null"))
	for i := range maxKeys + 5 {
		if err := c.Input(long(t), "s", fmt.Sprint(i), []byte("x"), 1); err != nil {
			t.Fatal(err)
		}
	}
	h, err := a.redialHello()
	if err != nil {
		t.Fatal(err)
	}
	keys := h.GetSessions()[0].GetAppliedKeys()
	if len(keys) != maxKeys || keys[0] != "5" || keys[maxKeys-1] != fmt.Sprint(maxKeys+4) {
		t.Errorf("%d keys, from %s to %s", len(keys), keys[0], keys[len(keys)-1])
	}
}
