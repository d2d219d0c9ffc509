package driver

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	hclog "github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/kvm"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Driver is the isolation driver.
type Driver struct {
	plugin.Defaults
	isolation.Unimplemented

	log     hclog.Logger
	now     func() time.Time
	probe   func() kvm.Result
	current atomic.Pointer[instance] // nil: not configured
	agents  images
	initrds initrds
	blanks  blanks
	cells   locks
	booting chan struct{}          // holds a token for each VM that boots
	noKVM   atomic.Pointer[string] // why KVM, which the probe found good, is not used any more

	// records is held while a finished record is read, changed and written.
	records sync.Mutex

	mu       sync.Mutex
	watched  map[cellKey]chan struct{} // closed when the cell's end is written down
	stopping map[cellKey]int           // how many calls are ending the cell on purpose
}

type cellKey struct {
	id          string
	incarnation uint64
}

// New returns a driver; now is its clock, probe finds out whether KVM works.
func New(log hclog.Logger, now func() time.Time, probe func() kvm.Result) *Driver {
	return &Driver{
		log: log, now: now, probe: probe, booting: make(chan struct{}, max(2, runtime.NumCPU())),
		watched: map[cellKey]chan struct{}{}, stopping: map[cellKey]int{},
	}
}

// instance is what one Configure has made; it does not change.
type instance struct {
	config Config
	hostID string
	state  string // state directory
	user   ids
	memory uint64
	disk   uint64
	kvm    kvm.Result
	groups *cgroup.Parent

	// engine, kernel and root are nil when trouble says why no cell can be made.
	engine  *engine
	kernel  *kernelImage
	root    *rootImage
	trouble string
}

// Configure takes a configuration; every change is live, and cells that exist
// keep what they were made with.
func (d *Driver) Configure(ctx context.Context, req *pluginv1.ConfigureRequest) error {
	in := &instance{hostID: req.GetHostId(), state: req.GetStateDir()}
	if err := plugin.DecodeConfig(req.GetConfigJson(), &in.config); err != nil {
		return err
	}
	if !filepath.IsAbs(in.state) {
		return plugin.InvalidArgument("state_dir %q is not absolute", in.state)
	}
	if err := os.MkdirAll(in.cellsDir(), 0o700); err != nil {
		return plugin.Unavailable("state directory: %v", err)
	}
	var err error
	if in.memory, err = parseSize(in.config.Memory); err != nil {
		return plugin.InvalidArgument("memory: %v", err)
	}
	if in.disk, err = parseSize(in.config.Disk); err != nil {
		return plugin.InvalidArgument("disk: %v", err)
	}
	in.user = ids{uint32(os.Geteuid()), uint32(os.Getegid())}
	if os.Geteuid() == 0 {
		if in.user, err = lookup(in.config.User); err != nil {
			return plugin.InvalidArgument("%v", err)
		}
	}
	layout, err := cgroup.Detect()
	if err != nil {
		d.log.Warn("cannot read the machine's control groups", "error", err)
	}
	in.groups = cgroup.NewParent(layout, groupParent(in.config.CgroupParent, in.hostID, req.GetInstance()))
	in.look(ctx, d.probe)
	d.current.Store(in)
	d.report(in)
	return d.adoptAll(in)
}

// look finds the engine and the images, and proves the accelerator. What is
// missing is no error of Configure: it may come.
func (in *instance) look(ctx context.Context, probe func() kvm.Result) {
	var err error
	if in.engine, err = findEngine(ctx, in.config); err != nil {
		in.trouble = err.Error()
		return
	}
	if in.kernel, err = loadKernel(in.config.kernel()); err != nil {
		in.trouble = "the kernel: " + err.Error()
		return
	}
	if in.root, err = loadRoot(in.config.Image); err != nil {
		in.trouble = "the image: " + err.Error()
		return
	}
	if in.config.Accel == accelTCG {
		in.kvm = kvm.Result{State: kvm.Absent, Detail: "accel = \"tcg\""}
		return
	}
	in.kvm = kvm.Cached(filepath.Join(in.state, "kvm.json"), bootID(), probe)
	if in.config.Accel == accelKVM && !in.kvm.Working() {
		in.trouble = "accel = \"kvm\", and KVM is " + string(in.kvm.State) + ": " + in.kvm.Detail
	}
}

// Shutdown removes the control groups that no cell is left in.
func (d *Driver) Shutdown(context.Context) error {
	if in := d.current.Load(); in != nil {
		in.groups.Tidy()
	}
	return nil
}

func (d *Driver) configured() (*instance, error) {
	if in := d.current.Load(); in != nil {
		return in, nil
	}
	return nil, plugin.FailedPrecondition("the instance is not configured yet")
}

func (in *instance) cellsDir() string         { return filepath.Join(in.state, "cells") }
func (in *instance) cellDir(id string) string { return filepath.Join(in.cellsDir(), id) }
func (in *instance) pointsDir() string        { return filepath.Join(in.state, "checkpoints") }

// locks is one lock per cell, taken with a deadline.
type locks struct {
	mu sync.Mutex
	m  map[string]*lock
}

type lock struct {
	held chan struct{} // holds one token while taken
	uses int
}

func (l *locks) take(ctx context.Context, id string) (release func(), err error) {
	l.mu.Lock()
	if l.m == nil {
		l.m = map[string]*lock{}
	}
	e := l.m[id]
	if e == nil {
		e = &lock{held: make(chan struct{}, 1)}
		l.m[id] = e
	}
	e.uses++
	l.mu.Unlock()
	drop := func() {
		l.mu.Lock()
		if e.uses--; e.uses == 0 {
			delete(l.m, id)
		}
		l.mu.Unlock()
	}
	select {
	case e.held <- struct{}{}:
	case <-ctx.Done():
		drop()
		return nil, ctx.Err()
	}
	release = func() { <-e.held; drop() }
	if err := ctx.Err(); err != nil { // given up meanwhile: whoever came first may count on it
		release()
		return nil, err
	}
	return release, nil
}
