package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

const patience = 60 * time.Second

// peer is an executor that does what a test tells it.
type peer struct {
	t      *testing.T
	orch   *orchestrator.Orchestrator
	id     string
	token  string
	rest   *httptest.Server
	client *http.Client

	mu       sync.Mutex
	requests []string // method, path, authorization, body
	answer   func(w http.ResponseWriter, r *http.Request)
}

func start(t *testing.T, opt orchestrator.Options) *orchestrator.Orchestrator {
	t.Helper()
	o := orchestrator.New(opt)
	if err := o.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func newPeer(t *testing.T, o *orchestrator.Orchestrator, id string, capabilities ...string) *peer {
	t.Helper()
	p := &peer{t: t, orch: o, id: id, client: &http.Client{Transport: &http.Transport{}}}
	p.rest = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		p.requests = append(p.requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(raw))
		answer := p.answer
		p.mu.Unlock()
		switch {
		case answer != nil:
			answer(w, r)
		case strings.HasPrefix(r.URL.Path, "/agents/"):
			http.NotFound(w, r)
		default:
			w.WriteHeader(202)
			_, _ = w.Write([]byte(`{"estimated_start":"2026-05-09T07:13:22.123Z"}`))
		}
	}))
	t.Cleanup(func() {
		p.rest.Close()
		p.client.CloseIdleConnections()
	})
	p.register(capabilities...)
	return p
}

func (p *peer) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

// call sends a request to the orchestrator.
func (p *peer) call(method, path, body string, header ...string) (int, map[string]any) {
	p.t.Helper()
	req, err := http.NewRequest(method, p.orch.URL()+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	var got map[string]any
	_ = json.Unmarshal(bytes.TrimSpace(raw), &got)
	return resp.StatusCode, got
}

func (p *peer) register(capabilities ...string) map[string]any {
	p.t.Helper()
	if capabilities == nil {
		capabilities = []string{}
	}
	raw, _ := json.Marshal(map[string]any{
		"executor_id": p.id, "name": "peer", "version": "1", "spec_version": "1.0.0", "capabilities": capabilities,
		"transport_endpoints": map[string]string{"rest": p.rest.URL, "ws": "ws://127.0.0.1:1"},
	})
	status, got := p.call("POST", "/api/v1/executors/register", string(raw))
	if status != 201 {
		p.t.Fatalf("register: %d %v", status, got)
	}
	p.token = got["token"].(string)
	return got
}

// dial opens a socket and sends the resync.
func (p *peer) dial() *websocket.Conn {
	p.t.Helper()
	c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(p.orch.URL(), "http")+"/ws/executors/"+p.id+"?token="+p.token, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	p.send(c, "executor.resync", "", `{"owned_mission_ids":[]}`)
	return c
}

func (p *peer) send(c *websocket.Conn, event, mission, data string) {
	p.t.Helper()
	m := map[string]any{"event": event, "executor_id": p.id, "ts": "2026-05-09T07:13:22.123Z", "data": json.RawMessage(data)}
	if mission != "" {
		m["mission_id"] = mission
	}
	if err := c.WriteJSON(m); err != nil {
		p.t.Fatal(err)
	}
}

// read is the next command from the orchestrator.
func (p *peer) read(c *websocket.Conn) (e orchestrator.Event) {
	p.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if err := c.ReadJSON(&e); err != nil {
		p.t.Fatal(err)
	}
	return e
}

// up registers, dials and waits until the executor is connected.
func (p *peer) up() *websocket.Conn {
	p.t.Helper()
	c := p.dial()
	p.eventually("it is connected", func() bool { return p.isConnected() })
	return c
}

func (p *peer) isConnected() bool {
	_, got := p.call("GET", "/api/v1/executors/"+p.id, "")
	return got["connected"] == true
}

func (p *peer) eventually(what string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			p.t.Fatalf("it did not come about that %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (p *peer) shows(mission, state string) orchestrator.Mission {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := p.orch.Wait(ctx, mission, func(m orchestrator.Mission) bool { return m.State == state })
	if err != nil {
		p.t.Fatalf("want %s: %v", state, err)
	}
	return m
}

func order(mission, more string) []byte {
	return []byte(`{"mission_id":"` + mission + `","objective":"o","completion":"c"` + more + `}`)
}

func (p *peer) dispatch(mission, more string) (int, map[string]any) {
	p.t.Helper()
	return p.orch.Dispatch(context.Background(), order(mission, more))
}
