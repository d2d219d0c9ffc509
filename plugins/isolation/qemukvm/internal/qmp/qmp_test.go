package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is what a client asks.
type request struct {
	Execute   string         `json:"execute"`
	Arguments map[string]any `json:"arguments"`
	ID        uint64         `json:"id"`
}

// server is the other end of one connection: it greets, takes requests, and
// says what the test wants.
type server struct {
	t    *testing.T
	conn *net.UnixConn
	r    *bufio.Reader
	file *os.File // the last descriptor that came
}

// connect gives both ends of a connection.
func connect(t *testing.T) (*net.UnixConn, *server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "q"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, conn: theirs}
	s.r = bufio.NewReader(s)
	t.Cleanup(func() { _, _ = c.Close(), theirs.Close() })
	return c, s
}

// Read keeps the descriptors that come.
func (s *server) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := s.conn.ReadMsgUnix(p, oob)
	if n == 0 && err == nil {
		err = io.EOF
	}
	if oobn > 0 {
		messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
		for _, m := range messages {
			fds, _ := unix.ParseUnixRights(&m)
			for _, fd := range fds {
				s.file = os.NewFile(uintptr(fd), "passed")
			}
		}
	}
	return n, err
}

func (s *server) say(text string) {
	if _, err := io.WriteString(s.conn, text+"\r\n"); err != nil {
		s.t.Errorf("the server: %v", err)
	}
}

func (s *server) next() (r request, err error) {
	line, err := s.r.ReadBytes('\n')
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(line, &r)
}

// greet does what comes before the first command.
func (s *server) greet() {
	s.say(`{"QMP": {"version": {}, "capabilities": ["oob"]}}`)
	r, err := s.next()
	if err != nil || r.Execute != "qmp_capabilities" {
		s.t.Errorf("the client begins with %v (%v)", r, err)
	}
	s.answer(r, `"return": {}`)
}

func (s *server) answer(r request, what string) {
	id, _ := json.Marshal(r.ID)
	s.say(`{` + what + `, "id": ` + string(id) + `}`)
}

// run plays a server beside the test.
func run(t *testing.T, play func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); play() }()
	t.Cleanup(func() { <-done })
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, conn *net.UnixConn, events func(Event)) *Client {
	t.Helper()
	c, err := Open(within(t), conn, events)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAnswersFindTheirCommands(t *testing.T) {
	t.Parallel()
	conn, s := connect(t)
	const n = 8
	run(t, func() {
		s.greet()
		var asked []request
		for range n {
			r, err := s.next()
			if err != nil {
				t.Errorf("request: %v", err)
				return
			}
			asked = append(asked, r)
		}
		for i := range asked { // the last one first
			r := asked[n-1-i]
			b, _ := json.Marshal(r.Arguments["n"])
			s.answer(r, `"return": {"n": `+string(b)+`}`)
		}
	})
	c := open(t, conn, nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			var out struct{ N int }
			if err := c.Run(within(t), "echo", map[string]int{"n": i}, &out); err != nil || out.N != i {
				t.Errorf("command %d is answered with %d (%v)", i, out.N, err)
			}
		})
	}
	wg.Wait()
}

func TestARefusalIsAnError(t *testing.T) {
	t.Parallel()
	conn, s := connect(t)
	run(t, func() {
		s.greet()
		r, _ := s.next()
		s.answer(r, `"error": {"class": "GenericError", "desc": "not now"}`)
		r, _ = s.next()
		s.answer(r, `"return": {"status": "paused"}`)
	})
	c := open(t, conn, nil)
	var refused *Error
	if err := c.Run(within(t), "cont", nil, nil); !errors.As(err, &refused) || refused.Class != "GenericError" || refused.Desc != "not now" {
		t.Errorf("a refusal: %v", err)
	}
	if state, err := c.State(within(t)); err != nil || state != "paused" {
		t.Errorf("after a refusal the state is %q (%v)", state, err)
	}
}

func TestEventsComeBetweenAnswers(t *testing.T) {
	t.Parallel()
	conn, s := connect(t)
	run(t, func() {
		s.greet()
		r, _ := s.next()
		s.say(`{"event": "STOP", "data": {"a": 1}, "timestamp": {"seconds": 7, "microseconds": 8}}`)
		s.answer(r, `"return": {}`)
	})
	got := make(chan Event, 1)
	c := open(t, conn, func(e Event) { got <- e })
	if err := c.Run(within(t), "stop", nil, nil); err != nil {
		t.Fatal(err)
	}
	select { // it came before the answer
	case e := <-got:
		if e.Name != "STOP" || string(e.Data) != `{"a": 1}` || e.At.Seconds != 7 || e.At.Microseconds != 8 {
			t.Errorf("the event is %v", e)
		}
	default:
		t.Error("there is no event")
	}
}

func TestADescriptorIsPassed(t *testing.T) {
	t.Parallel()
	conn, s := connect(t)
	run(t, func() {
		s.greet()
		r, _ := s.next()
		if r.Execute != "getfd" || r.Arguments["fdname"] != "x" || s.file == nil {
			t.Errorf("the request is %v, with the file %v", r, s.file)
		} else {
			_, err := s.file.WriteString("through it")
			if err = errors.Join(err, s.file.Close()); err != nil {
				t.Error(err)
			}
		}
		s.answer(r, `"return": {}`)
	})
	c := open(t, conn, nil)
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.PassFD(within(t), f, "x"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(f.Name()); err != nil || string(b) != "through it" {
		t.Errorf("the file holds %q (%v)", b, err)
	}
}

func TestTheEndEndsCalls(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"closed": "", "nonsense": "no JSON\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, s := connect(t)
			run(t, func() {
				s.greet()
				_, _ = s.next()
				_, _ = io.WriteString(s.conn, last)
				_ = s.conn.CloseWrite()
			})
			c := open(t, conn, nil)
			if err := c.Run(within(t), "stop", nil, nil); !errors.Is(err, ErrClosed) {
				t.Errorf("the call ends with %v", err)
			}
			<-c.Done()
			if err := c.Run(within(t), "stop", nil, nil); !errors.Is(err, ErrClosed) {
				t.Errorf("the next call ends with %v", err)
			}
		})
	}
}

func TestACallThatIsGivenUpHurtsNoOther(t *testing.T) {
	t.Parallel()
	conn, s := connect(t)
	asked, late := make(chan struct{}), make(chan struct{})
	run(t, func() {
		s.greet()
		r, _ := s.next()
		close(asked)
		<-late
		s.answer(r, `"return": {"status": "late"}`)
		r, _ = s.next()
		s.answer(r, `"return": {"status": "running"}`)
	})
	c := open(t, conn, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := c.State(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
	close(late)
	if state, err := c.State(within(t)); err != nil || state != "running" {
		t.Errorf("the next call says %q (%v)", state, err)
	}
}

func TestNoGreetingIsWaitedForInVain(t *testing.T) {
	t.Parallel()
	conn, _ := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if c, err := Open(ctx, conn, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a greeting: %v, %v", c, err)
	}
	other, s := connect(t)
	_ = s.conn.Close()
	if c, err := Open(within(t), other, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("with a server that goes: %v, %v", c, err)
	}
}
