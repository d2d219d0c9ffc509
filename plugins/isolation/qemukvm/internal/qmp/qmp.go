// Package qmp speaks QEMU's machine protocol over a unix socket. It imports the
// standard library and golang.org/x/sys only. The one idea: QEMU serves one
// client at a time and forgets nothing that matters, so a client is opened when
// there is something to say, every call has a deadline, and a connection that
// has failed once is closed and replaced.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrClosed ends calls of a connection that is over: QEMU has ended, or Close.
var ErrClosed = errors.New("the QMP connection is closed")

// Error is a command that QEMU has refused.
type Error struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

func (e *Error) Error() string { return "QEMU: " + e.Desc }

// Event is something that happened to the VM.
type Event struct {
	Name string          `json:"event"`
	Data json.RawMessage `json:"data"`
	At   struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"`
}

// Client is one connection. Its methods may be called from many goroutines.
type Client struct {
	conn   *net.UnixConn
	events func(Event)
	done   chan struct{}

	sending sync.Mutex

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan reply
}

type reply struct {
	ID     uint64          `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *Error          `json:"error"`
	Event
}

// maxLine bounds what QEMU says at once.
const maxLine = 16 << 20

// Open takes a connected socket over. events is called for every event, on one
// goroutine that must not be held up; nil = nobody asks. It waits for QEMU's
// greeting: while another client is connected there is none.
func Open(ctx context.Context, conn *net.UnixConn, events func(Event)) (*Client, error) {
	c := &Client{conn: conn, events: events, done: make(chan struct{}), pending: map[uint64]chan reply{}}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 4096), maxLine)
	ok := lines.Scan()
	if !stop() || !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("QEMU's greeting: %w", errors.Join(ctx.Err(), lines.Err(), ErrClosed))
	}
	go c.read(lines)
	if err := c.Run(ctx, "qmp_capabilities", nil, nil); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) read(lines *bufio.Scanner) {
	defer close(c.done)
	for lines.Scan() {
		var r reply
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			break
		}
		if r.Name != "" {
			if c.events != nil {
				c.events(r.Event)
			}
			continue
		}
		c.mu.Lock()
		to := c.pending[r.ID]
		delete(c.pending, r.ID)
		c.mu.Unlock()
		if to != nil {
			to <- r
		}
	}
	_ = c.conn.Close()
}

// Done is closed when the connection is over.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection; QEMU goes on.
func (c *Client) Close() error {
	_ = c.conn.Close()
	<-c.done
	return nil
}

// Run runs a command and reads its answer into out, when that is not nil.
func (c *Client) Run(ctx context.Context, command string, args, out any) error {
	return c.run(ctx, nil, command, args, out)
}

// PassFD hands QEMU a descriptor, which "fd:NAME" names from then on.
func (c *Client) PassFD(ctx context.Context, f *os.File, name string) error {
	return c.run(ctx, unix.UnixRights(int(f.Fd())), "getfd", map[string]string{"fdname": name}, nil)
}

func (c *Client) run(ctx context.Context, oob []byte, command string, args, out any) error {
	answer := make(chan reply, 1)
	c.mu.Lock()
	c.next++
	id := c.next
	c.pending[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
	}()
	msg, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        uint64 `json:"id"`
	}{command, args, id})
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if err := c.send(ctx, append(msg, '\n'), oob); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	select {
	case r := <-answer:
		if r.Error != nil {
			return fmt.Errorf("%s: %w", command, r.Error)
		}
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(r.Return, out); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		return nil
	case <-c.done:
		return fmt.Errorf("%s: %w", command, ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", command, ctx.Err())
	}
}

func (c *Client) send(ctx context.Context, msg, oob []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline, _ := ctx.Deadline() // none = zero = none
	_ = c.conn.SetWriteDeadline(deadline)
	_, _, err := c.conn.WriteMsgUnix(msg, oob, nil)
	if err != nil {
		_ = c.conn.Close() // half a command may have gone out
		return errors.Join(ErrClosed, err)
	}
	return nil
}

// State is a VM's run state as query-status says it.
func (c *Client) State(ctx context.Context) (string, error) {
	var s struct {
		Status string `json:"status"`
	}
	err := c.Run(ctx, "query-status", nil, &s)
	return s.Status, err
}
