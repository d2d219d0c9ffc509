package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/plugins/internal/proc"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/files"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/helper"
)

// startHelper starts a cell's helper. link is link.sock, listening.
func (in *instance) startHelper(r *record, link *os.File, load bool) (*child, error) {
	var open closers
	defer open.close()
	setup := helper.Setup{Load: load}
	var dirs []*os.File
	for _, v := range r.Volumes {
		setup.Volumes = append(setup.Volumes, files.Options{ReadOnly: v.ReadOnly, Quota: v.Quota})
		fd, err := unix.Open(v.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Target, err)
		}
		dir := os.NewFile(uintptr(fd), v.Path)
		open.add(dir)
		dirs = append(dirs, dir)
	}
	text, err := json.Marshal(setup)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("setup", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "setup")
	open.add(file)
	if _, err := file.Write(text); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	run, err := os.Open(in.runDir(r.CellID))
	if err != nil {
		return nil, err
	}
	open.add(run)
	return spawn("/proc/self/exe", []string{"airlock-isolation-" + Name, helper.Argument}, helper.Files(file, link, run, dirs),
		r.Groups, r.User, r.Marker, filepath.Join(in.cellDir(r.CellID), helperLog))
}

// keepHelper starts the helper of a living cell anew when it has died.
func (d *Driver) keepHelper(in *instance, r *record) {
	if r.Helper.PID == 0 {
		return
	}
	h, err := proc.Open(r.Helper)
	go func() {
		if err == nil {
			defer h.Close()
			vm, e := proc.Open(r.VM)
			if e != nil {
				return
			}
			defer vm.Close()
			if h.Wait(until(vm)) != nil {
				return // the VM has ended
			}
		}
		d.replaceHelper(in, r.key(), r.Helper)
	}()
}

// replaceHelper starts a cell's helper if the one that is gone still is its.
func (d *Driver) replaceHelper(in *instance, k cellKey, gone proc.ID) {
	d.records.Lock()
	defer d.records.Unlock()
	d.mu.Lock()
	stopping := d.stopping[k] > 0
	d.mu.Unlock()
	r, err := in.load(k.id)
	if err != nil || r.key() != k || r.Helper != gone || r.End != nil || !r.Ready || stopping {
		return
	}
	if alive, err := proc.Alive(r.VM); err != nil || !alive {
		return
	}
	if err := d.newHelper(in, r); err != nil {
		d.log.Error("the helper of a cell has ended and cannot be started anew", "cell", k.id, "error", err)
		return
	}
	d.log.Warn("the helper of a cell had ended and was started anew", "cell", k.id)
	d.keepHelper(in, r)
}

func (d *Driver) newHelper(in *instance, r *record) error {
	link, err := listen(r.Link)
	if err != nil {
		return err
	}
	defer link.Close()
	if err := os.Chmod(r.Link, 0o600); err != nil {
		return err
	}
	c, err := in.startHelper(r, link, false)
	if err != nil {
		return err
	}
	r.Helper = c.id
	if err := in.save(r); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
