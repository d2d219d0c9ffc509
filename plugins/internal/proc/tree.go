package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Descendants finds every living process below pid, children before
// grandchildren, zombies left out. A process that left the tree, because all
// of its ancestors up to a subreaper died, is not found.
func Descendants(pid int) ([]int, error) {
	all, err := table()
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int, len(all))
	for p, st := range all {
		children[st.ppid] = append(children[st.ppid], p)
	}
	var out []int
	queue := []int{pid}
	seen := map[int]bool{pid: true}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for _, c := range children[next] {
			if seen[c] {
				continue
			}
			seen[c] = true
			queue = append(queue, c)
			if !all[c].dead() {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

// WithEnv finds every living process whose environment at its last exec had
// this NAME=VALUE, as far as the caller may read environments.
func WithEnv(entry string) ([]int, error) {
	all, err := table()
	if err != nil {
		return nil, err
	}
	want := append([]byte(entry), 0)
	var out []int
	for p, st := range all {
		if st.dead() {
			continue
		}
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p) + "/environ")
		if err != nil {
			continue // another user's, or gone
		}
		if bytes.HasPrefix(b, want) || bytes.Contains(b, append([]byte{0}, want...)) {
			out = append(out, p)
		}
	}
	return out, nil
}

// Stopped says whether a process is stopped by a signal, or will be before it
// runs another instruction of its own, or is dead.
func Stopped(pid int) bool {
	st, err := readStat(pid)
	if err != nil {
		return errors.Is(err, ErrGone)
	}
	switch {
	case st.state == 'T' || st.state == 't' || st.dead():
		return true
	case st.state == 'D':
		// A parent that waits in vfork for a child that was stopped first stays
		// in the kernel, with the stop waiting for it.
		return stopPending(pid)
	}
	return false
}

func stopPending(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(b) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) == "ShdPnd" {
			mask, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
			return err == nil && mask&(1<<(unix.SIGSTOP-1)) != 0
		}
	}
	return false
}

// Threads counts the threads of a process; 0 when it is gone.
func Threads(pid int) int {
	d, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return 0
	}
	return len(d)
}

// Resident is the resident memory of a process in bytes; 0 when it is gone.
func Resident(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(f[1]), 10, 64)
	if err != nil {
		return 0
	}
	return n * uint64(os.Getpagesize())
}

// Kill sends SIGKILL to a pid that was found a moment ago by a walk. A pid
// that is gone is no error.
func Kill(pid int) error { return send(pid, unix.SIGKILL) }

// Stop sends SIGSTOP, see Kill.
func Stop(pid int) error { return send(pid, unix.SIGSTOP) }

// Continue sends SIGCONT, see Kill.
func Continue(pid int) error { return send(pid, unix.SIGCONT) }

func send(pid int, sig unix.Signal) error {
	if pid <= 1 {
		return fmt.Errorf("refusing to signal pid %d", pid)
	}
	if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal pid %d: %w", pid, err)
	}
	return nil
}

func table() (map[int]stat, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := make(map[int]stat, len(names))
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil {
			all[pid] = st
		}
	}
	return all, nil
}
