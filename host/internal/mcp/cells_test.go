package mcp

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
)

// dialCell opens a connection as a process in a mission's cell does.
func dialCell(t *testing.T, s *Server, mission string) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = here.Close() })
	s.Carry(mission, there)
	if err := here.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return here
}

// ask sends a call and reads its answer.
func ask(t *testing.T, nc net.Conn, tool, args string) *http.Response {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "http://cell/mcp", strings.NewReader(callBody(Revision, tool, args)))
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": Revision, "Mcp-Method": "tools/call", "Mcp-Name": tool} {
		req.Header.Set(k, v)
	}
	if err := req.Write(nc); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(nc), req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}

// Requests that never come to their end do not keep a cell out of its endpoint,
// whether their head is missing or their body.
func TestHalfOpenRequestsLockNobodyOut(t *testing.T) {
	t.Parallel()
	s, _, _ := endpoint(t)
	for i := range 2 * maxCell {
		nc := dialCell(t, s, "mission")
		head := "POST /mcp HTTP/1.1\r\nHost: cell\r\n"
		if i%2 == 1 {
			head += "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
		}
		if _, err := nc.Write([]byte(head)); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	for range 3 {
		if resp := ask(t, dialCell(t, s, "mission"), "list_goals", `{}`); resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	s.cells.mu.Lock()
	defer s.cells.mu.Unlock()
	if n := len(s.cells.open["mission"]); n > maxCell {
		t.Errorf("%d connections are open", n)
	}
	if s.cells.server.ReadTimeout <= 0 {
		t.Error("a body may take for ever")
	}
}

// One call more than there may be is told so; calls that run are never cut off
// for it.
func TestACallTooManyIsToldSo(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	begun, leave := make(chan struct{}, maxCalls), make(chan struct{})
	r.doing(func(context.Context, string, engine.CellCommand) error {
		begun <- struct{}{}
		<-leave
		return nil
	})
	var calls sync.WaitGroup
	defer calls.Wait()
	once := sync.OnceFunc(func() { close(leave) })
	defer once()
	for range maxCalls {
		nc := dialCell(t, r.server, owner)
		calls.Go(func() {
			if resp := ask(t, nc, "run_command", r.command("")); resp.StatusCode != http.StatusOK {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	for range maxCalls {
		<-begun
	}
	for range maxCell { // the room for connections is used up, and no call with it
		dialCell(t, r.server, owner)
	}
	resp := ask(t, dialCell(t, r.server, owner), "list_goals", `{}`)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d", resp.StatusCode)
	}
	once()
	calls.Wait()
	if resp := ask(t, dialCell(t, r.server, owner), "list_goals", `{}`); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", resp.StatusCode)
	}
}
