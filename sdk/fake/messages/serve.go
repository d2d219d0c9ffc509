package messages

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Server is an API that listens. End it with Close.
type Server struct {
	*API
	// URL is its base URL; for a unix socket http://localhost, to be reached
	// through Socket.
	URL    string
	Socket string // path of the unix socket; empty for a port

	http *http.Server
	wg   sync.WaitGroup
}

// Serve starts an API at a loopback address ("127.0.0.1:0"), or at a unix
// socket ("unix:/path"). It refuses any other address: what it answers is no
// secret, but what it is sent may be.
func Serve(addr string, opts Options) (*Server, error) {
	s := &Server{API: New(opts)}
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr, s.Socket = "unix", path, path
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, fmt.Errorf("the stand-in of the Messages API cannot listen: %w", err)
	}
	s.URL = "http://localhost"
	if t, ok := l.Addr().(*net.TCPAddr); ok {
		if !t.IP.IsLoopback() {
			_ = l.Close()
			return nil, fmt.Errorf("the stand-in of the Messages API listens on loopback only, not on %s", addr)
		}
		s.URL = "http://" + t.String()
	}
	s.http = &http.Server{Handler: s.API, ReadHeaderTimeout: 30 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	s.wg.Go(func() { _ = s.http.Serve(l) })
	return s, nil
}

// Close ends the server and every connection.
func (s *Server) Close() {
	_ = s.http.Close()
	s.wg.Wait()
}
