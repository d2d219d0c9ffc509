package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
	"github.com/airlock-host/airlock/plugins/internal/proc"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// cleanTime is how long a Create that failed may take to remove what it made.
const cleanTime = 10 * time.Second

// lookPause is the pause between two looks for the agent's socket.
const lookPause = 300 * time.Microsecond

// Create makes a cell.
func (d *Driver) Create(ctx context.Context, req *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	spec := req.GetSpec()
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	release, err := d.cells.take(ctx, spec.GetCellId())
	if err != nil {
		return nil, err
	}
	defer release()

	old, err := in.load(spec.GetCellId())
	switch {
	case errors.Is(err, errNoRecord):
		// A group without a record is what is left of a cell whose record was
		// lost; nobody can own it.
		if g := in.groups.Find(spec.GetCellId()); g != nil {
			if err := d.clean(ctx, in, in.blank(spec.GetCellId())); err != nil {
				return nil, plugin.Unavailable("cannot remove what is left of an older cell: %v", err)
			}
		}
	case err != nil:
		return nil, err
	case old.Ready:
		return d.again(old, spec)
	default:
		// An earlier Create was interrupted, and nobody was told of its cell.
		if err := d.clean(ctx, in, old); err != nil {
			return nil, plugin.Unavailable("cannot remove what an interrupted start has left: %v", err)
		}
	}
	r, err := d.make(ctx, in, spec)
	if err != nil {
		return nil, err
	}
	cell, err := r.cell()
	return &pluginv1.CreateResponse{Cell: cell}, err
}

// again answers a Create of a cell that exists.
func (d *Driver) again(r *record, spec *pluginv1.CellSpec) (*pluginv1.CreateResponse, error) {
	if r.Incarnation != spec.GetIncarnation() {
		return nil, plugin.FailedPrecondition("cell %s exists with incarnation %d", r.CellID, r.Incarnation)
	}
	alive, err := proc.Alive(r.Process)
	if err != nil {
		return nil, err
	}
	if !alive {
		return nil, plugin.FailedPrecondition("cell %s has ended; destroy it, and make it with a higher incarnation", r.CellID)
	}
	cell, err := r.cell()
	return &pluginv1.CreateResponse{Cell: cell}, err
}

// make does what Create promises, or leaves nothing. The cell's lock is held.
func (d *Driver) make(ctx context.Context, in *instance, spec *pluginv1.CellSpec) (made *record, err error) {
	facts, err := in.facts(spec)
	if err != nil {
		return nil, err
	}
	image, err := d.images.open(spec.GetAgentBinary(), spec.GetAgentSha256())
	if err != nil {
		return nil, err
	}
	r := &record{Labels: spec.GetLabels(), handle: handle{
		V: recordVersion, CellID: spec.GetCellId(), Incarnation: spec.GetIncarnation(), HostID: spec.GetHostId(),
		Level: in.level, Link: filepath.Join(spec.GetLinkDir(), "link.sock"), StartedAt: d.now().UTC(),
	}}
	if r.HostID == "" {
		r.HostID = in.hostID
	}
	defer func() {
		if err == nil {
			return
		}
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		if e := d.clean(undo, in, r); e != nil {
			d.log.Error("a cell that could not be started could not be removed either", "cell", r.CellID, "error", e)
		}
	}()
	// The record comes before everything that it would have to find again.
	if err := in.open(r); err != nil {
		return nil, plugin.Unavailable("%v", err)
	}
	if err := os.Remove(r.Link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, plugin.FailedPrecondition("an older socket is in the way: %v", err)
	}
	res := spec.GetResources()
	group, by, err := in.groups.Create(r.CellID, cgroup.Limits{CPU: res.GetCpu(), Memory: res.GetMemoryBytes(), Pids: res.GetPids()})
	if err != nil {
		return nil, plugin.Unavailable("control groups: %v", err)
	}
	r.Groups = group
	if in.level == levelNone {
		if r.Public, err = publicDir(); err != nil {
			return nil, plugin.Unavailable("public directory: %v", err)
		}
	}
	for name, how := range by {
		facts.Limits[name] = how
	}
	s := in.startOf(spec, r, facts)
	s.image, s.secret = image, spec.GetLinkSecret()
	s.log = filepath.Join(in.cellDir(r.CellID), "agent.log")
	if err := d.run(ctx, in, r, facts, s); err != nil {
		return nil, asStart(ctx, err, s.log)
	}
	return r, nil
}

// publicPrefix begins the name of a plain cell's public directory.
const publicPrefix = "airlock-cell-"

// publicDir makes the directory in which a plain cell's workload finds the
// agent's ask socket. Its path must be short and open to any user.
func publicDir() (string, error) {
	dir, err := os.MkdirTemp("", publicPrefix)
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// run starts the agent and waits for its socket.
func (d *Driver) run(ctx context.Context, in *instance, r *record, facts *pluginv1.CellFacts, s start) error {
	c, err := d.launch(s)
	if err != nil {
		return err
	}
	defer c.release()
	d.watchChild(in, r.key(), c)
	if r.Process, err = proc.Identify(c.pid); err != nil {
		return fmt.Errorf("the process for the cell ended early: %w", err)
	}
	if err := in.save(r); err != nil {
		return err
	}
	report, err := c.report(ctx)
	if err != nil {
		return err
	}
	r.PidNS = report.PidNS
	facts.Confinement = append(facts.Confinement, report.Confinement...)
	if note := s.namespaces(); note != "" {
		facts.Confinement = append(facts.Confinement, note)
	}
	if err := r.setFacts(facts); err != nil {
		return err
	}
	if err := c.proceed(ctx); err != nil {
		return err
	}
	if err := waitSocket(ctx, r.Link, c.done); err != nil {
		return err
	}
	r.Ready = true
	d.records.Lock()
	defer d.records.Unlock()
	return in.save(r)
}

// waitSocket returns when somebody listens on the agent's socket.
func waitSocket(ctx context.Context, link string, ended <-chan struct{}) error {
	dir, err := unix.Open(filepath.Dir(link), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("link directory: %w", err)
	}
	defer unix.Close(dir)
	// By descriptor, since the path may be longer than a socket's name can be.
	name := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(link)
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		var st unix.Stat_t // far cheaper than a dial, and the socket appears only once it accepts
		if unix.Fstatat(dir, filepath.Base(link), &st, 0) == nil {
			if conn, err := net.Dial("unix", name); err == nil {
				return conn.Close()
			}
		}
		select {
		case <-tick.C:
		case <-ended:
			return errors.New("the cell agent ended before it listened")
		case <-ctx.Done():
			return fmt.Errorf("the cell agent does not listen: %w", ctx.Err())
		}
	}
}

// asStart gives an error of a start its code.
func asStart(ctx context.Context, err error, log string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("start of the cell: %w", errors.Join(ctx.Err(), err))
	}
	text := err.Error()
	if said := tail(log); said != "" {
		text += "; it said: " + said
	}
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EMFILE):
		return plugin.ResourceExhausted("start of the cell: %s", text)
	case strings.Contains(text, "read-only in the cell"):
		return plugin.FailedPrecondition("start of the cell: %s", text)
	}
	return plugin.Unavailable("start of the cell: %s", text)
}

// goos and goarch of every cell here are the machine's.
const (
	goos   = runtime.GOOS
	goarch = runtime.GOARCH
)
