package cellagent

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reaper waits for every child of the agent: what it has started and every
// orphan that the kernel hands to it as pid 1 or subreaper. Nothing else in
// this program may wait for a process.
type reaper struct {
	mu    sync.Mutex // held over fork and over wait: no child ends unknown
	mains map[int]func(unix.WaitStatus)
}

func newReaper() *reaper { return &reaper{mains: make(map[int]func(unix.WaitStatus))} }

// start forks under the lock, so that the child cannot be reaped before ended
// is registered. ended runs on the reaper's goroutine and must not wait.
func (r *reaper) start(fork func() (int, error), ended func(unix.WaitStatus)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err == nil {
		r.mains[pid] = ended
	}
	return pid, err
}

// held runs do while nothing is reaped, so that the pid of a child that has
// not been reaped stays its own.
func (r *reaper) held(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// reap takes every child that has ended. It returns false when there is no
// child at all.
func (r *reaper) reap() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return false
		case err != nil || pid == 0:
			return true
		}
		if ended := r.mains[pid]; ended != nil {
			delete(r.mains, pid)
			ended(ws)
		}
	}
}

// run reaps until ctx ends.
func (r *reaper) run(ctx context.Context) {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, unix.SIGCHLD)
	defer signal.Stop(sig)
	// A signal can be lost while its channel is full; an orphan that stays a
	// zombie for a while is no harm.
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		r.reap()
		select {
		case <-sig:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
