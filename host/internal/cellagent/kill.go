package cellagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killTime is how long a kill may take before it counts as failed; a process
// in an uninterruptible system call can take any time.
const killTime = 30 * time.Second

// How a kill knows that it is complete: every process of the cell that has lost
// its parent becomes a child of the agent (pid 1, or subreaper). So whatever a
// session has started hangs below a child of the agent, and when no child of
// the agent belongs to the session, nothing of it is left. Killing the children
// of the agent again and again brings everything up, however it has detached
// itself. While the reaper is held no pid of a child can be used again.

// kill ends everything that a session has started. When it returns nil, nothing
// of it is left.
func (a *Agent) kill(ctx context.Context, s *session, grace time.Duration) error {
	select {
	case <-s.ready: // a start that is under way is killed when it is through
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.startErr != nil {
		return nil
	}
	if grace > 0 && !s.swept() {
		a.terminate(ctx, []*session{s}, grace)
	}
	for round := 0; ; round++ {
		if s.swept() {
			return nil
		}
		left := a.killRound(s)
		if left == nil {
			s.setSwept()
			return nil
		}
		if err := pause(ctx, round); err != nil {
			return fmt.Errorf("processes %v did not end: %w", left, err)
		}
	}
}

// killAll ends every session.
func (a *Agent) killAll(ctx context.Context, grace time.Duration) error {
	live := a.live()
	if grace > 0 && len(live) > 0 {
		a.terminate(ctx, live, grace)
	}
	ctx, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	var errs []error
	for _, s := range live {
		errs = append(errs, a.kill(ctx, s, 0))
	}
	return errors.Join(errs...)
}

// killRound kills what is to be seen of a session and returns the pids; nil =
// there was nothing.
func (a *Agent) killRound(s *session) (left []int) {
	if s.group != nil {
		s.group.killAll()
	}
	if a.pid1 {
		a.killNamespace(s)
	}
	a.reaper.reap()
	a.reaper.held(func() {
		live := a.live()
		own := os.Getpid()
		ownSession, _ := unix.Getsid(0)
		for _, pid := range childPids() {
			p, ok := readProc(pid)
			if !ok || p.ppid != own {
				continue
			}
			if owner := attribute(p, live); owner != nil && owner != s {
				continue
			}
			left = append(left, pid)
			if p.dead() {
				continue // it was reported, and is reaped in the next round
			}
			_ = unix.Kill(pid, unix.SIGKILL)
			// Its process group in one step, so that no fork in it escapes. The
			// group cannot be anybody else's: p is not reaped, and groups do not
			// reach over the sessions that setsid makes.
			if p.sid != ownSession && p.pgrp > 1 {
				_ = unix.Kill(-p.pgrp, unix.SIGKILL)
			}
		}
	})
	if s.group != nil {
		for _, pid := range s.group.pids() { // what was moved in from elsewhere
			if p, ok := readProc(pid); ok && !p.dead() {
				left = append(left, pid)
			}
		}
	}
	return left
}

// killNamespace ends everything in the agent's pid namespace in one step, when
// it is all this session's.
func (a *Agent) killNamespace(s *session) {
	a.starting.Lock()
	defer a.starting.Unlock()
	if live := a.live(); len(live) == 1 && live[0] == s {
		_ = unix.Kill(-1, unix.SIGKILL)
	}
}

// attribute says which session a child of the agent belongs to; nil = that is
// not known, and whoever is killed first takes it along: better a detached
// process too many than one too few.
func attribute(p proc, live []*session) *session {
	if len(live) == 1 {
		return live[0]
	}
	for _, s := range live {
		if int(s.pid.Load()) == p.pid && s.running() {
			return s
		}
	}
	marker := readMarker(p.pid)
	for _, s := range live {
		if s.marker == marker && marker != 0 {
			return s
		}
	}
	for _, s := range live {
		if int(s.pid.Load()) == p.sid {
			return s
		}
	}
	return nil
}

// terminate asks the sessions to end and waits for that, at most for the grace.
func (a *Agent) terminate(ctx context.Context, sessions []*session, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	wanted := make(map[*session]bool, len(sessions))
	for _, s := range sessions {
		wanted[s] = true
	}
	for _, p := range a.processesOf(wanted) {
		if !p.dead() {
			_ = signalProc(p, unix.SIGTERM)
			_ = signalProc(p, unix.SIGCONT) // a stopped process would not hear it
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
		a.reaper.reap()
		if len(a.processesOf(wanted)) == 0 {
			return
		}
	}
}

// processesOf lists what is to be seen of the sessions, found from the
// children of the agent down.
func (a *Agent) processesOf(wanted map[*session]bool) []proc {
	all, err := descendants()
	if err != nil {
		return nil
	}
	live := a.live()
	own := os.Getpid()
	owner := make(map[int]*session, len(all))
	var out []proc
	for _, p := range all { // parents first
		if p.ppid == own {
			owner[p.pid] = attribute(p, live)
		} else {
			owner[p.pid] = owner[p.ppid]
		}
		if s := owner[p.pid]; s != nil && wanted[s] {
			out = append(out, p)
		}
	}
	return out
}

// childPids lists the agent's children.
func childPids() []int {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	var out []int
	for _, t := range tasks {
		b, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		if errors.Is(err, os.ErrNotExist) && !exists("/proc/self/task/"+strconv.Itoa(unix.Gettid())+"/children") {
			return childrenByScan() // a kernel without CONFIG_PROC_CHILDREN
		}
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

func childrenByScan() []int {
	all, _ := descendants()
	own := os.Getpid()
	var out []int
	for _, p := range all {
		if p.ppid == own {
			out = append(out, p.pid)
		}
	}
	return out
}

// pause waits between two rounds: hardly at first, for most trees are gone in
// a few, then longer.
func pause(ctx context.Context, round int) error {
	d := 100 * time.Microsecond
	if round >= 50 {
		d = min(time.Duration(round-49)*time.Millisecond, 20*time.Millisecond)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
