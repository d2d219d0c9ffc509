package apitest

import (
	"context"
	"crypto/ed25519"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// The tokens of the operators that every Host has.
var (
	// AliceToken is of "alice": role operator, every agent.
	AliceToken = strings.Repeat("a", 32)
	// VicToken is of "vic": role viewer, every agent.
	VicToken = strings.Repeat("v", 32)
	// RobToken is of "rob": role operator, agent-01 only.
	RobToken = strings.Repeat("r", 32)
)

// Host is a running API server over an Engine.
type Host struct {
	Engine  *Engine
	Server  *api.Server
	REST    string // http://…
	WS      string // ws://…
	Socket  string // path of the operator socket
	Plugins *Plugins
	Logs    *LogBuffer
	// Dispatched counts requests that reached the executor's handler.
	Dispatched atomic.Int64
}

// New starts a host and stops it with the test. change may alter the options.
// The operator socket belongs to alice if own is the test's own uid in her
// block, which it is.
func New(t testing.TB, change ...func(*api.Options)) *Host {
	t.Helper()
	dir := t.TempDir()
	run, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{Engine: NewEngine(filepath.Join(dir, "sessions")), Plugins: &Plugins{}, Logs: &LogBuffer{}}
	self := uint32(os.Geteuid()) //nolint:gosec // a uid
	blocks := []config.Operator{
		{Name: "alice", TokenFile: tokenFile(t, dir, "alice", AliceToken), Role: "operator", UIDs: []uint32{self}},
		{Name: "vic", TokenFile: tokenFile(t, dir, "vic", VicToken), Role: "viewer"},
		{Name: "rob", TokenFile: tokenFile(t, dir, "rob", RobToken), Role: "operator", Agents: []string{"agent-01"}},
	}
	ops, err := api.LoadOperators(blocks, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	rest, ws := listen(t), listen(t)
	_, port, _ := net.SplitHostPort(rest.Addr().String())
	reg := prometheus.NewRegistry()
	opts := api.Options{
		Version: "test", Engine: h.Engine, Sessions: h.Engine, Events: h.Engine, Plugins: h.Plugins,
		Ready:     func() api.Readiness { return api.Readiness{Ready: true, Plugins: h.Plugins.reasons()} },
		Operators: ops, Log: hclog.New(&hclog.LoggerOptions{Output: h.Logs, Level: hclog.Debug}), RESTPort: port,
		Dispatch: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h.Dispatched.Add(1)
			w.WriteHeader(http.StatusAccepted)
		}),
		OrchestratorStatus: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"configured":false,"connected":false}`))
		}),
		Reconnect: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }),
		UI:        http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }),
		Metrics:   reg, Register: reg,
		Sign: func(h journal.NewHead) (record.Record, record.Key) {
			private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
			public, _ := private.Public().(ed25519.PublicKey)
			return record.Sign(private, time.Now(), []journal.NewHead{h}), record.Key{ID: record.KeyID(public), Public: public}
		},
		Drain: func(context.Context, time.Duration) error { return nil },
		Reload: func(context.Context) (any, error) {
			return map[string]any{"path": "/etc/airlock/airlock.hcl", "changes": []map[string]string{{"path": "operator.bob", "change": "added", "to": "operator \"bob\"", "effect": "applied", "at": "airlock.hcl:3"}}}, nil
		},
	}
	for _, c := range change {
		c(&opts)
	}
	if h.Server, err = api.New(opts); err != nil {
		t.Fatal(err)
	}
	sock, err := api.ListenOperator(run, ops.UIDs())
	if err != nil {
		t.Fatal(err)
	}
	h.REST, h.WS = "http://"+rest.Addr().String(), "ws://"+ws.Addr().String()
	h.Socket = filepath.Join(run, api.SocketName)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Server.Serve(ctx, api.Listeners{REST: rest, WS: ws, Operator: sock}, 10*time.Second) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		h.Engine.Close()
		_ = os.RemoveAll(run)
	})
	return h
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tokenFile(t testing.TB, dir, name, token string) string {
	t.Helper()
	path := filepath.Join(dir, name+".token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Mission starts a mission at an agent.
func (h *Host) Mission(t testing.TB, id, agent string) {
	t.Helper()
	if _, err := h.Engine.Accept(context.Background(), engine.Dispatch{MissionID: id, AgentID: agent, Objective: "echo " + id, Origin: "local"}); err != nil {
		t.Fatal(err)
	}
}

// Plugins is a catalog of one plugin.
type Plugins struct{ Reloaded atomic.Int64 }

// Status lists it.
func (p *Plugins) Status() any {
	return []map[string]any{{
		"ref": "isolation.docker.container", "name": "container", "kind": "isolation", "driver": "docker", "file": "airlock-isolation-docker",
		"state": "unhealthy", "reason": "docker is not reachable", "restarts": 2,
	}}
}

// Reload counts.
func (p *Plugins) Reload(_ context.Context, name string) error {
	if name != "isolation.docker.container" {
		return engine.ErrNotFound
	}
	p.Reloaded.Add(1)
	return nil
}

func (p *Plugins) reasons() map[string]string {
	return map[string]string{"isolation.docker.container": "docker is not reachable"}
}
