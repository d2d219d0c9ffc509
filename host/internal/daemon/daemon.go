// Package daemon wires a host together out of its parts and runs it. It may
// import everything; nothing imports it but host/cmd/airlock.
//
// The one idea: the order. Store before plugins, plugins before missions,
// missions before listeners, listeners before the registration; and the
// reverse at the end.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/docs"
	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/executor"
	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/manual"
	"github.com/airlock-host/airlock/host/internal/mcp"
	"github.com/airlock-host/airlock/host/internal/plugins"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/store/mirror"
	"github.com/airlock-host/airlock/host/internal/telemetry"
	"github.com/airlock-host/airlock/host/internal/ui"
	"github.com/airlock-host/airlock/host/internal/version"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

const (
	gcPercent    = 50              // an idle host is small; see host_idle_rss_mb
	flushTimeout = 5 * time.Second // rulings 5
	grace        = 2 * time.Second // for requests that run at the end
	endTimeout   = 20 * time.Second
)

// Options of a host.
type Options struct {
	Config    *config.Config
	CellAgent string // path of airlock-cell; empty: beside this program
	Log       hclog.Logger
	// Up is called once the host listens and its missions are taken up.
	Up func(Addresses)
	// EndMissions aborts every mission at the end instead of suspending it: its
	// data goes with the host (airlock dev).
	EndMissions bool
	// Load reads the configuration again, from Path; nil: this host cannot. Hangup
	// asks for it beside the API.
	Load   Loader
	Path   string
	Hangup <-chan os.Signal
	// Handed is what the process before has handed over; nil: nothing.
	Handed *Handover
	// Upgrade asks the host to hand itself over to Program. Run then calls LetGo,
	// once it has, and comes back.
	Upgrade <-chan os.Signal
	Program string
	LetGo   func(*Succession)
}

// Addresses are where a host can be reached.
type Addresses struct {
	REST   string // base URL
	WS     string
	Socket string // operator socket
}

// host is a host that is being put together or runs.
type host struct {
	opts        Options
	cfg         *config.Config
	log         hclog.Logger
	store       *store.Store
	heads       *heads.Log
	workflowKey []byte // of proofs
	sealKey     []byte
	sink        *heads.Sink // nil: there is no second place for heads
	run         *runDir
	trouble     trouble          // what status says of the start
	fail        failpoint.Hook   // nil, but in tests
	clock       func() time.Time // nil, but in tests: time.Now
	catalog     *plugins.Catalog
	cells       *cells.Manager
	dialer      *dialer
	engine      *engine.Engine
	mcp         *mcp.Server
	exec        *executor.Executor
	id          string
	metrics     *prometheus.Registry

	server    *api.Server
	counted   *telemetry.Metrics
	traces    *telemetry.Exporter // nil: no traces
	operators atomic.Pointer[api.Operators]
	rules     *gate.Rules // that the engine begins with
	room      http.Handler
	pages     http.Handler
	now       running
	took      laps // of a host that was taken over
	// background is what runs beside the listeners, until life ends.
	background sync.WaitGroup
	life       context.Context
	mirror     *mirror.Mirror // set before the engine starts; nil: missions.json is not kept
}

// Run runs a host until the context ends; then every mission is suspended and
// what was not delivered is flushed for at most five seconds.
func Run(ctx context.Context, opts Options) (err error) {
	debug.SetGCPercent(gcPercent)
	noCoreFiles()
	h := &host{opts: opts, cfg: opts.Config, log: opts.Log, metrics: prometheus.NewRegistry()}
	h.now.cfg.Store(opts.Config)
	h.now.approve.Store(h.cfg.Orchestrator != nil && h.cfg.Orchestrator.Approvals == "answer")
	h.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.loadFailpoints(); err != nil {
		return err
	}
	if opts.Handed.takesOver() {
		return h.takeOver(ctx)
	}
	if err := h.openStore(); err != nil {
		return err
	}
	h.startPlugins(ctx)
	if err := h.assemble(); err != nil {
		return err
	}
	return h.begin(ctx)
}

// begin takes the missions up, listens and serves.
func (h *host) begin(ctx context.Context) error {
	if err := h.newEngine(); err != nil {
		return err
	}
	if err := h.startEngine(ctx); err != nil {
		return err
	}
	l, err := h.open()
	if err != nil {
		return err
	}
	return h.serve(ctx, l)
}

// openStore makes the directories, the identity and the store.
func (h *host) openStore() error {
	if err := os.MkdirAll(h.cfg.DataDir, 0o711); err != nil {
		return fmt.Errorf("make %s: %w", h.cfg.DataDir, err)
	}
	if o := h.cfg.Orchestrator; o != nil {
		if _, err := executor.AdoptIdentity(h.cfg.DataDir, o.LegacyDir); err != nil {
			return err
		}
	}
	if err := h.openHeads(); err != nil {
		return err
	}
	var err error
	if h.store, err = store.Open(store.Options{Dir: h.cfg.DataDir, Log: h.log.Named("store"), Heads: h.heads, Hook: h.fail}); err != nil {
		return err
	}
	// Before anything in it is touched, plugins' sockets above all.
	if h.run, err = takeRunDir(h.cfg.RunDir); err != nil {
		return err
	}
	if err := h.findLosses(); err != nil {
		return err
	}
	h.id, err = executor.LoadIdentity(h.cfg.DataDir)
	return err
}

// openHeads opens the file of trusted heads.
func (h *host) openHeads() error {
	key, err := h.loadKey()
	if err != nil {
		return err
	}
	head := h.cfg.Governance.Head
	h.heads, err = heads.Open(heads.Options{File: head.File, Key: key, Log: h.log.Named("heads"), Also: h.openSink(head.URL),
		Now: h.clock, Hook: h.fail})
	return err
}

// loadFailpoints reads what is to fail on purpose, in tests.
func (h *host) loadFailpoints() error {
	points, err := failpoint.New(os.Getenv(failpoint.File))
	if err != nil {
		return err
	}
	if h.fail, h.clock = points.Hook(), points.Now(); h.fail != nil {
		h.log.Warn("this host fails on purpose, for a test", "orders", os.Getenv(failpoint.File))
	}
	return nil
}

// loadKey reads the host's key, and derives others from it.
func (h *host) loadKey() (heads.Key, error) {
	key, err := heads.LoadOrCreateKey(h.cfg.Governance.Head.KeyFile)
	if err == nil {
		h.workflowKey, h.sealKey = key.Derive("airlock.workflow.v1"), key.Derive("airlock.pending.v1")
	}
	return key, err
}

// startPlugins launches every instance; those that do not come up are
// quarantined with their reason.
func (h *host) startPlugins(ctx context.Context) {
	h.catalog = plugins.New(plugins.Options{
		Dir: h.cfg.Plugins.Dir, LockFile: h.cfg.Plugins.Lock,
		StateDir: filepath.Join(h.cfg.DataDir, "plugins"), RunDir: filepath.Join(h.cfg.RunDir, "plugins"),
		HostID: h.id, HostVersion: version.Version, Log: h.log.Named("plugins"),
		Decode: func(i config.Instance, schema *pluginv1.ConfigSchema) ([]byte, hcl.Diagnostics) {
			return config.DecodePlugin(i, schema, nil)
		},
		MapDiagnostics: config.MapDiagnostics,
		Beside:         h.opts.Handed.takesOver(),
	})
	h.catalog.Start(ctx, instances(h.cfg))
	h.now.settings = h.cfg.Settings() // the plugins have said by now what may be shown
}

// assemble makes what needs plugins and no store.
func (h *host) assemble() error {
	agent := h.opts.CellAgent
	if agent == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		agent = filepath.Join(filepath.Dir(exe), "airlock-cell")
	}
	uids := h.cfg.UIDRange
	if os.Geteuid() != 0 {
		uids = [2]uint32{} // an ordinary user has no uids to give
	}
	var err error
	h.cells, err = cells.New(cells.Options{DataDir: h.cfg.DataDir, RunDir: h.cfg.RunDir, HostID: h.id, UIDs: uids,
		AgentPath: agent, Drivers: h.catalog})
	if err != nil {
		return err
	}
	if h.rules, err = compileRules(h.cfg, h.cfg.DataDir); err != nil {
		return err
	}
	operators, err := api.LoadOperators(h.cfg.Operators, os.Getenv)
	if err != nil {
		return err
	}
	h.operators.Store(operators)
	if h.cfg.TLS != nil {
		certs, err := api.LoadCertificates(h.cfg.TLS)
		if err != nil {
			return err
		}
		h.now.tls.Store(certs)
	}
	if h.room, err = ui.New(version.Version); err != nil {
		return err
	}
	h.pages, err = manual.New(docs.Pages, version.Version)
	return err
}

// newEngine makes the engine and what goes with it; nothing runs yet.
func (h *host) newEngine() (err error) {
	if h.dialer, err = h.newDialer(); err != nil {
		return err
	}
	if err := h.newTelemetry(); err != nil {
		return err
	}
	beside := filepath.Dir(h.cfg.Governance.Head.File)
	h.engine = engine.New(engine.Options{Config: h.cfg, Rules: h.rules, HandedOver: h.opts.Handed.takesOver(), SealKey: h.sealKey, WorkflowKey: h.workflowKey,
		StopsDir: filepath.Join(beside, "stops"), SpoolDir: filepath.Join(beside, "spool"), Dialer: h.dialer, HostID: h.id, BootID: bootID(), Store: h.store,
		Plugins: h.catalog, Cells: h.cells, Log: h.log.Named("engine"), Changed: h.mirrorMission, Committed: h.committed,
		Now: h.clock, Hook: h.fail})
	return h.newMCP()
}

// startEngine takes up the missions of the host's earlier life.
func (h *host) startEngine(ctx context.Context) error {
	h.startMirror(ctx)
	return h.engine.Start(ctx)
}

// bootID tells one boot of the machine from another.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// open makes the listeners and what answers there; nothing is accepted yet.
func (h *host) open() (*listeners, error) {
	l, err := h.listen()
	if err != nil {
		return nil, err
	}
	if err = h.newExecutor(l); err == nil {
		h.server, err = h.newAPI(l)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// serve serves, registers, and comes back when the context has ended and the
// missions are suspended, or when another process has taken the host over.
func (h *host) serve(ctx context.Context, l *listeners) error {
	defer l.close()
	// The API and the link outlive the context: the suspended events leave
	// through them.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer h.background.Wait()
	defer end()
	h.life = life
	served := make(chan error, 1)
	go func() { served <- h.server.Serve(life, l.forAPI(), grace) }()
	linked := make(chan struct{})
	go func() { defer close(linked); h.exec.Run(life) }()
	if h.opts.Load != nil {
		h.background.Go(h.watchHangup)
	}
	if h.traces != nil {
		h.background.Go(func() { h.traces.Run(life) })
	}
	h.retain(life)
	h.opts.Handed.tellUp()
	if h.took.lap("up"); len(h.took.at) > 0 {
		h.log.Info("the host was taken over", h.took.at...)
	}
	if h.opts.Up != nil {
		h.opts.Up(l.addresses)
	}
	next, err := h.untilEnd(ctx, l, served)
	if next != nil {
		return h.letGo(l, next, end, linked, served)
	}
	err = errors.Join(err, h.suspend())
	end()
	<-linked
	return errors.Join(err, <-served)
}

// suspend is the planned shutdown.
func (h *host) suspend() error {
	if h.opts.EndMissions {
		h.endMissions()
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	if err := h.engine.Suspend(ctx, true); err != nil {
		h.log.Error("not every mission could be suspended; they are taken up at the next start as after a crash", "error", err)
	}
	cancel()
	ctx, cancel = context.WithTimeout(context.Background(), flushTimeout) // writing cells to disk takes longer
	defer cancel()
	if err := h.exec.Flush(ctx); err != nil {
		h.log.Warn("some events could not be delivered; they are sent at the next start", "error", err)
	}
	return nil
}

// endMissions aborts what runs and waits until its cells are gone.
func (h *host) endMissions() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := h.engine.AbortAll(ctx, "airlock", "the host ends, and its data with it"); err != nil {
		h.log.Error("not every mission could be ended", "error", err)
	}
}

func (h *host) newAPI(l *listeners) (*api.Server, error) {
	opts := api.Options{
		Version: version.Version, Engine: h.engine, Sessions: h.engine, Events: events{h.store}, Plugins: h.catalogAPI(),
		Ready: h.ready, Operators: h.operators.Load(), Log: h.log.Named("api"),
		Hosts: []string{h.cfg.Listen.Advertise}, RESTPort: l.restPort,
		OrchestratorStatus: handler(h.exec.StatusHandler), Reconnect: handler(h.exec.ReconnectHandler),
		Dispatch: handler(h.exec.Dispatch), MetricsOpen: h.cfg.Telemetry.MetricsOpen,
		MCP:   h.mcp.HTTP(),
		Sign:  func(head journal.NewHead) (record.Record, record.Key) { return h.heads.Sign(head) },
		Drain: h.drain, Config: h.showConfig, RESTBase: l.restBase(h.cfg.Listen.Advertise),
	}
	if o := h.cfg.Orchestrator; o != nil && o.Sandbox && o.SandboxHITL {
		opts.OpenAnswers = o.Actor
	}
	if h.opts.Load != nil {
		opts.Reload = func(ctx context.Context) (any, error) { return h.reload(ctx) }
	}
	opts.UI, opts.Docs = h.room, h.pages
	if h.cfg.Telemetry.Prometheus {
		opts.Metrics, opts.Register = h.metrics, h.metrics
	}
	return api.New(opts)
}

func (h *host) newExecutor(l *listeners) error {
	rest, ws, err := executor.Endpoints(h.cfg.Listen.Advertise, l.rest.Addr().String(), l.ws.Addr().String(), h.cfg.TLS != nil)
	if err != nil {
		return err
	}
	opt := executor.Options{Version: version.Version, ID: h.id, REST: rest, WS: ws, Token: h.opts.Handed.token(), Now: h.clock, Engine: linked{h.engine, &h.now.approve}, Outbox: h.store, Logger: h.log.Named("executor")}
	if o := h.cfg.Orchestrator; o != nil {
		opt.Endpoint, opt.Name = o.Endpoint, executor.RegisteredName(o.Name, h.cfg.Name)
		opt.Actor, opt.Sandbox = o.Actor, o.Sandbox
	}
	h.exec = executor.New(opt)
	return nil
}

// drain takes no new missions, waits for those that run, and tells the
// orchestrator that this executor is gone.
func (h *host) drain(ctx context.Context, deadline time.Duration) error {
	h.engine.Drain()
	if deadline > 0 {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		if err := h.engine.Idle(ctx); err != nil {
			return fmt.Errorf("missions still run: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := h.exec.Flush(ctx); err != nil {
		h.log.Warn("some events could not be delivered", "error", err)
	}
	return h.exec.Deregister(ctx)
}

// close ends what was begun, in reverse.
func (h *host) close() error {
	if h.engine != nil {
		h.engine.Close()
	}
	h.closeGates()
	if h.catalog != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		h.catalog.Close(ctx)
		cancel()
	}
	var err error
	if h.mirror != nil {
		err = h.mirror.Close()
	}
	err = errors.Join(err, h.closeStore(), h.letGoOfFiles())
	h.closeSink()
	return err
}

// closeGates ends what cells reach.
func (h *host) closeGates() {
	if h.mcp != nil {
		h.mcp.Close()
	}
	if h.dialer != nil {
		h.dialer.gateway.Close()
	}
	h.mcp, h.dialer = nil, nil
}

// letGoOfFiles gives back what only one process can have beside the store: the
// heads and the run directory. A second time it does nothing.
func (h *host) letGoOfFiles() error {
	var errs []error
	if h.heads != nil {
		errs = append(errs, h.heads.Close())
	}
	if h.run != nil {
		errs = append(errs, h.run.release())
	}
	h.heads, h.run = nil, nil
	return errors.Join(errs...)
}

func (h *host) closeStore() error {
	if h.store == nil {
		return nil
	}
	return h.store.Close()
}
