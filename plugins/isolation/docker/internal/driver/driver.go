package driver

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	hclog "github.com/hashicorp/go-hclog"

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
	agents  agents
	cells   locks
	pulls   pulls
	current atomic.Pointer[instance] // nil: not configured

	mu   sync.Mutex
	stop func() // ends the watch of the engine; nil: none runs
}

// New returns a driver; now is its clock.
func New(log hclog.Logger, now func() time.Time) *Driver {
	return &Driver{log: log, now: now}
}

// instance is what one Configure has made; it does not change, but for the
// engine's connection and what is known of it.
type instance struct {
	config   Config
	label    string // of the instance in the configuration
	hostID   string
	uid, gid uint32 // of config.User; 0 = none
	seccomp  string // profile, empty = the engine's own
	engine   *engine
}

// Configure takes a configuration; every change is live, and cells that exist
// keep what they were made with. An engine that is away is no error.
func (d *Driver) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	in := &instance{label: req.GetInstance(), hostID: req.GetHostId()}
	if err := plugin.DecodeConfig(req.GetConfigJson(), &in.config); err != nil {
		return err
	}
	if bad := errorsOf(in.config.check()); bad != "" {
		return plugin.InvalidArgument("%s", bad)
	}
	socket, err := socketOf(in.config.Endpoint)
	if err != nil {
		return plugin.InvalidArgument("endpoint: %v", err)
	}
	if in.uid, in.gid, err = in.config.user(); err != nil {
		return plugin.InvalidArgument("user: %v", err)
	}
	if in.seccomp, err = in.config.seccomp(); err != nil {
		return plugin.InvalidArgument("seccomp: %v", err)
	}
	if in.engine, err = newEngine(socket); err != nil {
		return plugin.InvalidArgument("endpoint: %v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil {
		d.stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	d.current.Store(in)
	d.Health().Unavailable("the engine at "+socket+" has not answered yet", nil)
	go func() {
		defer close(done)
		d.watch(ctx, in)
	}()
	d.stop = func() { cancel(); <-done; in.engine.close() }
	return nil
}

// errorsOf joins what makes a configuration unusable.
func errorsOf(found []*pluginv1.Diagnostic) string {
	var out []string
	for _, f := range found {
		if f.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR {
			out = append(out, f.GetSummary()+": "+f.GetDetail())
		}
	}
	return strings.Join(out, "; ")
}

// Shutdown stops watching the engine. Cells are not touched.
func (d *Driver) Shutdown(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil {
		d.stop()
		d.stop = nil
	}
	return nil
}

func (d *Driver) configured() (*instance, error) {
	if in := d.current.Load(); in != nil {
		return in, nil
	}
	return nil, plugin.FailedPrecondition("the instance is not configured yet")
}

// mounts lists the configured ones, by target.
func (in *instance) mounts() (out []bind) {
	for _, target := range slices.Sorted(maps.Keys(in.config.Mounts)) {
		out = append(out, bind{source: in.config.Mounts[target], target: filepath.Clean(target), readOnly: true})
	}
	return out
}

// Where the driver's own things are in a cell.
const (
	cellDir       = "/run/airlock"
	cellLinkDir   = cellDir + "/link" // the link directory
	cellPublicDir = cellDir + "/public"
	cellAgent     = cellDir + "/airlock-cell"
	// In the link directory, until the agent has read it.
	secretFile = "secret"
	linkSocket = "link.sock"
)

// removeLink takes away what a cell leaves in its link directory.
func removeLink(dir string) error {
	for _, name := range []string{linkSocket, "." + linkSocket, secretFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove the cell's %s: %w", name, err)
		}
	}
	return nil
}
