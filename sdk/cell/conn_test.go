package cell

import (
	"bufio"
	"context"
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

	"github.com/hashicorp/yamux"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 4096) }

// fakeAgent answers one connection as its test says.
type fakeAgent struct {
	t       *testing.T
	mux     *yamux.Session
	control net.Conn
	enc     *Encoder
	dec     *Decoder
}

// pair opens a connection to a fake agent.
func pair(t *testing.T, hello *cellv1.AgentFrame, opts ...Option) (*Conn, *fakeAgent, error) {
	t.Helper()
	host, far := net.Pipe()
	fake := make(chan *fakeAgent, 1)
	go func() {
		fa := &fakeAgent{t: t}
		defer func() { fake <- fa }()
		l, err := NewResponder(testSecret).Accept(far, false).Next()
		if err != nil {
			_ = far.Close()
			return
		}
		fa.mux, _ = l.Mux()
		if fa.control, err = fa.mux.Accept(); err != nil {
			return
		}
		fa.enc, fa.dec = NewEncoder(fa.control), NewDecoder(fa.control)
		f := fa.next()
		if !l.Proven(f.GetHello().GetProof()) {
			t.Error("the host's proof is wrong")
		}
		hello.Id = f.GetId()
		_ = fa.enc.Encode(hello)
	}()
	c, err := Open(deadline(t), host, testSecret, opts...)
	fa := <-fake
	t.Cleanup(func() {
		if c != nil {
			_ = c.Close()
		}
		if fa.mux != nil {
			_ = fa.mux.Close()
		}
	})
	return c, fa, err
}

func helloFrame() *cellv1.AgentFrame {
	return &cellv1.AgentFrame{Frame: &cellv1.AgentFrame_Hello{Hello: &cellv1.HelloReply{Proto: 1}}}
}

func (f *fakeAgent) next() *cellv1.HostFrame {
	m := new(cellv1.HostFrame)
	_ = f.dec.Decode(m)
	return m
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestErrorsAreTyped(t *testing.T) {
	t.Parallel()
	c, fa, err := pair(t, helloFrame())
	if err != nil {
		t.Fatal(err)
	}
	sentinels := map[cellv1.ErrorCode]error{
		cellv1.ErrorCode_ERROR_CODE_INVALID: ErrInvalid, cellv1.ErrorCode_ERROR_CODE_NOT_FOUND: ErrNotFound,
		cellv1.ErrorCode_ERROR_CODE_STALE: ErrStale, cellv1.ErrorCode_ERROR_CODE_LATCHED: ErrLatched,
		cellv1.ErrorCode_ERROR_CODE_START_FAILED: ErrStartFailed, cellv1.ErrorCode_ERROR_CODE_CLOSED: ErrClosed,
		cellv1.ErrorCode_ERROR_CODE_PROTOCOL: ErrProtocol, cellv1.ErrorCode_ERROR_CODE_INTERNAL: ErrInternal,
		cellv1.ErrorCode_ERROR_CODE_CONFLICT: ErrConflict,
	}
	if len(sentinels) != len(cellv1.ErrorCode_name)-1 {
		t.Errorf("%d sentinels for %d codes", len(sentinels), len(cellv1.ErrorCode_name)-1)
	}
	for code, want := range sentinels {
		go func() {
			_ = fa.enc.Encode(&cellv1.AgentFrame{Id: fa.next().GetId(), Error: &cellv1.Error{Code: code, Message: "why"}})
		}()
		err := c.Ping(deadline(t))
		var e *Error
		if !errors.Is(err, want) || !errors.As(err, &e) || e.Message != "why" || !strings.Contains(err.Error(), "why") {
			t.Errorf("%v: %v", code, err)
		}
		for other, s := range sentinels {
			if other != code && errors.Is(err, s) {
				t.Errorf("%v is %v too", code, s)
			}
		}
	}
}

func TestStuckEventReaderDoesNotHoldUpReplies(t *testing.T) {
	t.Parallel()
	c, fa, err := pair(t, helloFrame())
	if err != nil {
		t.Fatal(err)
	}
	const n = 5000
	go func() {
		for i := range n {
			_ = fa.enc.Encode(&cellv1.AgentFrame{Frame: &cellv1.AgentFrame_Waiting{Waiting: &cellv1.Waiting{Offset: uint64(i)}}})
		}
		_ = fa.enc.Encode(&cellv1.AgentFrame{Id: fa.next().GetId()})
	}()
	if err := c.Ping(deadline(t)); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if e := <-c.Events(); e.Waiting.GetOffset() != uint64(i) {
			t.Fatalf("event %d is %v", i, e)
		}
	}
}

func TestRequestThatTheAgentDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c, fa, err := pair(t, helloFrame())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan error, 1)
	go func() { got <- c.Ping(ctx) }()
	late := fa.next()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	go func() { // the late answer belongs to nobody
		_ = fa.enc.Encode(&cellv1.AgentFrame{Id: late.GetId(), Error: &cellv1.Error{Code: cellv1.ErrorCode_ERROR_CODE_STALE}})
		_ = fa.enc.Encode(&cellv1.AgentFrame{Id: fa.next().GetId()})
	}()
	if err := c.Ping(deadline(t)); err != nil {
		t.Error(err)
	}
	go func() { got <- c.Ping(deadline(t)) }()
	fa.next()
	_ = fa.mux.Close()
	if err := <-got; !errors.Is(err, ErrLinkLost) {
		t.Errorf("error %v", err)
	}
	<-c.Done()
	if _, ok := <-c.Events(); ok {
		t.Error("events go on")
	}
	if _, err := c.ReadOutput(deadline(t), "s", 0); !errors.Is(err, ErrLinkLost) {
		t.Errorf("error %v", err)
	}
	if !errors.Is(c.Err(), ErrLinkLost) {
		t.Errorf("error %v", c.Err())
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	c, fa, err := pair(t, helloFrame())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := c.Ping(deadline(t)); !errors.Is(err, ErrLinkLost) {
				t.Errorf("error %v", err)
			}
		})
		fa.next()
	}
	r, err := c.ReadOutput(deadline(t), "s", 0)
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		if _, err := r.Next(); !errors.Is(err, ErrLinkLost) {
			t.Errorf("error %v", err)
		}
	})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestHelloThatIsRefused(t *testing.T) {
	t.Parallel()
	_, _, err := pair(t, &cellv1.AgentFrame{Error: &cellv1.Error{Code: cellv1.ErrorCode_ERROR_CODE_PROTOCOL}})
	if !errors.Is(err, ErrProtocol) {
		t.Errorf("error %v", err)
	}
	_, _, err = pair(t, &cellv1.AgentFrame{Frame: &cellv1.AgentFrame_Hello{Hello: &cellv1.HelloReply{Proto: ProtoMax + 1}}})
	if !errors.Is(err, ErrProtocol) {
		t.Errorf("error %v", err)
	}
	_, _, err = pair(t, &cellv1.AgentFrame{})
	if !errors.Is(err, ErrRefused) {
		t.Errorf("error %v", err)
	}
}

func TestDialOfASocketThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := ListenUnix(filepath.Join(dir, "link.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, filepath.Join(dir, "link.sock"), testSecret); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if _, err := Dial(deadline(t), filepath.Join(dir, "none"), testSecret); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestSocketPathsMayBeLong(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	deep := filepath.Join(dir, strings.Repeat("d", 120))
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(deep, "link.sock")
	for range 2 { // the second time over the socket of the first
		l, err := ListenUnix(path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		accepted := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				_ = c.Close()
			}
			accepted <- err
		}()
		if _, err := Dial(deadline(t), path, testSecret); !errors.Is(err, ErrRefused) {
			t.Errorf("error %v", err)
		}
		if err := <-accepted; err != nil {
			t.Error(err)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for code := range cellv1.ErrorCode_name {
		if s := (&Error{Code: cellv1.ErrorCode(code)}).Error(); s == "" || strings.HasSuffix(s, ": ") {
			t.Errorf("%d: %q", code, s)
		}
	}
	if err := fmt.Errorf("start: %w", &Error{Code: cellv1.ErrorCode_ERROR_CODE_STALE, Message: "x"}); !errors.Is(err, ErrStale) || errors.Is(err, ErrLatched) {
		t.Error(err)
	}
}
