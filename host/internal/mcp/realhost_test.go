package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/mcp/tools"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// host is the endpoint over the real kernel, the real domain and the real
// store. Its commands are the only thing that is not real.
type host struct {
	dir    string
	store  *store.Store
	keeper *workflow.Keeper
	kernel *kernel.Kernel
	server *Server
	close  func()

	commands atomic.Int64
	exit     atomic.Int64 // exit code of commands
	deny     atomic.Bool
	ahead    atomic.Int64 // milliseconds that its clock is ahead
	// during is what a command does beside being counted; its error is that of a
	// command of which nobody knows what it did. nil: nothing.
	during atomic.Pointer[func(ctx context.Context, owner string, c engine.CellCommand) error]
	log    lockedText
	mu     sync.Mutex
	seen   []kernel.Observation
}

type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (h *host) AdmitCall(_ context.Context, _ string, c engine.CellCall) (engine.AdmittedCall, error) {
	if h.deny.Load() {
		return engine.AdmittedCall{}, &engine.Denied{Outcome: "BLOCK", Reason: "a rule"}
	}
	return engine.AdmittedCall{InvocationID: "inv", Args: c.Args}, nil
}
func (h *host) EndCall(context.Context, string, engine.AdmittedCall, string, time.Duration) {}
func (h *host) Exec(ctx context.Context, owner string, c engine.CellCommand) (engine.CellResult, error) {
	h.commands.Add(1)
	if f := h.during.Load(); f != nil {
		if err := (*f)(ctx, owner, c); err != nil {
			return engine.CellResult{}, err
		}
	}
	return engine.CellResult{ExitCode: int(h.exit.Load()), Stdout: []byte("out")}, nil
}

// doing sets what commands do.
func (h *host) doing(f func(ctx context.Context, owner string, c engine.CellCommand) error) {
	h.during.Store(&f)
}
func (h *host) AskOperator(context.Context, string, string) (string, error) { return "yes", nil }

func (h *host) now() time.Time {
	return time.Now().Add(time.Duration(h.ahead.Load()) * time.Millisecond)
}

// oddCloseout is a closing tool that there is in tests only: its mode says what
// it says of the work.
type oddCloseout struct {
	Mode string `wc:"mode,required" enum:"open,blocking,missing,text,failed"`
}

func closeout(_ context.Context, _ kernel.By, in oddCloseout) kernel.Result {
	outcome := map[string]any{}
	switch in.Mode {
	case "open":
		outcome["blocking"] = false
	case "blocking":
		outcome["blocking"] = true
	case "text":
		outcome["blocking"] = "false"
	case "failed":
		return kernel.FromError(&workflow.Error{Kind: "broken", Message: "it failed", Recovery: workflow.NoAction})
	}
	return kernel.Done(map[string]any{"task_outcome": outcome}, kernel.Unchanged)
}

// openHost makes a host over a directory; what an earlier life of it has left
// half done is settled first. A token is the owner's name, and may have scopes
// behind a bar: owner|scope,scope.
func openHost(dir string, hook store.Hook, foreground time.Duration) (*host, error) {
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		return nil, err
	}
	hs, err := heads.Open(heads.Options{File: filepath.Join(dir, "heads", "heads.jsonl"), Key: key})
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Heads: hs, Hook: hook, Ballast: -1})
	if err != nil {
		return nil, err
	}
	h := &host{dir: dir, store: s}
	log := hclog.New(&hclog.LoggerOptions{Output: &h.log, Level: hclog.Trace})
	h.keeper = workflow.New(workflow.Options{Store: store.Workflow{S: s}, Key: []byte("0123456789abcdef0123456789abcdef"), Now: h.now})
	if err := s.Commit(context.Background(), store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error { return h.keeper.Recover(tx) }}); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	var jobs sync.WaitGroup
	list := tools.All(h.keeper, &tools.Effects{Runtime: h, Now: h.now, Go: func(f func(context.Context)) { jobs.Go(func() { f(life) }) }, Foreground: foreground,
		Project: func(_ context.Context, o workflow.Owner) (string, error) { return workflow.Project(o), nil },
		Ended: func(o workflow.Owner, row string, m workflow.MainOutcome) {
			_ = h.keeper.SettleStarted(context.Background(), o, row, m)
		}})
	list = append(list, kernel.NewTool(kernel.Def{Name: "odd_closeout", Scope: tools.ScopeRuntime, Fields: envelope.All, Closeout: true}, closeout))
	h.kernel, err = kernel.New(kernel.Options{Service: h.keeper, Tools: list, Log: log, Material: tools.Materials(h.keeper), Observe: func(o kernel.Observation) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen = append(h.seen, o)
	}})
	if err != nil {
		end()
		return nil, err
	}
	h.server, err = New(Options{Kernel: h.kernel, Log: log, Token: func(_ context.Context, token string) (workflow.Owner, []string, bool) {
		who, scopes, some := strings.Cut(token, "|")
		if !some {
			return workflow.Owner(who), tools.Scopes(), true
		}
		return workflow.Owner(who), strings.Split(scopes, ","), true
	}})
	h.close = func() {
		end()
		jobs.Wait()
		h.server.Close()
		_ = s.Close()
		_ = hs.Close()
	}
	return h, err
}

// observe lets a mission's workflow follow a fact.
func (h *host) observe(o workflow.Owner, ev workflow.MissionEvent) error {
	return h.store.Commit(context.Background(), store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error {
		return h.keeper.Observe(tx, o, ev, workflow.Mission{Agent: "a", Objective: "build", Plan: json.RawMessage(`["one","two"]`), Generation: 1})
	}})
}

// real is a host behind HTTP, with a mission.
type real struct {
	*host
	t       *testing.T
	url     string
	token   string
	answers []string // every answer that was given
	ansMu   sync.Mutex
	ctx     workflow.MissionContext
}

func newReal(t *testing.T) *real {
	t.Helper()
	return newRealWith(t, nil, 0)
}

func newRealWith(t *testing.T, hook store.Hook, foreground time.Duration) *real {
	t.Helper()
	h, err := openHost(t.TempDir(), hook, foreground)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h.server.HTTP())
	t.Cleanup(func() { web.Close(); http.DefaultClient.CloseIdleConnections(); h.close() })
	r := &real{host: h, t: t, url: web.URL, token: owner}
	r.observe(workflow.MissionStarting)
	r.observe(workflow.MissionStarted)
	if out := r.must("get_mission_context", `{}`); json.Unmarshal(out, &r.ctx) != nil || r.ctx.Proofs == nil {
		t.Fatalf("%s", out)
	}
	return r
}

const owner = "mission-1"

func (r *real) observe(ev workflow.MissionEvent) {
	r.t.Helper()
	if err := r.host.observe(owner, ev); err != nil {
		r.t.Fatal(err)
	}
}

// do calls a tool and gives its output, and the error kind if it failed.
func (r *real) do(tool, args string) (json.RawMessage, string) {
	r.t.Helper()
	a := call(r.t, r.url, r.token, tool, args)
	r.ansMu.Lock()
	r.answers = append(r.answers, a.text)
	r.ansMu.Unlock()
	out, isError := structured(r.t, a)
	if isError == out.Success || (out.Error == nil) != out.Success {
		r.t.Errorf("%s: success %v, error %v, isError %v", tool, out.Success, out.Error, isError)
	}
	kind := ""
	if out.Error != nil {
		kind, _, _ = strings.Cut(*out.Error, ":")
	}
	return out.Output, kind
}

func (r *real) must(tool, args string) json.RawMessage {
	r.t.Helper()
	out, kind := r.do(tool, args)
	if kind != "" {
		r.t.Fatalf("%s: %s: %s", tool, kind, out)
	}
	return out
}

// control is what came of a composite call.
func (r *real) control(out json.RawMessage) kernel.Control {
	r.t.Helper()
	var o struct {
		Control *kernel.Control `json:"control"`
	}
	if err := json.Unmarshal(out, &o); err != nil || o.Control == nil {
		r.t.Fatalf("no control in %s", out)
	}
	return *o.Control
}

func (r *real) revision() int64 {
	r.t.Helper()
	var g workflow.GoalView
	if err := json.Unmarshal(r.must("get_goal", `{"goal_id":"`+r.ctx.GoalID+`"}`), &g); err != nil {
		r.t.Fatal(err)
	}
	return g.Summary.Revision
}

func (r *real) progress(revision int64, key, more string) string {
	return fmt.Sprintf(`"before":{"goal_progress":{"goal_id":%q,"expected_revision":%d,"summary":"SENTINEL-summary","idempotency_key":%q%s}}`, r.ctx.GoalID, revision, key, more)
}

// command is run_command with the given phases.
func (r *real) command(phases string) string {
	wc := ""
	if phases != "" {
		wc = `,"_wc":{"control":{` + phases + `}}`
	}
	return `{"project":"` + r.ctx.Project + `","executable":"make","args":["test"]` + wc + `}`
}
