package cellagent

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// To see which system call a process is blocked in takes the rights of a
// debugger over it. The kernel asks the file-system uid and gid of the thread
// that reads /proc for that, so the agent lends itself the workload's for the
// moment, on a thread of its own. That is what a helper process under the
// workload's uid would see, and more: where ptrace is restricted to
// descendants, the agent is an ancestor and a helper is not.

// asUser runs look on the thread with the file-system uid and gid of a
// workload.
func (f *forker) asUser(uid, gid uint32, look func()) {
	if gid == 0 {
		gid = uid
	}
	f.do(func() {
		defer undumpable() // a change of the file-system uid resets it, as fs.suid_dumpable says
		_ = unix.Setfsgid(int(gid))
		_ = unix.Setfsuid(int(uid))
		defer func() {
			_ = unix.Setfsuid(os.Geteuid())
			_ = unix.Setfsgid(os.Getegid())
		}()
		look()
	})
}

// readsTerminal says whether a thread of a process is blocked in a read of the
// terminal with this device number, or waits without a time limit for input
// from it and nothing else, as line editors do.
func readsTerminal(pid int, tty uint64) bool {
	base := "/proc/" + strconv.Itoa(pid)
	tasks, err := os.ReadDir(base + "/task")
	if err != nil {
		return false
	}
	for _, t := range tasks {
		b, err := os.ReadFile(base + "/task/" + t.Name() + "/syscall")
		if err != nil {
			continue
		}
		nr, args, ok := parseSyscall(string(b))
		if !ok {
			continue
		}
		for i, fd := range waitedFor(base, nr, args) {
			if !isTerminal(base, fd, tty) {
				break
			}
			if i == 0 {
				return true
			}
		}
	}
	return false
}

// parseSyscall reads /proc/PID/syscall: the number and six arguments.
func parseSyscall(s string) (nr int, args [6]uint64, ok bool) {
	f := strings.Fields(s)
	if len(f) < 7 { // "running", or "-1" outside of any
		return 0, args, false
	}
	nr, err := strconv.Atoi(f[0])
	if err != nil || nr < 0 {
		return 0, args, false
	}
	for i := range args {
		if args[i], err = strconv.ParseUint(strings.TrimPrefix(f[i+1], "0x"), 16, 64); err != nil {
			return 0, args, false
		}
	}
	return nr, args, true
}

// isTerminal says whether a descriptor of a process is this terminal, by its
// own name or as /dev/tty.
func isTerminal(base string, fd int, tty uint64) bool {
	var st unix.Stat_t
	if err := unix.Stat(base+"/fd/"+strconv.Itoa(fd), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	return st.Rdev == tty || st.Rdev == unix.Mkdev(5, 0)
}

// waitedFor lists the descriptors that a blocked system call waits to read
// from; none if it waits for anything else too.
func waitedFor(base string, nr int, args [6]uint64) []int {
	switch nr {
	case unix.SYS_READ, unix.SYS_READV:
		return []int{int(int32(args[0]))}
	case unix.SYS_PSELECT6, sysSelect:
		if args[4] != 0 { // has a time limit
			return nil
		}
		return fdSet(base, args[0], args[1])
	case unix.SYS_PPOLL:
		if args[2] != 0 {
			return nil
		}
		return pollSet(base, args[0], args[1])
	case sysPoll:
		if int32(args[2]) >= 0 {
			return nil
		}
		return pollSet(base, args[0], args[1])
	}
	return nil
}

func fdSet(base string, n, addr uint64) (out []int) {
	if n > 1024 || addr == 0 {
		return nil
	}
	b := peek(base, addr, int(n+7)/8)
	for i := range b {
		for bit := range 8 {
			if fd := i*8 + bit; b[i]&(1<<bit) != 0 && fd < int(n) {
				out = append(out, fd)
			}
		}
	}
	return out
}

func pollSet(base string, addr, n uint64) (out []int) {
	if n > 64 || addr == 0 {
		return nil
	}
	b := peek(base, addr, int(n)*8)
	for ; len(b) >= 8; b = b[8:] {
		fd, events := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
		if fd < 0 {
			continue
		}
		if events&unix.POLLIN == 0 {
			return nil
		}
		out = append(out, int(fd))
	}
	return out
}

// peek reads a process's memory; nil where that is not allowed.
func peek(base string, addr uint64, n int) []byte {
	f, err := os.Open(base + "/mem")
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, int64(addr)); err != nil {
		return nil
	}
	return b
}
