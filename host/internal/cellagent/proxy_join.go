package cellagent

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// join moves bytes between a process of the cell and the host until both
// directions have ended. The end of one direction is passed on and leaves the
// other open; an error ends both, so that a cut is never taken for an end.
func join(client, host net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(host, client); err != nil {
			abort(client, host)
			return
		}
		_ = host.Close() // yamux: no more is written; what comes is still read
	})
	wg.Go(func() {
		// A stream also ends with its connection; that is no end of what it carried.
		if _, err := io.Copy(client, host); err != nil || lost(host) {
			abort(client, host)
			return
		}
		if w, ok := client.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
	})
	wg.Wait()
	_ = client.Close()
	_ = host.Close()
}

// lost says whether the connection under a stream is over.
func lost(host net.Conn) bool {
	s, ok := host.(*yamux.Stream)
	return ok && s.Session().IsClosed()
}

// abort ends both directions at once.
func abort(client, host net.Conn) {
	reset(client)
	_ = host.SetDeadline(time.Unix(1, 0))
	_ = host.Close()
}

// reset closes a connection so that its peer sees an error and not an end,
// where that is possible.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
