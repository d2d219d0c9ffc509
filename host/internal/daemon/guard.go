package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// guardEnv names the process that a guard looks after.
const guardEnv = "AIRLOCK_GUARD"

// passedOn are the signals that a supervisor has for the host.
func passedOn() []os.Signal {
	return []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR2}
}

// becomeGuard turns this process, which has handed the host over, into its
// guard: supervisors know its pid. It becomes the same program as the successor's,
// so that it holds nothing of the old one. It comes back with an error only.
func becomeGuard(s *Succession) error {
	// Signals that come in between wait for the guard.
	runtime.LockOSThread()
	var set unix.Sigset_t
	for _, sig := range passedOn() {
		n := int(sig.(syscall.Signal)) - 1 //nolint:forcetypeassert // see passedOn
		set.Val[n/64] |= 1 << (n % 64)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(s.Life), unix.F_SETFD, 0); err != nil { //nolint:gosec // a descriptor
		return err
	}
	return unix.Exec(fmt.Sprintf("/proc/%d/exe", s.PID), os.Args, append(os.Environ(), guardEnv+"="+strconv.Itoa(s.PID)))
}

// guarding is the process that this one is to look after; 0: it is no guard.
func guarding() int {
	pid, err := strconv.Atoi(os.Getenv(guardEnv))
	if err != nil || pid < 2 {
		return 0
	}
	return pid
}

// guard passes signals on to the host's process and ends as that does. A process
// that hands the host over ends while its successor, a child of the guard too,
// lives on.
func guard(pid int) error {
	var current atomic.Pointer[os.Process]
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	current.Store(p)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn()...)
	go func() {
		for sig := range signals {
			_ = current.Load().Signal(sig)
		}
	}()
	var last unix.WaitStatus
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return endAs(last)
		case err != nil:
			return fmt.Errorf("guard the host: %w", err)
		}
		last = status
		if ended != pid {
			continue // a successor that did not come to it
		}
		if pid = child(); pid == 0 {
			return endAs(last)
		}
		if p, err := os.FindProcess(pid); err == nil {
			current.Store(p)
		}
	}
}

// endAs ends this process as another has ended.
func endAs(s unix.WaitStatus) error {
	if s.Signaled() {
		signal.Reset(s.Signal())
		_ = unix.Kill(os.Getpid(), s.Signal())
		return exitCode{128 + int(s.Signal())}
	}
	if s.ExitStatus() == 0 {
		return nil
	}
	return exitCode{s.ExitStatus()}
}

// child is a living child of this process; 0: there is none.
func child() int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}
