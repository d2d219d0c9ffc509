package apitest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/store"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Refunds are the rules of the refund story: refunds above 500 wait for a
// human, refunds above the intent's max_refund are blocked.
const Refunds = `
  policy {
    default = "allow"
    rule "no-deletes" {
      tool   = "delete*"
      effect = "deny"
      reason = "nothing is deleted"
    }
    rule "capped" {
      tool    = "cap"
      effect  = "warn"
      rewrite = { dry_run = true }
    }
  }
  intent {
    binding "refund-cap" {
      tool       = "refund"
      argument   = "/amount"
      op         = "lte"
      constraint = "max_refund"
      on_missing = "allow"
    }
  }
  approve {
    rule "big-refunds" {
      tool   = "refund*"
      when   = args.amount > 500
      reason = "refunds above 500 need a human"
    }
  }
  redact "secrets" {
    tool    = "login"
    pointer = "/password"
  }
`

// Governed is a running API server over a real engine and a real store, for
// tasks of harnesses. It has no agents.
type Governed struct {
	*Host
	Real  *engine.Engine
	Store *Stall
	dir   string
	rules *gate.Rules
	cfg   *config.Config

	change []func(*api.Options)
}

// Govern starts one; block is what the governance block has beside mode and
// on_failure, which are govern and fail_closed unless it says otherwise.
func Govern(t testing.TB, block string, change ...func(*api.Options)) *Governed {
	t.Helper()
	g := &Governed{dir: t.TempDir()}
	if !strings.Contains(block, "policy {") {
		block += "\n  policy {\n    default = \"allow\"\n  }"
	}
	for name, value := range map[string]string{"mode": "govern", "on_failure": "fail_closed"} {
		if !strings.Contains(block, "\n"+name+" = ") {
			block += "\n" + name + " = \"" + value + "\""
		}
	}
	text := "data_dir = \"" + filepath.Join(g.dir, "data") + "\"\nrun_dir = \"" + filepath.Join(g.dir, "run") + "\"\ngovernance {\n" + block + "\n}\n"
	cfg, diags := config.Parse([]config.Source{{Name: "test.hcl", Bytes: []byte(text)}}, config.Options{})
	if diags.HasErrors() {
		for _, d := range diags {
			t.Error(d)
		}
		t.FailNow()
	}
	g.cfg = cfg
	if g.rules, diags = gate.Compile(cfg.Governance, gate.WithSalt(make([]byte, 32))); diags.HasErrors() {
		t.Fatal(diags)
	}
	g.change = change
	g.open(t)
	t.Cleanup(func() { g.close(t) })
	g.serve(t)
	return g
}

// serve starts an API server over the engine.
func (g *Governed) serve(t testing.TB) {
	t.Helper()
	g.Host = New(t, append([]func(*api.Options){func(o *api.Options) {
		o.Engine, o.Sessions, o.Events = g.Real, g.Real, g.Store
	}}, g.change...)...)
}

// Reopen is a restart of the host: the store is closed under the engine and
// both come back from the disk. The server is another one.
func (g *Governed) Reopen(t testing.TB) {
	t.Helper()
	g.close(t)
	g.open(t)
	g.serve(t)
}

func (g *Governed) open(t testing.TB) {
	t.Helper()
	st, err := store.Open(store.Options{Dir: g.cfg.DataDir, Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	g.Store = &Stall{Store: st}
	agent := filepath.Join(g.dir, "airlock-cell")
	if err := os.WriteFile(agent, []byte("#!/bin/false\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	mgr, err := cells.New(cells.Options{DataDir: g.cfg.DataDir, RunDir: g.cfg.RunDir, HostID: "test", AgentPath: agent, Drivers: noPlugins{}})
	if err != nil {
		t.Fatal(err)
	}
	g.Real = engine.New(engine.Options{Config: g.cfg, HostID: "test", Store: g.Store, Plugins: noPlugins{}, Cells: mgr, Rules: g.rules, WorkflowKey: make([]byte, 32),
		StopsDir: filepath.Join(g.dir, "heads", "stops"), SpoolDir: filepath.Join(g.dir, "heads", "spool"),
		Log: hclog.New(&hclog.LoggerOptions{Output: t.Output()})})
	if err := g.Real.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (g *Governed) close(t testing.TB) {
	g.Store.Go()
	g.Real.Close()
	if err := g.Store.Close(); err != nil {
		t.Errorf("close the store: %v", err)
	}
}

// noPlugins is a catalog with nothing in it; what nobody asks of it here is not
// there at all.
type noPlugins struct{ engine.Plugins }

func (noPlugins) Isolation(string) (pluginv1.IsolationClient, error) { return nil, engine.ErrNotFound }
func (noPlugins) Runtime(string) (pluginv1.RuntimeClient, error)     { return nil, engine.ErrNotFound }
func (noPlugins) Capabilities(string) ([]string, error)              { return nil, engine.ErrNotFound }
func (noPlugins) Features(string) []string                           { return nil }
func (noPlugins) Needs(string) []*pluginv1.Need                      { return nil }
func (noPlugins) Build(string) (version, sha256 string)              { return "", "" }
func (noPlugins) Changed() <-chan struct{}                           { return nil }

// Stall is a store whose commits hang or fail when the test wants it.
type Stall struct {
	*store.Store

	mu      sync.Mutex
	gate    chan struct{}
	hanging int
	fail    error
}

// Hanging is how many commits hang.
func (s *Stall) Hanging() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hanging
}

// Hang makes commits wait until Go.
func (s *Stall) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

// Go lets the commits through that hang.
func (s *Stall) Go() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
}

// Fail makes every commit fail with an error; nil: as usual again.
func (s *Stall) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// Commit commits, unless told otherwise.
func (s *Stall) Commit(ctx context.Context, b store.Batch) error {
	s.mu.Lock()
	gate, fail := s.gate, s.fail
	if gate != nil {
		s.hanging++
	}
	s.mu.Unlock()
	if gate != nil {
		<-gate
		s.mu.Lock()
		s.hanging--
		s.mu.Unlock()
	}
	if fail != nil {
		return fail
	}
	return s.Store.Commit(ctx, b)
}
