package stage

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bits of linux/landlock.h that this package uses beside those of unix.
const (
	landlockWrites = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	landlockFiles  = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE // what a plain file can have
	landlockScopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// LandlockVersion is the version that the kernel offers; 0 = none.
func LandlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// writeRules makes rules that let whoever takes them on write below these paths
// only, and signal or reach by abstract sockets only what was started below it.
// Reading is left to the cell's root and to permissions. The descriptor is -1
// where the kernel has no such rules.
//
// These are the system calls themselves: go-landlock's packages come late in a
// program's start, which this one must not wait for (see Early).
func writeRules(paths []string) (rules int, note string, err error) {
	version := LandlockVersion()
	if version < 2 {
		// Version 1 has no way to allow a rename between directories.
		return -1, fmt.Sprintf("no landlock (the kernel offers version %d)", version), nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landlockWrites}
	size := unsafe.Offsetof(attr.Handled_access_net)
	note = fmt.Sprintf("landlock version %d: writes only where the cell may write", version)
	if version >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 6 {
		attr.Scoped, size = landlockScopes, unsafe.Offsetof(attr.Quiet_access_fs)
		note += ", signals and abstract sockets only within the cell"
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, "", fmt.Errorf("make rules: %w", errno)
	}
	for _, p := range paths {
		if err := allow(int(fd), p, attr.Handled_access_fs); err != nil {
			_ = unix.Close(int(fd))
			return -1, "", fmt.Errorf("allow %s: %w", p, err)
		}
	}
	return int(fd), note, nil
}

// TakeOn puts this thread, and whatever it starts, under the rules for writing
// that Main has told the agent of, for good. The thread must be locked.
func TakeOn(rules int) error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// allow adds a path; one that does not exist is no error.
func allow(rules int, p string, access uint64) error {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= landlockFiles
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
