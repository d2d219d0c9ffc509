package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/mux"
	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/host/internal/executor"
	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

const executorID = "0190a000-0000-7000-8000-000000000001"

// patience is how long a test waits for what must happen: two slow cores, the
// race detector and other tests beside it.
const patience = 60 * time.Second

// world is an orchestrator and a host, talking over real sockets.
type world struct {
	t    *testing.T
	orch *orchestrator.Orchestrator
	out  *fakeOutbox
	eng  *fakeEngine
	opt  executor.Options
	rest *httptest.Server
	logs *buffer

	x    *executor.Executor
	stop func()

	mu        sync.Mutex
	handler   http.Handler
	tokens    map[string]bool
	intercept func(w http.ResponseWriter, r *http.Request) bool
	allowed   map[string]bool // kinds of violations that this test provokes
}

// buffer is a log that many goroutines write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// quick are timings for tests; what is not named keeps the contract's value.
func quick() executor.Timings {
	return executor.Timings{
		BackoffMin: 20 * time.Millisecond, BackoffMax: 200 * time.Millisecond, PongWait: 20 * time.Second,
		Debounce: 20 * time.Millisecond, QuestionPoll: 50 * time.Millisecond, RestateFor: 2 * time.Second,
	}
}

// newWorld starts an orchestrator; up starts the host.
func newWorld(t *testing.T, o orchestrator.Options) *world {
	t.Helper()
	w := &world{t: t, out: newOutbox(), logs: &buffer{}, tokens: map[string]bool{}, allowed: map[string]bool{}}
	w.eng = newEngine(w.out)
	o.Hooks.Intercept = w.see
	o.OldSocketClobbers = true
	w.orch = orchestrator.New(o)
	if err := w.orch.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	w.rest = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		h := w.handler
		w.mu.Unlock()
		if h == nil {
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(rw, r)
	}))
	w.opt = executor.Options{
		Endpoint: w.orch.URL(), Name: "agentic-sandbox-test", Version: "0.0.1", ID: executorID,
		REST: w.rest.URL, WS: "ws://127.0.0.1:8121", Engine: w.eng, Outbox: w.out, Timings: quick(),
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: w.logs}),
	}
	t.Cleanup(w.close)
	return w
}

// see notes every token that goes over the wire.
func (w *world) see(rw http.ResponseWriter, r *http.Request) bool {
	w.mu.Lock()
	if token := r.URL.Query().Get("token"); token != "" {
		w.tokens[token] = true
	}
	f := w.intercept
	w.mu.Unlock()
	return f != nil && f(rw, r)
}

func (w *world) setIntercept(f func(rw http.ResponseWriter, r *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intercept = f
}

// up starts the host and waits until it is connected.
func (w *world) up() *world {
	w.t.Helper()
	w.boot()
	w.connected()
	return w
}

func (w *world) boot() {
	w.x = executor.New(w.opt)
	r := mux.NewRouter()
	w.x.Register(r)
	r.HandleFunc("/api/v1/aiwg/reconnect", w.x.ReconnectHandler).Methods("POST")
	w.mu.Lock()
	w.handler = r
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	x := w.x
	go func() {
		defer close(done)
		x.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-done
	}
}

func (w *world) connected() {
	w.t.Helper()
	w.eventually("the host is connected", func() bool { return w.status().Connected })
	if !w.orch.Connected(1, patience) {
		w.t.Fatal("the orchestrator does not show the executor as connected")
	}
}

func (w *world) close() {
	status := ""
	if w.stop != nil {
		b, _ := json.Marshal(w.status())
		status = string(b)
		w.stop()
	}
	w.rest.Close()
	w.orch.Close()
	for _, v := range w.orch.Violations() {
		if !w.allowed[v.Kind] {
			w.t.Errorf("violation %s: %s", v.Kind, v.Detail)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for token := range w.tokens {
		if strings.Contains(w.logs.String(), token) {
			w.t.Error("a token is in the log")
		}
		if strings.Contains(status, token) {
			w.t.Error("a token is in the status")
		}
	}
	if strings.Contains(w.logs.String(), "token=") {
		w.t.Error("the WebSocket's URL is in the log")
	}
	if w.t.Failed() {
		w.t.Log(w.logs.String())
	}
}

func (w *world) status() executor.Status {
	r := httptest.NewRequest("GET", "/api/v1/aiwg/status", nil)
	return w.x.Status(r)
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			w.t.Fatalf("it did not come about that %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func body(id string) []byte {
	b, err := json.Marshal(obj{"mission_id": id, "objective": "true", "completion": "exits 0"})
	if err != nil {
		panic(err)
	}
	return b
}

// dispatch sends a mission through the orchestrator, which must answer 202.
func (w *world) dispatch(id string) map[string]any {
	w.t.Helper()
	status, answer := w.orch.Dispatch(context.Background(), body(id))
	if status != 202 {
		w.t.Fatalf("dispatch of %q: %d %v", id, status, answer)
	}
	return answer
}

// shows waits until the orchestrator shows a mission in a state.
func (w *world) shows(id, state string) orchestrator.Mission {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := w.orch.Wait(ctx, id, func(m orchestrator.Mission) bool { return m.State == state })
	if err != nil {
		w.t.Fatalf("want state %s: %v", state, err)
	}
	return m
}

// empty waits until the outbox is empty.
func (w *world) empty() {
	w.t.Helper()
	w.eventually("the outbox is empty", func() bool {
		n, _, _ := w.out.OutboxStats(context.Background())
		return n == 0
	})
}

func (w *world) words(id string) (words []string) {
	for _, e := range w.orch.Events(id) {
		words = append(words, e.Event)
	}
	return words
}

// post sends a request straight to the host.
func (w *world) post(path, contentType, token, body string) (int, map[string]any, http.Header) {
	w.t.Helper()
	req, err := http.NewRequest("POST", w.rest.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultTransport.(*http.Transport).RoundTrip(req) // redirects are not followed
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	var got map[string]any
	_ = json.Unmarshal(raw, &got)
	return resp.StatusCode, got, resp.Header
}

// token is the executor's token, as the orchestrator gave it out.
func (w *world) token() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for token := range w.tokens {
		return token
	}
	return ""
}

func ids(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%d", prefix, i))
	}
	return all
}
