package helper

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/airlock-host/airlock/sdk/cell"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a relay between a link.sock and an agent with two ports, which
// answers with what the host has said.
type bench struct {
	t      *testing.T
	link   string
	secret []byte
	gone   bool // nothing listens at the ports
	once   sync.Once
	done   func()
}

func newBench(t *testing.T, gone bool) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "al") // short, for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bench{t: t, link: filepath.Join(dir, "l"), secret: []byte(strings.Repeat("s", 32)), gone: gone}
	ctx, cancel := context.WithCancel(context.Background())
	responder := cell.NewResponder(b.secret)
	var wg sync.WaitGroup
	reach := func(ctx context.Context, socket string) (net.Conn, error) {
		if gone {
			return nil, errors.New("no VM")
		}
		ours, theirs := net.Pipe()
		wg.Go(func() {
			defer theirs.Close()
			acceptor := responder.Accept(theirs, false)
			link, err := acceptor.Next()
			for errors.Is(err, cell.ErrForged) {
				link, err = acceptor.Next()
			}
			if err == nil {
				_, _ = io.Copy(link, link)
			}
		})
		return ours, nil
	}
	listener, err := net.Listen("unix", b.link)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { (&relay{reach: reach}).serve(ctx, listener); close(served) }()
	b.done = func() {
		cancel()
		select {
		case <-served:
		case <-time.After(time.Minute):
			t.Error("the relay does not end")
		}
		wg.Wait()
	}
	t.Cleanup(func() { b.once.Do(b.done) })
	return b
}

// dial opens a connection.
func (b *bench) dial() net.Conn {
	b.t.Helper()
	c, err := net.Dial("unix", b.link)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// open dials and gets the agent's answer.
func (b *bench) open() net.Conn {
	b.t.Helper()
	c := b.dial()
	if _, err := c.Write(preamble(b.t, b.secret)); err != nil {
		b.t.Fatal(err)
	}
	answer := make([]byte, 40)
	if _, err := io.ReadFull(c, answer); err != nil {
		b.t.Fatalf("the agent's answer: %v", err)
	}
	if !strings.HasPrefix(string(answer), agentMagic) {
		b.t.Fatalf("the agent answers %q", answer)
	}
	return c
}

// preamble records what a host of this secret says first.
func preamble(t *testing.T, secret []byte) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		if c, err := cell.Open(ctx, theirs, secret); err == nil {
			_ = c.Close()
		}
	}()
	b := make([]byte, 40)
	if _, err := io.ReadFull(ours, b); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = ours.Close()
	<-opened
	return b
}

func says(t *testing.T, c net.Conn, word string) {
	t.Helper()
	if _, err := io.WriteString(c, word); err != nil {
		t.Fatalf("the connection that counts: %v", err)
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != word {
		t.Fatalf("the connection that counts says %q: %v", got, err)
	}
}

func isCut(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Fatalf("the connection is not cut: %v", err)
	}
}

func TestStrangersDoNotCutTheLink(t *testing.T) {
	b := newBench(t, false)
	live := b.open()
	var strangers []net.Conn
	for range 3 {
		c := b.dial()
		if _, err := c.Write(preamble(t, []byte(strings.Repeat("x", 32)))); err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, c)
		says(t, live, "still here")
	}
	// They stand in each other's way only.
	isCut(t, strangers[0])
	isCut(t, strangers[1])
	says(t, live, "and still")
	// The host's next connection gets through behind them.
	next := b.open()
	isCut(t, strangers[2])
	isCut(t, live)
	says(t, next, "me now")
}

func TestTheNewestProvenConnectionCounts(t *testing.T) {
	b := newBench(t, false)
	live := b.open()
	for range 10 {
		next := b.open()
		isCut(t, live)
		says(t, next, "hello")
		live = next
	}
	_ = live.Close()
	says(t, b.open(), "again")
}

func TestTheRelayEndsWithItsVM(t *testing.T) {
	b := newBench(t, true)
	isCut(t, b.dial())
	b.once.Do(func() {
		// It ends by itself.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			c, err := net.Dial("unix", b.link)
			if err != nil {
				break
			}
			_ = c.Close()
			if time.Now().After(deadline) {
				t.Fatal("it still listens")
			}
		}
		b.done()
	})
}
