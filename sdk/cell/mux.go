package cell

import (
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

// muxConfig is how both ends run yamux. No keepalive and no time-outs of its
// own: a paused cell is silent for as long as it is paused, and that must not
// cost the connection. Whoever waits has a deadline.
func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = 365 * 24 * time.Hour
	c.StreamOpenTimeout = 0
	// How long one direction of a stream may outlive the other: a process that
	// has sent its request and closed its end may wait long for the answer.
	c.StreamCloseTimeout = 15 * time.Minute
	c.LogOutput = io.Discard // what it has to say comes back as errors
	return c
}

// Mux runs the agent's end of yamux over a connection.
func (l *Link) Mux() (*yamux.Session, error) { return yamux.Server(l, muxConfig()) }
