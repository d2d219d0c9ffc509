package cellagent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	newRoot   = "/mnt/root"
	lowerRoot = "/mnt/lower"
	upperDisk = "/mnt/upper"
)

// vmMount is a file system of the kernel's own.
type vmMount struct {
	fs, target string
	flags      uintptr
	data       string
}

const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

var earlyMounts = []vmMount{
	{"proc", "/proc", quiet, ""},
	{"sysfs", "/sys", quiet, ""},
	{"devtmpfs", "/dev", unix.MS_NOSUID, "mode=755"},
}

var cellMounts = append(earlyMounts[:len(earlyMounts):len(earlyMounts)],
	vmMount{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
	vmMount{"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	vmMount{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	vmMount{"cgroup2", "/sys/fs/cgroup", quiet, ""},
)

func (m vmMount) mount(root string) error {
	target := root + m.target
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.fs, target, m.fs, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	return nil
}

// disk finds a disk by the serial number that the driver has given it.
func disk(serial string) (string, error) {
	return await(func() (string, error) {
		files, _ := filepath.Glob("/sys/block/vd*/serial")
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == serial {
				return filepath.Join("/dev", filepath.Base(filepath.Dir(f))), nil
			}
		}
		return "", fmt.Errorf("there is no disk %s", serial)
	})
}

// buildRoot lays the cell's own disk over the image, which is read-only.
func buildRoot(root string) error {
	for _, d := range []struct {
		serial, dir string
		flags       uintptr
	}{{"root", lowerRoot, unix.MS_RDONLY}, {"upper", upperDisk, unix.MS_NODEV}} {
		dev, err := disk(d.serial)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(d.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dev, d.dir, "ext4", d.flags, ""); err != nil {
			return fmt.Errorf("mount the disk %s: %w", d.serial, err)
		}
	}
	for _, dir := range []string{upperDisk + "/files", upperDisk + "/work", root} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	opts := "lowerdir=" + lowerRoot + ",upperdir=" + upperDisk + "/files,workdir=" + upperDisk + "/work"
	if err := unix.Mount("overlay", root, "overlay", 0, opts); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	for _, m := range cellMounts {
		if err := m.mount(root); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if err := os.MkdirAll(root+dir, 0o1777); err != nil {
			return err
		}
		if err := os.Chmod(root+dir, 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	_ = os.Remove(root + "/dev/ptmx")
	_ = os.Symlink("pts/ptmx", root+"/dev/ptmx")
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		_ = os.Symlink(to, root+"/dev/"+name)
	}
	return nil
}

// enterRoot makes a directory the root of everything.
func enterRoot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	return unix.Chdir("/")
}

// identify gives the VM a name of its own.
func identify(hostname, machineID string) error {
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("set the hostname: %w", err)
	}
	if err := os.MkdirAll("/etc", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("/etc/hostname", []byte(hostname+"\n"), 0o644); err != nil {
		return err
	}
	if _, err := os.Stat("/etc/hosts"); errors.Is(err, os.ErrNotExist) {
		_ = os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost\n"), 0o644)
	}
	_ = os.Remove("/etc/machine-id") // it may be a link
	return os.WriteFile("/etc/machine-id", []byte(machineID+"\n"), 0o444)
}

// memoryReserve is what the workload leaves to the kernel and the agent.
const memoryReserve = 16 << 20

// limitCell makes the group that every session's group is below.
func limitCell(pids uint64) error {
	const root = "/sys/fs/cgroup"
	// As on a large machine, memory is refused when it is used and not when it
	// is asked for: a program that takes too much is killed, and that is seen.
	if err := os.WriteFile("/proc/sys/vm/overcommit_memory", []byte("1"), 0); err != nil {
		return err
	}
	for _, c := range []string{"+memory", "+pids"} {
		if err := os.WriteFile(root+"/cgroup.subtree_control", []byte(c), 0); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(cellGroup, 0o755); err != nil {
		return err
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	if free := info.Freeram * uint64(info.Unit); free > 2*memoryReserve {
		if err := os.WriteFile(cellGroup+"/memory.max", []byte(strconv.FormatUint(free-memoryReserve, 10)), 0); err != nil {
			return err
		}
	}
	if pids == 0 {
		return nil
	}
	return os.WriteFile(cellGroup+"/pids.max", []byte(strconv.FormatUint(pids, 10)), 0)
}
