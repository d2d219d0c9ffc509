// Package guest is the driver's end of a VM's control port: it tells the init
// of the VM what to do. It imports the standard library only. The types are
// those of host/internal/cellagent/vm_ctl.go; that both fit is seen by every
// test that boots a VM.
//
// The one idea: a request is one line, and may be lost together with the
// driver; so each carries a number, and every line that is no answer to it is
// thrown away.
package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// Setup is everything that an init needs to know.
type Setup struct {
	Hostname string   `json:"hostname"`
	Secret   []byte   `json:"secret"`
	Reset    Reset    `json:"reset"`
	Volumes  []Volume `json:"volumes"`
	Pids     uint64   `json:"pids"`
	Network  *Network `json:"network,omitempty"`
}

// Reset is what a VM must not share with another one, or with its own past.
type Reset struct {
	Now       int64  `json:"now"` // nanoseconds since 1970
	Entropy   []byte `json:"entropy"`
	MachineID string `json:"machine_id"`
	Secret    []byte `json:"secret,omitempty"`
}

// Volume is a volume behind a port.
type Volume struct {
	Port     string `json:"port"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// Network is the one address of a VM that has a network.
type Network struct {
	Address string `json:"address"`
	Gateway string `json:"gateway"`
	DNS     string `json:"dns"`
}

type request struct {
	ID    uint64 `json:"id"`
	Op    string `json:"op"`
	Setup *Setup `json:"setup,omitempty"`
	Reset *Reset `json:"reset,omitempty"`
}

// Error is what the init has answered.
type Error struct{ Text string }

func (e *Error) Error() string { return "the VM's init: " + e.Text }

// Conn is a connection to the control port. One call at a time.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
}

// New takes a connected socket over.
func New(conn net.Conn) *Conn { return &Conn{conn, bufio.NewReader(conn)} }

// Close ends the connection; the VM goes on.
func (c *Conn) Close() error { return c.conn.Close() }

// Setup sends the setup and waits until the cell agent runs. It may be sent
// before the VM has booted.
func (c *Conn) Setup(ctx context.Context, s *Setup) error {
	return c.call(ctx, &request{Op: "setup", Setup: s})
}

// Ping waits until the init runs.
func (c *Conn) Ping(ctx context.Context) error { return c.call(ctx, &request{Op: "ping"}) }

// Stop asks for an orderly end; the answer means only that it was heard.
func (c *Conn) Stop(ctx context.Context) error { return c.call(ctx, &request{Op: "stop"}) }

// Hold waits until no file operation is under way, and lets none begin.
func (c *Conn) Hold(ctx context.Context) error { return c.call(ctx, &request{Op: "hold"}) }

// Unhold lets file operations go on.
func (c *Conn) Unhold(ctx context.Context) error { return c.call(ctx, &request{Op: "unhold"}) }

// Restored makes a restored VM another one than it was, and lets it go on.
func (c *Conn) Restored(ctx context.Context, r *Reset) error {
	return c.call(ctx, &request{Op: "restored", Reset: r})
}

func (c *Conn) call(ctx context.Context, r *request) error {
	r.ID = rand.Uint64() | 1 //nolint:gosec // it need only differ from the one before
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Op, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// Whatever half a line is before it ends here.
	if _, err := c.conn.Write(append(append([]byte{'\n'}, b...), '\n')); err != nil {
		return c.failed(ctx, r, err)
	}
	for {
		line, err := c.r.ReadBytes('\n')
		if err != nil {
			return c.failed(ctx, r, err)
		}
		var reply struct {
			ID    uint64 `json:"id"`
			Error string `json:"error"`
		}
		if json.Unmarshal(line, &reply) != nil || reply.ID != r.ID {
			continue
		}
		if reply.Error != "" {
			return fmt.Errorf("%s: %w", r.Op, &Error{reply.Error})
		}
		return nil
	}
}

func (c *Conn) failed(ctx context.Context, r *request, err error) error {
	return fmt.Errorf("%s: %w", r.Op, errors.Join(ctx.Err(), err))
}
