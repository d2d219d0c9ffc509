package driver

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	hclog "github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
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
	current atomic.Pointer[instance] // nil: not configured
	images  images
	forker  forker
	cells   locks
	try     func(context.Context, *instance, level, bool) error // tryStart, but for tests

	// records is held while a finished record is read, changed and written.
	records sync.Mutex

	endAgain context.CancelFunc // ends probeAgain; under mu

	mu       sync.Mutex
	watched  map[cellKey]chan struct{} // closed when the cell's end is written down
	stopping map[cellKey]int           // how many calls are ending the cell on purpose
}

type cellKey struct {
	id          string
	incarnation uint64
}

// New returns a driver; now is its clock.
func New(log hclog.Logger, now func() time.Time) *Driver {
	d := &Driver{log: log, now: now, watched: map[cellKey]chan struct{}{}, stopping: map[cellKey]int{}}
	d.try = d.tryStart
	return d
}

// instance is what one Configure has made; it does not change. Another one takes
// its place when a probe that came to nothing is made again.
type instance struct {
	config   Config
	hostID   string
	state    string // state directory
	uid, gid uint32 // of config.User; 0 = none
	level    level
	levelWhy string // why not a better level
	groups   *cgroup.Parent
	// newGroups gives the groups as before anything was tried in them.
	newGroups func() *cgroup.Parent
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
	for _, dir := range []string{in.cellsDir(), in.scratchDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return plugin.Unavailable("state directory: %v", err)
		}
	}
	if in.config.User != nil {
		var err error
		if in.uid, in.gid, err = lookup(*in.config.User); err != nil {
			return plugin.InvalidArgument("%v", err)
		}
	}
	layout, err := cgroup.Detect()
	if err != nil {
		d.log.Warn("cannot read the machine's control groups", "error", err)
	}
	in.newGroups = func() *cgroup.Parent {
		return cgroup.NewParent(layout, groupParent(in.config.CgroupParent, in.hostID, req.GetInstance()))
	}
	in.groups = in.newGroups()
	sure := d.probe(ctx, in)
	d.current.Store(in)
	d.report(in)
	d.mu.Lock()
	if d.endAgain != nil {
		d.endAgain()
	}
	life, end := context.WithCancel(context.Background())
	d.endAgain = end
	d.mu.Unlock()
	if !sure {
		go d.probeAgain(life, in)
	}
	return d.adoptAll(in)
}

// Shutdown removes the control groups that no cell is left in.
func (d *Driver) Shutdown(context.Context) error {
	d.mu.Lock()
	if d.endAgain != nil {
		d.endAgain()
	}
	d.mu.Unlock()
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

// scratchDir is what every cell mounts its root on, each in a mount namespace
// of its own.
func (in *instance) scratchDir() string { return filepath.Join(in.state, "root") }

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
