package driver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// A template is the state of a VM that has booted and was told nothing yet: no
// secret, no name, no disk of its own mounted. A cell that begins with it skips
// the boot, gets its setup like a VM that has just booted, and with that a
// clock, an identity and random numbers of its own.

const (
	// templatePrefix begins the id of the VM that a template is made with. It
	// belongs to no host, so that no List shows it.
	templatePrefix = "airlock-template-"
	maxTemplates   = 8
)

func (in *instance) templatesDir() string { return filepath.Join(in.state, "templates") }

// templateFor gives the state file to begin with; empty = boot.
func (d *Driver) templateFor(ctx context.Context, in *instance, v *start, c choice) (string, error) {
	if !in.config.Template {
		return "", nil
	}
	text, err := json.Marshal(struct {
		Keys    map[string]string
		Volumes int
	}{v.r.Keys, len(v.r.Volumes)})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	key := hex.EncodeToString(sum[:12])
	file := filepath.Join(in.templatesDir(), key)
	release, err := d.cells.take(ctx, templatePrefix+key)
	if err != nil {
		return "", err
	}
	defer release()
	if _, err := os.Stat(file); err == nil {
		_ = os.Chtimes(file, time.Time{}, time.Now())
		return file, nil
	}
	if err := d.makeTemplate(ctx, in, v, c, key, file); err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		d.log.Warn("no template can be made; VMs boot one by one", "error", err)
		return "", nil
	}
	in.tidyTemplates()
	return file, nil
}

// makeTemplate boots a VM, saves it, and ends it.
func (d *Driver) makeTemplate(ctx context.Context, in *instance, v *start, c choice, key, file string) error {
	if err := os.MkdirAll(in.templatesDir(), 0o700); err != nil {
		return err
	}
	r := &record{handle: handle{
		V: recordVersion, CellID: templatePrefix + key, Incarnation: 1, StartedAt: d.now().UTC(),
	}, User: v.r.User, Size: v.r.Size, Volumes: v.r.Volumes}
	r.Link = filepath.Join(in.cellDir(r.CellID), "unused.sock")
	t := &start{d: d, in: in, r: r, facts: proto.CloneOf(v.facts), spec: &pluginv1.CellSpec{}, ramdisk: v.ramdisk, bare: true}
	if old, err := in.load(r.CellID); err == nil {
		if err := d.clean(ctx, in, old); err != nil {
			return err
		}
	}
	err := t.template(ctx, c, file)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	return errors.Join(err, d.clean(undo, in, r))
}

func (v *start) template(ctx context.Context, c choice, file string) error {
	free, err := v.d.slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	v.r.Marker = rand.Text()
	if err := v.in.open(v.r); err != nil {
		return err
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
	if err := v.boot(ctx, vm); err != nil {
		return v.withLog(err)
	}
	q, err := v.in.qmp(ctx, v.r.CellID)
	if err != nil {
		return err
	}
	defer q.Close()
	next := file + ".new"
	_ = os.Remove(next)
	if err := save(ctx, q, next); err != nil {
		_ = os.Remove(next)
		return err
	}
	return os.Rename(next, file)
}

// slot waits until another VM may boot: a machine boots no faster for many at
// once.
func (d *Driver) slot(ctx context.Context) (free func(), err error) {
	select {
	case d.booting <- struct{}{}:
		return func() { <-d.booting }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tidyTemplates removes the templates that were not used for longest.
func (in *instance) tidyTemplates() {
	entries, err := os.ReadDir(in.templatesDir())
	if err != nil || len(entries) <= maxTemplates {
		return
	}
	age := func(e os.DirEntry) time.Time {
		st, err := e.Info()
		if err != nil {
			return time.Time{}
		}
		return st.ModTime()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return age(a).Compare(age(b)) })
	for _, e := range entries[:len(entries)-maxTemplates] {
		_ = os.Remove(filepath.Join(in.templatesDir(), e.Name()))
	}
}

// wake lets a VM that was made of a template run, and tells it who it is.
func (v *start) wake(ctx context.Context, vm *child) error {
	ctx, cancel := context.WithTimeout(ctx, v.in.config.bootTime())
	defer cancel()
	q, err := v.in.qmp(ctx, v.r.CellID)
	if err != nil {
		return errors.Join(vm.exited(), err)
	}
	defer q.Close()
	if err := migratedIn(ctx, q, vm); err != nil {
		return err
	}
	ctl, err := v.in.control(ctx, v.r.CellID)
	if err != nil {
		return err
	}
	defer ctl.Close()
	setup, err := v.setup()
	if err != nil {
		return err
	}
	if err := q.Run(ctx, "cont", nil, nil); err != nil {
		return err
	}
	up := make(chan error, 1)
	go func() { up <- ctl.Setup(ctx, setup) }()
	select {
	case err := <-up:
		if err != nil {
			return errors.Join(err, v.console(q))
		}
		return nil
	case <-vm.done:
		cancel()
		<-up //nolint:errcheck // how the VM ended says more
		return fmt.Errorf("from a template: %w", vm.exited())
	}
}
