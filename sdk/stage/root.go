package stage

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Where the driver's own things are in a cell that has a root of its own.
const (
	CellLinkDir   = "/run/airlock/link"   // the link directory
	CellCgroupDir = "/run/airlock/cgroup" // the cell's control groups, one directory each
	CellAgent     = "/run/airlock/airlock-cell"
	CellPublicDir = "/run/airlock/public" // what the agent offers to the workload
)

// Root describes a cell's own root: the machine's directories read-only, and
// fresh ones for everything that a cell writes to or must not see.
type Root struct {
	// Scratch is an existing directory that the new root is mounted on.
	Scratch string `json:"scratch"`
	// LinkDir is bound, writable, at CellLinkDir.
	LinkDir string `json:"link_dir"`
	// Agent is bound, read-only, at CellAgent; may be empty.
	Agent string `json:"agent,omitempty"`
	// Binds are attached after everything else.
	Binds []Bind `json:"binds,omitempty"`
	// Hide are paths that the cell sees as empty.
	Hide []string `json:"hide,omitempty"`
	// TmpBytes limits /tmp; 0 = the kernel's default, half of the memory.
	TmpBytes uint64 `json:"tmp_bytes,omitempty"`
	// User says that the cell has a user namespace of its own.
	User bool `json:"user,omitempty"`
}

// Bind is a directory or file of the machine that the cell gets.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

const quiet = unix.MS_NOSUID | unix.MS_NODEV

// fresh are entries of / that are not taken from the machine.
func fresh() []string { return []string{"proc", "sys", "dev", "tmp", "run", "lost+found"} }

// enter makes the root and moves into it. The caller is in a new mount
// namespace. Notes say what was made, for status.
func (r *Root) enter() (notes []string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("keep mounts private: %w", err)
	}
	if err := mount("tmpfs", r.Scratch, "tmpfs", quiet, "mode=0755"); err != nil {
		return nil, err
	}
	// Else binding the directory that it lies in would take it along.
	if err := mount("", r.Scratch, "", unix.MS_UNBINDABLE, ""); err != nil {
		return nil, err
	}
	readOnly, err := r.machine()
	if err != nil {
		return nil, err
	}
	if readOnly {
		notes = append(notes, "the machine's files read-only")
	} else {
		notes = append(notes, "the machine's files not read-only (the kernel is too old)")
	}
	layered, err := r.etc()
	if err != nil {
		return nil, err
	}
	if !layered {
		notes = append(notes, "no layer over /etc: no files can be placed there")
	}
	for _, step := range []func() error{r.proc, r.sys, r.dev, r.tmp, r.run} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	for _, h := range r.Hide {
		if path.Dir(path.Clean(h)) == "/" {
			continue // was not taken from the machine
		}
		if err := r.hide(h); err != nil {
			return nil, err
		}
	}
	for _, b := range r.Binds {
		if err := r.bind(b); err != nil {
			return nil, err
		}
	}
	return notes, r.pivot()
}

// machine binds the entries of / and makes them read-only.
func (r *Root) machine() (readOnly bool, err error) {
	entries, err := os.ReadDir("/")
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		name := e.Name()
		if slices.Contains(fresh(), name) {
			continue
		}
		at, from := path.Join(r.Scratch, name), "/"+name
		switch {
		case e.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(from)
			if err != nil {
				return false, err
			}
			if err := os.Symlink(target, at); err != nil {
				return false, err
			}
		case e.IsDir() && slices.Contains(r.Hide, from):
			if err := os.Mkdir(at, 0o700); err != nil {
				return false, err
			}
		case e.IsDir():
			if err := os.Mkdir(at, 0o755); err != nil {
				return false, err
			}
			if err := mount(from, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				return false, err
			}
		case e.Type().IsRegular():
			if err := touch(at); err != nil {
				return false, err
			}
			if err := mount(from, at, "", unix.MS_BIND, ""); err != nil {
				return false, err
			}
		}
	}
	// All at once, then the root itself back, since directories are still to be
	// made in it.
	err = attr(r.Scratch, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, 0)
	if errors.Is(err, unix.ENOSYS) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("make the machine's files read-only: %w", err)
	}
	return true, attr(r.Scratch, 0, 0, unix.MOUNT_ATTR_RDONLY)
}

// etc puts a layer over /etc, so that files can be placed there for the cell
// alone. Where the kernel does not allow it, /etc stays read-only.
func (r *Root) etc() (layered bool, err error) {
	layer := path.Join(r.Scratch, "tmp")
	if err := os.Mkdir(layer, 0o700); err != nil {
		return false, err
	}
	if err := mount("tmpfs", layer, "tmpfs", quiet, "mode=0700"); err != nil {
		return false, err
	}
	// The overlay holds its own references; the tmpfs need not stay visible.
	defer func() { _ = unix.Unmount(layer, unix.MNT_DETACH) }()
	for _, d := range []string{"up", "work"} {
		if err := os.Mkdir(path.Join(layer, d), 0o755); err != nil {
			return false, err
		}
	}
	options := "lowerdir=/etc,upperdir=" + layer + "/up,workdir=" + layer + "/work"
	if r.User {
		options += ",userxattr"
	}
	return unix.Mount("overlay", path.Join(r.Scratch, "etc"), "overlay", quiet, options) == nil, nil
}

func (r *Root) tmp() error {
	at := path.Join(r.Scratch, "tmp") // made by etc
	options := "mode=1777"
	if r.TmpBytes > 0 {
		options += ",size=" + strconv.FormatUint(r.TmpBytes, 10)
	}
	if err := mount("tmpfs", at, "tmpfs", quiet, options); err != nil {
		return err
	}
	varTmp := path.Join(r.Scratch, "var/tmp")
	if st, err := os.Lstat(varTmp); err == nil && st.IsDir() {
		return mount(at, varTmp, "", unix.MS_BIND, "")
	}
	return nil
}

func (r *Root) run() error {
	at := path.Join(r.Scratch, "run")
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	if err := mount("tmpfs", at, "tmpfs", quiet, "mode=0755"); err != nil {
		return err
	}
	for _, d := range []string{"airlock", "airlock/public", "airlock/link", "airlock/cgroup", "lock"} {
		if err := os.Mkdir(path.Join(at, d), 0o755); err != nil {
			return err
		}
	}
	binds := []Bind{{Source: r.LinkDir, Target: CellLinkDir}}
	if r.Agent != "" {
		binds = append(binds, Bind{Source: r.Agent, Target: CellAgent, ReadOnly: true})
	}
	// The resolver's file is often a link into /run.
	if real, err := resolved("/etc/resolv.conf"); err == nil && underRun(real) {
		binds = append(binds, Bind{Source: real, Target: real, ReadOnly: true})
	}
	for _, b := range binds {
		if err := r.bind(b); err != nil {
			return err
		}
	}
	return nil
}

func (r *Root) pivot() error {
	if err := unix.Chdir(r.Scratch); err != nil {
		return err
	}
	// Old and new root on one another: no directory is needed to put the old.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let the machine's root go: %w", err)
	}
	return unix.Chdir("/")
}
