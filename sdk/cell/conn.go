package cell

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// Protocol versions that this package speaks.
const (
	ProtoMin = 1
	ProtoMax = 1
)

// DefaultTimeout is the deadline of a request whose context has none.
const DefaultTimeout = 10 * time.Second

// Conn is the host's end of a cell link. Its methods may be called from many
// goroutines. Errors are *Error when the agent refused, ErrLinkLost when the
// connection ended first, else the context's.
type Conn struct {
	mux     *yamux.Session
	control *yamux.Stream
	hello   *cellv1.HelloReply
	events  *eventQueue
	out     chan *outgoing
	done    chan struct{}
	wg      sync.WaitGroup

	mu      sync.Mutex
	nextID  uint64
	pending map[uint64]chan *cellv1.AgentFrame
	onDial  DialHandler
	err     error
}

// Option changes how a connection is opened.
type Option func(*Conn)

// WithDialHandler is SetDialHandler before the first stream can arrive.
func WithDialHandler(h DialHandler) Option { return func(c *Conn) { c.onDial = h } }

// Dial opens a connection to the cell agent behind a unix socket. Any older
// connection to the same agent is closed by it. Without a deadline in ctx it
// has DefaultTimeout. ErrRefused = the far end has another secret or is no
// cell agent.
func Dial(ctx context.Context, socketPath string, secret []byte, opts ...Option) (*Conn, error) {
	ctx, cancel := withDefault(ctx)
	defer cancel()
	addr, done, err := shortSocketPath(socketPath)
	if err != nil {
		return nil, fmt.Errorf("dial cell link: %w", err)
	}
	defer done()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", addr)
	if err != nil {
		return nil, fmt.Errorf("dial cell link: %w", err)
	}
	return Open(ctx, nc, secret, opts...)
}

// Open opens a connection over a stream that is already there, and owns it: it
// is closed with the Conn, and on an error.
func Open(ctx context.Context, nc net.Conn, secret []byte, opts ...Option) (*Conn, error) {
	ctx, cancel := withDefault(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := open(ctx, nc, secret, opts)
	if err != nil {
		_ = nc.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("open cell link: %w", err)
	}
	if !stop() {
		_ = c.Close()
		return nil, fmt.Errorf("open cell link: %w", ctx.Err())
	}
	return c, nil
}

func open(ctx context.Context, nc net.Conn, secret []byte, opts []Option) (*Conn, error) {
	host := newNonce()
	if _, err := nc.Write(hostPreamble(secret, host)); err != nil {
		if isReset(err) { // the far end hung up before it was greeted
			return nil, ErrRefused
		}
		return nil, err
	}
	br := bufio.NewReaderSize(nc, 16<<10)
	agent, err := findAgent(br, secret, host)
	if err != nil {
		return nil, err
	}
	mux, err := yamux.Client(&hostStream{Conn: nc, r: br, w: &escaper{w: nc}}, muxConfig())
	if err != nil {
		return nil, err
	}
	c := &Conn{
		mux: mux, events: newEventQueue(), out: make(chan *outgoing), done: make(chan struct{}),
		pending: make(map[uint64]chan *cellv1.AgentFrame),
	}
	for _, o := range opts {
		o(c)
	}
	if err := c.sayHello(hostProof(secret, host, agent)); err != nil {
		_ = mux.Close()
		return nil, err
	}
	c.wg.Add(4)
	go c.readLoop()
	go c.writeLoop()
	go c.acceptLoop()
	go func() { defer c.wg.Done(); c.events.run(c.done) }()
	return c, nil
}

// findAgent throws input away until the agent's preamble for this nonce.
func findAgent(br *bufio.Reader, secret []byte, host nonce) (nonce, error) {
	for {
		b, err := br.Peek(preambleSize)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err) {
				return nonce{}, ErrRefused
			}
			return nonce{}, err
		}
		if n, ok := parse(secret, b, agentMagic, "airlock-cell agent", host); ok {
			_, _ = br.Discard(preambleSize)
			return n, nil
		}
		skip := bytes.IndexByte(b[1:], mark)
		if skip < 0 {
			skip = len(b) - 1
		}
		_, _ = br.Discard(1 + skip)
	}
}

func (c *Conn) sayHello(proof []byte) error {
	stream, err := c.mux.OpenStream()
	if err != nil {
		return ErrRefused
	}
	c.control = stream
	c.nextID = 1
	err = NewEncoder(stream).Encode(&cellv1.HostFrame{Id: 1, Frame: &cellv1.HostFrame_Hello{
		Hello: &cellv1.Hello{ProtoMin: ProtoMin, ProtoMax: ProtoMax, Proof: proof}}})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var f cellv1.AgentFrame
	if err := NewDecoder(stream).Decode(&f); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if f.GetError() != nil {
		return &Error{Code: f.GetError().GetCode(), Message: f.GetError().GetMessage()}
	}
	if c.hello = f.GetHello(); c.hello == nil {
		return fmt.Errorf("%w: no answer to hello", ErrRefused)
	}
	if v := c.hello.GetProto(); v < ProtoMin || v > ProtoMax {
		return &Error{Code: cellv1.ErrorCode_ERROR_CODE_PROTOCOL, Message: fmt.Sprintf("agent answered with version %d", v)}
	}
	return nil
}

// Hello returns what the agent said of itself when the connection was opened:
// binding, latch, sessions with their offsets and ends, open questions. What
// has happened since comes as events; nothing falls between the two. The
// caller must not change it.
func (c *Conn) Hello() *cellv1.HelloReply { return c.hello }

// Events returns what the agent reports. A slow reader delays nothing but
// itself. The channel is closed after Done.
func (c *Conn) Events() <-chan Event { return c.events.ch }

// Done is closed when the connection is over.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection is over; nil while it is not. After Close it is
// ErrLinkLost.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits until its goroutines are gone (dial
// handlers excepted). The cell does not notice.
func (c *Conn) Close() error {
	c.fail(nil)
	c.wg.Wait()
	return nil
}

// fail ends the connection once.
func (c *Conn) fail(cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = ErrLinkLost
	if cause != nil && !errors.Is(cause, io.EOF) {
		c.err = fmt.Errorf("%w: %w", ErrLinkLost, cause)
	}
	c.mu.Unlock()
	close(c.done)
	_ = c.mux.Close()
}

// hostStream is what yamux runs over at the host.
type hostStream struct {
	net.Conn
	r io.Reader
	w io.Writer
}

func (s *hostStream) Read(p []byte) (int, error)  { return s.r.Read(p) }
func (s *hostStream) Write(p []byte) (int, error) { return s.w.Write(p) }

func withDefault(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// shortSocketPath gives a path that fits into a sockaddr_un (108 bytes) even
// where the real one does not. done must be called after its use.
func shortSocketPath(path string) (short string, done func(), err error) {
	if len(path) < 100 {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}

// ListenUnix listens on a unix socket whose path may be longer than a
// sockaddr_un. The socket appears at once ready for connections; one that is
// there already is replaced.
func ListenUnix(path string) (*net.UnixListener, error) {
	early := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.Remove(early); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	addr, done, err := shortSocketPath(early)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the name may be a successor's by then
	if err := os.Rename(early, path); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}
