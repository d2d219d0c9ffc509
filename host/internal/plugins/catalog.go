// Package plugins is the catalog of plugin processes: it finds executables,
// checks them, starts them, watches over them and hands out clients that stay
// good when a process is replaced. It imports the sdk, proto and config and
// nothing else of the host.
//
// The one idea: a plugin is disposable and never trusted. Whatever one does
// (hang, crash, flood, lie), its own instance becomes unavailable with a reason
// that an operator understands, and nothing else changes.
package plugins

import (
	"context"
	"os"
	"sync"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Options are what a catalog needs.
type Options struct {
	Dir      string // where the executables are
	LockFile string // enforced when the file exists; empty: no lock
	StateDir string // parent of every instance's state directory
	RunDir   string // the catalog's own, for sockets; a short path is best
	// HostID and HostVersion go into Configure.
	HostID      string
	HostVersion string
	Log         hclog.Logger

	// Decode turns an instance's HCL body into the JSON object that its schema
	// asks for. Errors quarantine the instance.
	Decode func(config.Instance, *pluginv1.ConfigSchema) (configJSON []byte, diags hcl.Diagnostics)
	// MapDiagnostics gives a plugin's diagnostics their place in the HCL file.
	MapDiagnostics func(config.Instance, []*pluginv1.Diagnostic) hcl.Diagnostics

	// Env is the whole environment of a plugin beside go-plugin's own
	// variables. Nil: PATH of the host, and LANG=C.UTF-8.
	Env []string
	// UID chooses the user of a runtime or revoker plugin when the host is
	// root; nil, or ok = false: the host's own.
	UID func(config.Instance) (uid, gid uint32, ok bool)
	// RequireLock says which instances may not run without a lock file. Nil:
	// none.
	RequireLock func(config.Instance) bool

	// Beside: the catalog of the process before still runs in the same directories.
	Beside bool

	// Deadlines that are zero take their defaults.
	Deadlines Deadlines
}

// Deadlines bound everything that a plugin is asked to do.
type Deadlines struct {
	Start     time.Duration // until the handshake line: 30 s, for a loaded machine
	Describe  time.Duration // 5 s, for a loaded machine; the contract says 1 s
	Configure time.Duration // Validate and Configure, each: 30 s
	Health    time.Duration // until the first health message: 3 s
	Shutdown  time.Duration // 2 s, then the process is killed
	Call      time.Duration // a call whose context has no deadline: 30 s
	Wait      time.Duration // a call waits so long for a process to be back: 2 s
	Drain     time.Duration // calls under way at a reload may take so long: 10 s
	Probe     time.Duration // how often a sign of life is asked for: 5 s
	Hold      time.Duration // an instance that missed a deadline is unavailable for at least: 5 s
	Still     time.Duration // a process that was stopped by a signal is replaced after: 2 s
	Deaf      time.Duration // one that gives no sign of life and wants no processor either is killed after: 15 s
	Hang      time.Duration // one that gives no sign of life, however busy, after: 60 s

	// MaxRestarts within RestartWindow make a crash loop (5 within 60 s).
	MaxRestarts   int
	RestartWindow time.Duration
	// Requeue is how long a quarantine lasts whose cause may pass (a time-out,
	// a crash loop); it doubles up to ten times as much: 60 s.
	Requeue time.Duration
}

func (d Deadlines) filled() Deadlines {
	set := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	set(&d.Start, 30*time.Second)
	set(&d.Describe, 5*time.Second)
	set(&d.Configure, 30*time.Second)
	set(&d.Health, 3*time.Second)
	set(&d.Shutdown, 2*time.Second)
	set(&d.Call, 30*time.Second)
	set(&d.Wait, 2*time.Second)
	set(&d.Drain, 10*time.Second)
	set(&d.Probe, 5*time.Second)
	set(&d.Hold, 5*time.Second)
	set(&d.Still, 2*time.Second)
	set(&d.Deaf, 15*time.Second)
	set(&d.Hang, time.Minute)
	set(&d.RestartWindow, time.Minute)
	set(&d.Requeue, time.Minute)
	if d.MaxRestarts == 0 {
		d.MaxRestarts = 5
	}
	return d
}

// Catalog holds the plugin instances of a host.
type Catalog struct {
	options   Options
	deadlines Deadlines
	log       hclog.Logger
	env       []string
	forker    *forker
	images    images

	prepare      sync.Once
	prepareErr   error
	socketDir    string
	ownSocketDir bool // outside of RunDir, removed at Close

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	closing context.Context // ends with the patience of Close
	hurry   context.CancelFunc
	running sync.WaitGroup // one for each instance's supervisor and each process being ended

	mu        sync.Mutex
	instances []*instance // in config order
	changed   chan struct{}
	closed    bool
}

// New makes a catalog without instances. Close it.
func New(options Options) *Catalog {
	c := &Catalog{
		options: options, deadlines: options.Deadlines.filled(), log: options.Log,
		env: options.Env, forker: newForker(), changed: make(chan struct{}),
	}
	if c.log == nil {
		c.log = hclog.NewNullLogger()
	}
	if c.env == nil {
		c.env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.closing, c.hurry = context.WithCancel(context.Background())
	return c
}

// Start launches all instances at once and returns when each is usable or
// quarantined, or when ctx ends; what is not done by then goes on in the
// background. It never fails: Status says how each one is.
func (c *Catalog) Start(ctx context.Context, specs []config.Instance) {
	var settled []<-chan struct{}
	for _, spec := range specs {
		if i := c.add(spec); i != nil {
			settled = append(settled, i.settled)
		}
	}
	for _, done := range settled {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// add starts to supervise an instance; nil when the catalog is closed.
func (c *Catalog) add(spec config.Instance) *instance {
	c.prepare.Do(func() { c.prepareErr = c.prepareDirs() })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	i := newInstance(c, spec)
	c.instances = append(c.instances, i)
	c.running.Add(1)
	go i.supervise()
	return i
}

// Close ends every plugin: it is asked to tidy up, and killed after a moment
// or when ctx ends.
func (c *Catalog) Close(ctx context.Context) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	defer context.AfterFunc(ctx, c.hurry)()
	c.cancel()
	c.running.Wait()
	c.hurry()
	c.forker.close()
	if c.ownSocketDir {
		_ = os.RemoveAll(c.socketDir)
	}
	c.announce()
}

// Changed is closed at the next change of any instance.
func (c *Catalog) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *Catalog) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Catalog) all() []*instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*instance(nil), c.instances...)
}

func (c *Catalog) find(ref string) *instance {
	for _, i := range c.all() {
		if i.ref == ref {
			return i
		}
	}
	return nil
}
