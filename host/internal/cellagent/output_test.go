package cellagent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

func TestOutputIsExactOnBothStreams(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		// Every byte value, 300 times, and something else on the other stream.
		blob := make([]byte, 0, 300*256)
		for range 300 {
			for b := range 256 {
				blob = append(blob, byte(b))
			}
		}
		file := filepath.Join(t.TempDir(), "blob")
		if err := os.WriteFile(file, blob, 0o644); err != nil {
			t.Fatal(err)
		}
		s := a.session("s", "/bin/sh", "-c", `cat; echo "to stderr" >&2`)
		start(t, c, s)
		if err := c.Input(long(t), "s", "k", blob, 1); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseInput(long(t), "s", 1); err != nil {
			t.Fatal(err)
		}
		o := readAll(t, c, "s")
		if !bytes.Equal(o.stdout, blob) {
			t.Errorf("stdout has %d bytes that differ from the %d written", len(o.stdout), len(blob))
		}
		if string(o.stderr) != "to stderr\n" {
			t.Errorf("stderr %q", o.stderr)
		}
		if e := event(t, c, exited); e.GetEnd() != o.end || e.GetCode() != 0 || e.GetSignal() != 0 {
			t.Errorf("exited %v, output ends at %d", e, o.end)
		}
	})
}

func TestLargeOutputBlocksUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	const size = 100 << 20
	a := startAgent(t, plain)
	c := a.dial(t)
	s := a.sh("s", fmt.Sprintf("exec head -c %d /dev/zero", size))
	s.OutputLimit = 1 << 20
	start(t, c, s)
	var most, got uint64
	r, err := c.ReadOutput(long(t), "s", 0)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	for {
		f, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if f.GetEnd() != nil {
			break
		}
		sum.Write(f.GetData().GetData())
		got += uint64(len(f.GetData().GetData()))
		if got-most >= 512<<10 { // acknowledging late is what makes it block
			if err := c.Ack(long(t), "s", got); err != nil {
				t.Fatal(err)
			}
			most = got
		}
	}
	want := sha256.New()
	_, _ = io.CopyN(want, zeroes{}, size)
	if got != size || !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
		t.Fatalf("got %d bytes of %d, or other ones", got, size)
	}
	st, err := c.Stats(long(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("agent resident after 100 MB: %d KiB (with the race detector, if it is on)", st.GetAgentRss()>>10)
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestFullBufferBlocksTheWorkloadOnly(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	s := a.sh("loud", "cat /dev/zero")
	s.OutputLimit = 64 << 10
	start(t, c, s)
	// A reader that never reads, and nobody who acknowledges.
	r, err := c.ReadOutput(long(t), "loud", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	eventually(t, "a full buffer", func() bool {
		h, err := a.redialHello()
		return err == nil && h.GetSessions()[0].GetNext() >= 60<<10
	})
	c = a.dial(t)
	start(t, c, a.sh("other", "read x; echo got $x"))
	if err := c.Input(long(t), "other", "k", []byte("it\n"), 1); err != nil {
		t.Fatal(err)
	}
	if o := readAll(t, c, "other"); string(o.stdout) != "got it\n" {
		t.Errorf("other session wrote %q", o.stdout)
	}
	if err := c.Kill(long(t), "loud", 0, 1); err != nil {
		t.Fatal(err)
	}
	for e := event(t, c, exited); e.GetSessionId() != "loud"; e = event(t, c, exited) {
	}
	h := c.Hello()
	if next := h.GetSessions()[0].GetNext(); next > 64<<10 {
		t.Errorf("held %d bytes, the limit is %d", next, 64<<10)
	}
}

func TestStalledReaderDelaysNobody(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	s := a.sh("loud", "exec cat /dev/zero")
	s.OnFull = cellv1.OnFull_ON_FULL_DROP_OLDEST
	s.OutputLimit = 1 << 20
	start(t, c, s)
	r, err := c.ReadOutput(long(t), "loud", 0) // never read: its window fills up
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	eventually(t, "more output than the windows hold", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		r2, err := c.ReadOutput(ctx, "loud", 0)
		if err != nil {
			return false
		}
		defer r2.Close()
		f, err := r2.Next()
		return err == nil && f.GetGap().GetTo() > 4<<20
	})
	began := time.Now()
	if err := c.Kill(long(t), "loud", 0, 1); err != nil {
		t.Fatal(err)
	}
	t.Logf("kill beside a stalled reader: %v", time.Since(began))
	if e := event(t, c, exited); e.GetSignal() != 9 {
		t.Errorf("exited %v", e)
	}
}

func TestDropOldestLeavesTheNewestAndAGap(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	s := a.sh("s", "i=0; while [ $i -lt 60000 ]; do echo line $i; i=$((i+1)); done")
	s.OnFull, s.OutputLimit = cellv1.OnFull_ON_FULL_DROP_OLDEST, 64<<10
	start(t, c, s)
	e := event(t, c, exited)
	var o output
	o.read(t, c, "s", 0, func(uint64) bool { return true })
	var want strings.Builder
	for i := range 60000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if len(o.gaps) != 1 || o.gaps[0].GetFrom() != 0 {
		t.Fatalf("gaps %v", o.gaps)
	}
	if rest := want.String()[o.gaps[0].GetTo():]; string(o.stdout) != rest {
		t.Errorf("behind the gap come %d bytes, want %d", len(o.stdout), len(rest))
	}
	if n := len(o.stdout); n > 64<<10 || n < 32<<10 {
		t.Errorf("%d bytes were held of a limit of %d", n, 64<<10)
	}
	if o.end != uint64(want.Len()) || e.GetEnd() != o.end {
		t.Errorf("end %d, exited %v, want %d", o.end, e, want.Len())
	}
}

func TestReconnectInTheMiddleOfOutputLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		s := a.sh("s", "i=0; while [ $i -lt 40000 ]; do echo line number $i; i=$((i+1)); done; exit 7")
		s.OutputLimit = 64 << 10
		start(t, c, s)
		var want strings.Builder
		for i := range 40000 {
			fmt.Fprintf(&want, "line number %d\n", i)
		}
		var got []byte // what the host has made safe
		for round := 0; ; round++ {
			var o output
			stop := uint64(len(got)) + 50<<10
			o.read(t, c, "s", uint64(len(got)), func(next uint64) bool { return next < stop })
			got = append(got, o.all...)
			if o.end != 0 {
				break
			}
			if err := c.Ack(long(t), "s", uint64(len(got))); err != nil {
				t.Fatal(err)
			}
			// What was sent beyond is lost with the connection, as with a host
			// that is killed.
			if round%2 == 0 {
				_ = c.Close()
			}
			c = a.dial(t)
			st := c.Hello().GetSessions()[0]
			if st.GetBase() != uint64(len(got)) {
				t.Fatalf("base %d after acknowledging %d", st.GetBase(), len(got))
			}
		}
		if string(got) != want.String() {
			t.Fatalf("%d bytes, want %d, or other ones", len(got), want.Len())
		}
		_ = c.Close()
		// The end is told until it is acknowledged, and then never again.
		c = a.dial(t)
		if e := c.Hello().GetSessions()[0].GetExited(); e.GetCode() != 7 || e.GetEnd() != uint64(want.Len()) {
			t.Errorf("exited %v", e)
		}
		if err := c.AckExit(long(t), "s"); err != nil {
			t.Fatal(err)
		}
		if err := c.AckExit(long(t), "s"); err != nil {
			t.Errorf("the second acknowledgement: %v", err)
		}
		c = a.dial(t)
		if n := len(c.Hello().GetSessions()); n != 0 {
			t.Errorf("%d sessions after the acknowledgement", n)
		}
	})
}

func TestOutputOfUnknownSession(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	r, err := c.ReadOutput(long(t), "none", 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Next()
	wantErr(t, err, errNotFound)
	ctx, cancel := context.WithCancel(context.Background())
	start(t, c, a.sh("quiet", "exec sleep 1000"))
	if r, err = c.ReadOutput(ctx, "quiet", 0); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = r.Next()
	wantErr(t, err, context.Canceled)
}
