package driver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
	"github.com/airlock-host/airlock/plugins/internal/proc"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/guest"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/helper"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// cleanTime is how long a Create that failed may take to remove what it made.
const cleanTime = 10 * time.Second

// Create makes a cell.
func (d *Driver) Create(ctx context.Context, req *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
	in, err := d.ready()
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
	old, err := d.makeRoom(ctx, in, spec.GetCellId())
	if err != nil {
		return nil, err
	}
	if old != nil {
		return d.again(old, spec)
	}
	r, err := d.make(ctx, in, spec, nil)
	if err != nil {
		return nil, err
	}
	cell, err := r.cell()
	return &pluginv1.CreateResponse{Cell: cell}, err
}

// ready is configured, with everything there that a VM needs.
func (d *Driver) ready() (*instance, error) {
	in, err := d.configured()
	if err == nil && in.trouble != "" {
		err = plugin.FailedPrecondition("no VM can be made: %s", in.trouble)
	}
	return in, err
}

// makeRoom removes what an interrupted start has left of a cell; a cell that is
// whole is answered. The cell's lock is held.
func (d *Driver) makeRoom(ctx context.Context, in *instance, id string) (*record, error) {
	old, err := in.load(id)
	switch {
	case errors.Is(err, errNoRecord):
		// A group without a record is what is left of a cell whose record was
		// lost; nobody can own it.
		if in.groups.Find(id) == nil {
			return nil, nil
		}
		old = in.blank(id)
	case err != nil:
		return nil, err
	case old.Ready:
		return old, nil
	}
	if err := d.clean(ctx, in, old); err != nil {
		return nil, plugin.Unavailable("cannot remove what an interrupted start has left: %v", err)
	}
	return nil, nil
}

// again answers a Create of a cell that exists.
func (d *Driver) again(r *record, spec *pluginv1.CellSpec) (*pluginv1.CreateResponse, error) {
	if r.Incarnation != spec.GetIncarnation() {
		return nil, plugin.FailedPrecondition("cell %s exists with incarnation %d", r.CellID, r.Incarnation)
	}
	alive, err := proc.Alive(r.VM)
	if err != nil {
		return nil, err
	}
	if !alive {
		return nil, plugin.FailedPrecondition("cell %s has ended; destroy it, and make it with a higher incarnation", r.CellID)
	}
	cell, err := r.cell()
	return &pluginv1.CreateResponse{Cell: cell}, err
}

// make does what Create and Restore promise, or leaves nothing. The cell's lock
// is held. from is the checkpoint to restore; nil = boot.
func (d *Driver) make(ctx context.Context, in *instance, spec *pluginv1.CellSpec, from *point) (made *record, err error) {
	r := &record{Labels: spec.GetLabels(), handle: handle{
		V: recordVersion, CellID: spec.GetCellId(), Incarnation: spec.GetIncarnation(), HostID: spec.GetHostId(),
		Link: filepath.Join(spec.GetLinkDir(), "link.sock"), StartedAt: d.now().UTC(),
	}}
	if r.HostID == "" {
		r.HostID = in.hostID
	}
	c := d.choose(in)
	if r.User, err = in.idsOf(spec); err != nil {
		return nil, err
	}
	if r.Size, err = in.sizeOf(spec); err != nil {
		return nil, err
	}
	facts, err := in.facts(spec, r.User, c)
	if err != nil {
		return nil, err
	}
	agent, err := d.agents.open(spec.GetAgentBinary(), spec.GetAgentSha256())
	if err != nil {
		return nil, err
	}
	r.Volumes = volumesOf(spec)
	r.Keys = in.keys(r, c, spec.GetAgentSha256())
	if from != nil {
		if err := from.fits(r); err != nil {
			return nil, err
		}
	}
	ramdisk, err := d.initrds.open(filepath.Join(in.state, "initrd"), in.kernel, agent, spec.GetAgentSha256())
	if err != nil {
		return nil, err
	}
	defer ramdisk.Close()
	v := &start{d: d, in: in, r: r, facts: facts, spec: spec, ramdisk: ramdisk, from: from}
	if from == nil {
		if v.ready, err = d.templateFor(ctx, in, v, c); err != nil {
			return nil, err
		}
	}
	free, err := d.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	err = v.run(ctx, c)
	if err != nil && v.ready != "" && ctx.Err() == nil {
		d.log.Warn("a VM could not begin with its template; it boots", "cell", r.CellID, "error", err)
		_ = os.Remove(v.ready)
		v.again()
		err = v.run(ctx, c)
	}
	if c.accel == accelKVM && from == nil && err != nil && ctx.Err() == nil && v.bootFailed {
		// The second line behind the probe: what it found good boots no VM.
		d.log.Warn("a VM does not boot under KVM; trying without", "cell", r.CellID, "error", err)
		if in.config.Accel == accelAuto {
			c = choice{accelTCG, "KVM runs code, but no VM boots with it: " + err.Error()}
			if v.facts, err = in.facts(spec, r.User, c); err != nil {
				return nil, err
			}
			v.again()
			r.Keys = in.keys(r, c, spec.GetAgentSha256())
			if err = v.run(ctx, c); err == nil {
				d.noKVM.Store(&c.reason)
				d.report(in)
			}
		}
	}
	if err != nil {
		return nil, asStart(ctx, err)
	}
	return r, nil
}

func volumesOf(spec *pluginv1.CellSpec) (out []volume) {
	for _, v := range spec.GetVolumes() {
		quota := v.GetQuotaBytes()
		if disk := spec.GetResources().GetDiskBytes(); disk > 0 && (quota == 0 || disk < quota) {
			quota = disk
		}
		out = append(out, volume{v.GetHostPath(), path.Clean(v.GetTarget()), v.GetReadOnly(), quota})
	}
	return out
}

// start is one try to start a VM.
type start struct {
	d       *Driver
	in      *instance
	r       *record
	facts   *pluginv1.CellFacts
	spec    *pluginv1.CellSpec
	ramdisk *os.File
	from    *point

	ready string // the template to begin with; empty = none
	bare  bool   // for a template: without helper and setup

	bootFailed bool
}

// again prepares another try.
func (v *start) again() {
	v.ready, v.r.VM, v.r.Helper, v.r.Groups = "", proc.ID{}, proc.ID{}, nil
}

// run starts the VM and waits until the cell agent in it runs. On an error
// nothing is left.
func (v *start) run(ctx context.Context, c choice) (err error) {
	d, in, r := v.d, v.in, v.r
	defer func() {
		if err == nil {
			return
		}
		err = v.withLog(err)
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		if v.from != nil {
			v.from.giveBack(in, r.CellID)
		}
		if e := d.clean(undo, in, r); e != nil {
			d.log.Error("a cell that could not be started could not be removed either", "cell", r.CellID, "error", e)
		}
	}()
	// The record comes before everything that it would have to find again.
	r.Marker = rand.Text()
	if err := in.open(r); err != nil {
		return plugin.Unavailable("%v", err)
	}
	if err := os.Remove(r.Link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return plugin.FailedPrecondition("an older socket is in the way: %v", err)
	}
	if err := v.limits(); err != nil {
		return err
	}
	if err := v.disks(ctx); err != nil {
		return err
	}
	vm, err := v.launch(c)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case v.from != nil:
		err = v.resume(ctx, vm)
	case v.ready != "":
		err = v.wake(ctx, vm)
	default:
		err = v.boot(ctx, vm)
	}
	if err != nil {
		return err
	}
	if err := r.setFacts(v.facts); err != nil {
		return err
	}
	d.records.Lock()
	r.Ready = true
	err = in.save(r)
	d.records.Unlock()
	if err == nil {
		d.keepHelper(in, r)
	}
	return err
}

// limits makes the cell's groups.
func (v *start) limits() error {
	limit := cgroup.Limits{CPU: v.spec.GetResources().GetCpu(), Memory: v.r.Size.Memory + overhead}
	group, by, err := v.in.groups.Create(v.r.CellID, limit)
	if err != nil {
		return plugin.Unavailable("control groups: %v", err)
	}
	v.r.Groups = group
	v.facts.Limits["cpu"] = by["cpu"]
	return nil
}

// disks makes the cell's own disk, or takes over that of the checkpoint.
func (v *start) disks(ctx context.Context) error {
	run := v.in.runDir(v.r.CellID)
	if err := os.MkdirAll(run, 0o700); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(run, int(v.r.User.UID), int(v.r.User.GID)); err != nil {
			return err
		}
	}
	if v.from != nil {
		return v.from.take(v.in, v.r)
	}
	return v.d.blanks.make(ctx, filepath.Join(v.in.state, "blank"), v.in.upper(v.r.CellID), v.r.Size.Disk)
}

// launch starts QEMU and the helper, and writes down whom it started.
func (v *start) launch(c choice) (*child, error) {
	in, r := v.in, v.r
	var open closers
	defer open.close()
	dir, run := in.cellDir(r.CellID), in.runDir(r.CellID)
	p := parts{initrd: v.ramdisk}
	for _, f := range []struct {
		to   **os.File
		path string
		flag int
	}{{&p.kernel, in.kernel.file, os.O_RDONLY}, {&p.root, in.root.file, os.O_RDONLY}, {&p.upper, in.upper(r.CellID), os.O_RDWR}} {
		file, err := os.OpenFile(f.path, f.flag, 0)
		if err != nil {
			return nil, err
		}
		open.add(file)
		*f.to = file
	}
	sockets := []struct {
		to   **os.File
		path string
	}{{&p.ctl, filepath.Join(dir, ctlSocket)}, {&p.qmp, filepath.Join(dir, qmpSocket)}}
	p.links, p.volumes = make([]*os.File, helper.Links), make([]*os.File, len(r.Volumes))
	for i := range p.links {
		sockets = append(sockets, struct {
			to   **os.File
			path string
		}{&p.links[i], filepath.Join(run, helper.LinkSocket(i))})
	}
	for i := range p.volumes {
		sockets = append(sockets, struct {
			to   **os.File
			path string
		}{&p.volumes[i], filepath.Join(run, helper.VolumeSocket(i))})
	}
	var link *os.File
	sockets = append(sockets, struct {
		to   **os.File
		path string
	}{&link, r.Link})
	for _, s := range sockets {
		l, err := listen(s.path)
		if err == nil {
			open.add(l)
			*s.to = l
			if os.Geteuid() == 0 && filepath.Dir(s.path) == run {
				err = os.Lchown(s.path, int(r.User.UID), int(r.User.GID))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("socket of the VM: %w", err)
		}
	}
	if err := os.Chmod(r.Link, 0o600); err != nil {
		return nil, err
	}
	if v.from != nil {
		p.incoming = v.from.state
	} else if v.ready != "" {
		f, err := os.Open(v.ready)
		if err != nil {
			return nil, err
		}
		open.add(f)
		p.incoming = f
	}
	line := commandLine(in.engine, c, r.Size, r.CellID, p)
	vm, err := spawn(in.engine.program, append([]string{in.engine.program}, line.args...), line.files, r.Groups, r.User, r.Marker, filepath.Join(dir, qemuLog))
	if err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	r.VM = vm.id
	v.d.watchChild(in, r.key(), vm)
	if v.bare {
		return vm, in.save(r)
	}
	h, err := in.startHelper(r, link, v.from != nil)
	if err != nil {
		return nil, fmt.Errorf("start the helper: %w", err)
	}
	r.Helper = h.id
	return vm, in.save(r)
}

// reset is what makes a VM unlike every other.
func (v *start) reset() (guest.Reset, error) {
	entropy, id := make([]byte, 64), make([]byte, 16)
	_, _ = rand.Read(entropy) // never fails
	_, _ = rand.Read(id)
	return guest.Reset{Now: v.d.now().UnixNano(), Entropy: entropy, MachineID: hex.EncodeToString(id)}, nil
}

// withLog adds what QEMU has said to an error.
func (v *start) withLog(err error) error {
	b, e := os.ReadFile(filepath.Join(v.in.cellDir(v.r.CellID), qemuLog))
	if e != nil {
		return err
	}
	said := strings.TrimSpace(string(b[max(0, len(b)-1000):]))
	if said == "" {
		return err
	}
	return fmt.Errorf("%w; QEMU said: %s", err, said)
}

// asStart gives an error of a start its code.
func asStart(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("start of the VM: %w", errors.Join(ctx.Err(), err))
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EMFILE):
		return plugin.ResourceExhausted("start of the VM: %v", err)
	case isStatus(err):
		return err
	}
	return plugin.Unavailable("start of the VM: %v", err)
}
