package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestARequestThatComesLastIsAnswered: a connection that was accepted before the
// server ends has its request answered, although it is sent after that began.
func TestARequestThatComesLastIsAnswered(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, open, closed := &Server{}, &conns{}, make(chan struct{})
	s.life, s.end = context.WithCancel(context.Background())
	srv := &http.Server{ReadHeaderTimeout: time.Minute, ConnState: open.note, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "taken")
	})}
	go func() { _ = srv.Serve(l); close(closed) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	open.until(time.Minute, func(states map[http.ConnState]int) bool { return states[http.StateNew] == 1 })
	over := make(chan struct{})
	go func() { s.wind(srv, l, open, time.Minute, time.Minute); close(over) }()
	<-closed
	fmt.Fprint(c, "POST /dispatch HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("the request was dropped: %v", err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); string(text) != "taken" || !resp.Close {
		t.Errorf("%q, close %v", text, resp.Close)
	}
	<-over
	if s.life.Err() == nil {
		t.Error("the streams were not ended")
	}
}
