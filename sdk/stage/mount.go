package stage

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// attr sets and clears mount attributes.
func attr(dir string, flags uint, set, clear uint64) error {
	return unix.MountSetattr(unix.AT_FDCWD, dir, flags, &unix.MountAttr{Attr_set: set, Attr_clr: clear})
}

func (r *Root) proc() error {
	at := path.Join(r.Scratch, "proc")
	if err := os.Mkdir(at, 0o555); err != nil {
		return err
	}
	if err := mount("proc", at, "proc", quiet|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if r.User {
		return nil // its root owns nothing of the machine's settings
	}
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs"} {
		p := path.Join(at, name)
		if err := unix.Mount(p, p, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return fmt.Errorf("protect /proc/%s: %w", name, err)
		}
		if err := unix.Mount("", p, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|quiet|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("protect /proc/%s: %w", name, err)
		}
	}
	return nil
}

// sys shows the devices of the cell's own network namespace. A user namespace
// without one may not mount it and gets the machine's.
func (r *Root) sys() error {
	at := path.Join(r.Scratch, "sys")
	if err := os.Mkdir(at, 0o555); err != nil {
		return err
	}
	err := unix.Mount("sysfs", at, "sysfs", unix.MS_RDONLY|quiet|unix.MS_NOEXEC, "")
	if err == nil {
		return nil
	}
	if err := mount("/sys", at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := attr(at, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY, 0); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("make /sys read-only: %w", err)
	}
	return nil
}

// dev holds no device but those that every program expects.
func (r *Root) dev() error {
	at := path.Join(r.Scratch, "dev")
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	if err := mount("tmpfs", at, "tmpfs", unix.MS_NOSUID, "mode=0755,size=64k"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		p := path.Join(at, name)
		if err := touch(p); err != nil {
			return err
		}
		if err := mount("/dev/"+name, p, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(target, path.Join(at, name)); err != nil {
			return err
		}
	}
	for name, options := range map[string]string{"pts": "newinstance,ptmxmode=0666,mode=0620", "shm": "mode=1777"} {
		p := path.Join(at, name)
		if err := os.Mkdir(p, 0o755); err != nil {
			return err
		}
		kind := map[string]string{"pts": "devpts", "shm": "tmpfs"}[name]
		flags := uintptr(unix.MS_NOSUID | unix.MS_NOEXEC)
		if name == "shm" {
			flags = quiet
		}
		if err := mount(kind, p, kind, flags, options); err != nil {
			return err
		}
	}
	return nil
}

// hide puts an empty directory over a path that exists.
func (r *Root) hide(p string) error {
	fd, err := r.open(p, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", p, err)
	}
	defer unix.Close(fd)
	return mount("tmpfs", self(fd), "tmpfs", quiet|unix.MS_RDONLY, "mode=0700,size=4k")
}

// bind attaches a directory or file, making what is missing of its target.
func (r *Root) bind(b Bind) error {
	st, err := os.Stat(b.Source)
	if err != nil {
		return err
	}
	if err := r.mkdirAll(path.Dir(b.Target)); err != nil {
		return err
	}
	fd, err := r.open(b.Target, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		if fd, err = r.makeTarget(b.Target, st.IsDir()); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("open %s in the cell: %w", b.Target, err)
	}
	defer unix.Close(fd)
	if err := mount(b.Source, self(fd), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	set := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if b.ReadOnly {
		set |= unix.MOUNT_ATTR_RDONLY
	}
	// Opened anew: the descriptor above still means what lies below the mount.
	over, err := r.open(b.Target, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("open %s in the cell: %w", b.Target, err)
	}
	defer unix.Close(over)
	if err := unix.MountSetattr(over, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: set}); err != nil {
		if errors.Is(err, unix.ENOSYS) && !b.ReadOnly {
			return nil
		}
		return fmt.Errorf("protect %s in the cell: %w", b.Target, err)
	}
	return nil
}

func (r *Root) makeTarget(target string, dir bool) (int, error) {
	if dir {
		if err := r.mkdirAll(target); err != nil {
			return -1, err
		}
		return r.open(target, unix.O_PATH)
	}
	fd, err := r.open(target, unix.O_CREAT|unix.O_WRONLY)
	if err != nil {
		return -1, fmt.Errorf("make %s in the cell: %w", target, err)
	}
	_ = unix.Close(fd)
	return r.open(target, unix.O_PATH)
}

// mkdirAll makes a directory in the new root. What lies on the machine's own
// file system cannot be made: it is read-only.
func (r *Root) mkdirAll(p string) error {
	done := "/"
	for part := range strings.SplitSeq(strings.Trim(path.Clean(p), "/"), "/") {
		parent, err := r.open(done, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return fmt.Errorf("open %s in the cell: %w", done, err)
		}
		done = path.Join(done, part)
		if part != "" {
			err = unix.Mkdirat(parent, part, 0o755)
		}
		_ = unix.Close(parent)
		if errors.Is(err, unix.EROFS) {
			return fmt.Errorf("%s is not on this machine, and its place is read-only in the cell: %w", done, err)
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make %s in the cell: %w", done, err)
		}
	}
	return nil
}

// open resolves a path as the cell will: links stay inside of the new root.
func (r *Root) open(p string, flags uint64) (int, error) {
	root, err := unix.Open(r.Scratch, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o644
	}
	return unix.Openat2(root, path.Clean("/"+p), &how)
}

func self(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func touch(p string) error {
	f, err := os.OpenFile(p, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// resolved is what a path leads to. (path/filepath could tell, and would make
// every stage start later: see init.)
func resolved(p string) (string, error) {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return os.Readlink(self(fd))
}

func underRun(p string) bool { return strings.HasPrefix(p, "/run/") }
