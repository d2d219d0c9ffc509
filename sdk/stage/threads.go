package stage

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scope is which threads a change that the kernel keeps per thread is made on.
type scope int

const (
	// oneThread is the caller's, which becomes the agent by an exec.
	oneThread scope = iota
	// allThreads are all that there are; later ones inherit it. The Go runtime
	// offers it to programs without cgo only.
	allThreads
)

// call runs a system call that gives the same on every thread.
//
//go:uintptrescapes
func (sc scope) call(trap, a1, a2, a3 uintptr) error {
	var errno syscall.Errno
	if sc == allThreads {
		_, _, errno = syscall.AllThreadsSyscall(trap, a1, a2, a3)
	} else {
		_, _, errno = syscall.RawSyscall(trap, a1, a2, a3)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// takeThreads makes a scope of the process: all threads where that can be, else
// the calling one, for good. no_new_privs is what it is tried with.
func takeThreads() (scope, error) {
	err := allThreads.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	if err == nil {
		return allThreads, nil
	}
	runtime.LockOSThread()
	if !errors.Is(err, syscall.ENOTSUP) {
		return oneThread, fmt.Errorf("set no_new_privs: %w", err)
	}
	return oneThread, nil
}

// join enters cgroup v1 groups. A thread that moves itself needs no
// system-wide lock in the kernel.
func (sc scope) join(tasks []string) error {
	for _, f := range tasks {
		file, err := os.OpenFile(f, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		zero := []byte("0")
		err = sc.call(unix.SYS_WRITE, file.Fd(), uintptr(unsafe.Pointer(&zero[0])), 1)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// dropBounding takes capabilities that later execs shall not give back.
func (sc scope) dropBounding(drop []uintptr) error {
	for _, c := range drop {
		if err := sc.call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return err
		}
	}
	return nil
}

// keepOnly gives up all capabilities but some. It is for a process that is the
// agent already; to one that becomes it, the exec gives what is bounding.
func (sc scope) keepOnly(keep []uintptr) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for _, c := range keep {
		data[c/32].Permitted |= 1 << (c % 32)
		data[c/32].Effective |= 1 << (c % 32)
	}
	return sc.call(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
}
