package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The cell agent takes in the orphans below it (it is a subreaper, or pid 1 of
// its namespace), so a walk from it finds every process of its cell, those that
// have left their session or forked twice included.

// descendants are the living processes below pid.
func descendants(pid int) (map[int]stat, error) {
	names, err := readProc()
	if err != nil {
		return nil, err
	}
	all, children := map[int]stat{}, map[int][]int{}
	for _, n := range names {
		p, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if st, err := readStat(p); err == nil {
			all[p] = st
			children[st.ppid] = append(children[st.ppid], p)
		}
	}
	out := map[int]stat{}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			if _, seen := out[c]; !seen && c != pid {
				out[c] = all[c]
				queue = append(queue, c)
			}
		}
	}
	for p, st := range out {
		if st.dead() {
			delete(out, p)
		}
	}
	return out, nil
}

func readProc() ([]string, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// KillTree kills everything below the process, and then itself. nil = nothing
// of it runs.
func (p Process) KillTree(ctx context.Context) error {
	if !p.Alive() {
		return nil
	}
	// Stopped, it starts nothing, and still takes orphans in.
	if err := p.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	for {
		below, err := descendants(p.PID)
		if err != nil {
			return err
		}
		if len(below) == 0 {
			break
		}
		for pid := range below {
			if err := send(pid, unix.SIGKILL); err != nil {
				return err
			}
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%d processes are left: %w", len(below), err)
		}
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		return err
	}
	return p.Wait(ctx)
}

// StopTree freezes the process and everything below it.
func (p Process) StopTree(ctx context.Context) error {
	for quiet := 0; quiet < 2; {
		if err := p.Signal(unix.SIGSTOP); err != nil {
			return err
		}
		below, err := descendants(p.PID)
		if err != nil {
			return err
		}
		if st, err := readStat(p.PID); err == nil {
			below[p.PID] = st
		}
		running := 0
		for pid, st := range below {
			if stopped(pid, st) {
				continue
			}
			running++
			if err := send(pid, unix.SIGSTOP); err != nil {
				return err
			}
		}
		if quiet++; running > 0 {
			quiet = 0
			if err := pause(ctx); err != nil {
				return fmt.Errorf("%d processes still run: %w", running, err)
			}
		}
	}
	return nil
}

// ContinueTree thaws what StopTree has frozen.
func (p Process) ContinueTree() error {
	below, err := descendants(p.PID)
	if err != nil {
		return err
	}
	for pid := range below {
		if err := send(pid, unix.SIGCONT); err != nil {
			return err
		}
	}
	return p.Signal(unix.SIGCONT)
}

// Stopped says whether the process is frozen.
func (p Process) Stopped() bool {
	st, err := readStat(p.PID)
	return err == nil && stopped(p.PID, st)
}

func stopped(pid int, st stat) bool {
	switch {
	case st.state == 'T' || st.state == 't' || st.dead():
		return true
	case st.state != 'D':
		return false
	}
	// A parent that waits in vfork for a child that was stopped first stays in
	// the kernel, with the stop waiting for it.
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(b) {
		if name, value, _ := bytes.Cut(line, []byte(":")); string(name) == "ShdPnd" {
			mask, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
			return err == nil && mask&(1<<(unix.SIGSTOP-1)) != 0
		}
	}
	return false
}

// usage is what a tree uses now.
type usage struct {
	cpu            time.Duration
	memory, number uint64
}

func (p Process) usage() (usage, error) {
	all, err := descendants(p.PID)
	if err != nil {
		return usage{}, err
	}
	if st, err := readStat(p.PID); err == nil {
		all[p.PID] = st
	}
	var u usage
	for pid, st := range all {
		u.cpu += time.Duration(st.cpu) * (time.Second / 100) // USER_HZ is 100 for everybody
		u.number += st.threads
		if b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm"); err == nil {
			if f := bytes.Fields(b); len(f) > 1 {
				pages, _ := strconv.ParseUint(string(f[1]), 10, 64)
				u.memory += pages * uint64(os.Getpagesize())
			}
		}
	}
	return u, nil
}

func send(pid int, sig syscall.Signal) error {
	if pid <= 1 {
		return fmt.Errorf("refusing to signal pid %d", pid)
	}
	if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(2 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
