package cellagent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// proc is one process as /proc/PID/stat shows it. (pid, start) names a process
// for good; a pid alone does not.
type proc struct {
	pid, ppid, pgrp, sid int
	state                byte
	start                uint64 // ticks since boot
}

func (p proc) dead() bool { return p.state == 'Z' || p.state == 'X' }

// procID names a process for good.
type procID struct {
	pid   int
	start uint64
}

func (p proc) id() procID { return procID{p.pid, p.start} }

// readProc reads one process; false = it is gone.
func readProc(pid int) (proc, bool) {
	var buf [1024]byte
	n, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return proc{}, false
	}
	return parseStat(buf[:n])
}

// parseStat reads a line of /proc/PID/stat. The program's name may hold
// anything, brackets and blanks too.
func parseStat(b []byte) (proc, bool) {
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || shut < open {
		return proc{}, false
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	f := bytes.Fields(b[shut+1:])
	if err != nil || len(f) < 20 || len(f[0]) != 1 {
		return proc{}, false
	}
	p := proc{pid: pid, state: f[0][0]}
	for _, v := range []struct {
		to *int
		at int
	}{{&p.ppid, 1}, {&p.pgrp, 2}, {&p.sid, 3}} {
		if *v.to, err = strconv.Atoi(string(f[v.at])); err != nil {
			return proc{}, false
		}
	}
	p.start, err = strconv.ParseUint(string(f[19]), 10, 64)
	return p, err == nil
}

// descendants finds every process below this one. It reads all of /proc: the
// kernel's list of children is not reliable while they fork.
func descendants() ([]proc, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var all []proc
	for {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			if name[0] < '1' || name[0] > '9' {
				continue
			}
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			if p, ok := readProc(pid); ok {
				all = append(all, p)
			}
		}
		if err != nil || len(names) == 0 {
			break
		}
	}
	return below(all, os.Getpid()), nil
}

// below picks the processes under root, parents before their children.
func below(all []proc, root int) []proc {
	children := make(map[int][]proc, len(all))
	for _, p := range all {
		if p.pid != root && p.pid != p.ppid {
			children[p.ppid] = append(children[p.ppid], p)
		}
	}
	out := append([]proc(nil), children[root]...)
	delete(children, root)
	for i := 0; i < len(out); i++ {
		next := children[out[i].pid]
		delete(children, out[i].pid) // what was read while pids moved may hold a ring
		out = append(out, next...)
	}
	return out
}

// signalProc signals exactly the process that was seen, not another one that
// has got its pid since.
func signalProc(p proc, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil: // a kernel without pidfds: the start time is the best there is
		if now, ok := readProc(p.pid); !ok || now.start != p.start {
			return nil
		}
		return unix.Kill(p.pid, sig)
	}
	defer unix.Close(fd)
	if now, ok := readProc(p.pid); !ok || now.start != p.start {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// procIsOurs says whether /proc shows this pid namespace.
func procIsOurs() bool {
	l, err := os.Readlink("/proc/self")
	return err == nil && l == strconv.Itoa(os.Getpid())
}

// readSmall reads a small file without allocating.
func readSmall(path string, buf []byte) (int, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	for {
		n, err := syscall.Read(fd, buf)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// residentBytes is the agent's own resident memory.
func residentBytes() uint64 {
	var buf [256]byte
	n, err := readSmall("/proc/self/statm", buf[:])
	if err != nil {
		return 0
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(buf[:n]), &size, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}
