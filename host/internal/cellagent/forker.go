package cellagent

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/sdk/stage"
)

// forker starts workload processes from one OS thread that has given up what a
// workload must not have: it has no_new_privs, an empty bounding set and
// nothing inheritable or ambient. These belong to a thread and are inherited
// over fork and exec, so no second program has to run in front of the
// workload's. The thread lives as long as the agent, for the death signal of
// the children is tied to it.
type forker struct {
	jobs chan func()
}

// newForker starts the thread. With bare it gives up every capability, for
// workloads that have the agent's own uid and so lose none by a change of it.
// rules, unless 0, are Landlock rules that it takes on.
func newForker(bare bool, rules int) (*forker, error) {
	f := &forker{jobs: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is not fit for anything else
		err := restrictThread(bare)
		if err == nil && rules > 0 {
			err = stage.TakeOn(rules)
		}
		ready <- err
		for job := range f.jobs {
			job()
		}
	}()
	return f, <-ready
}

// do runs a job on the thread.
func (f *forker) do(job func()) {
	done := make(chan struct{})
	f.jobs <- func() { defer close(done); job() }
	<-done
}

func restrictThread(bare bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// Without CAP_SETPCAP the bounding set stays. The workload has no
	// capability all the same, and with no_new_privs no way to one.
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EPERM) {
			break
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // kernels before 4.3 have none
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if bare {
		data = [2]unix.CapUserData{}
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	return nil
}

// spawn is what to start.
type spawn struct {
	path      string
	argv, env []string
	dir       string
	files     [3]int
	terminal  bool
	uid, gid  uint32 // 0 = the agent's own
	marker    uint64 // see marker.go
	group     *cgroup
}

// otherUID says whether the workload has a uid of its own.
func (s *spawn) otherUID() bool { return s.uid != 0 && int(s.uid) != os.Geteuid() }

// start forks and execs. It runs on the thread.
func (s *spawn) start() (int, error) {
	attr := &syscall.ProcAttr{
		Dir: s.dir, Env: s.env,
		Files: []uintptr{uintptr(s.files[0]), uintptr(s.files[1]), uintptr(s.files[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: s.terminal, Pdeathsig: syscall.SIGKILL},
	}
	if s.otherUID() {
		gid := s.gid
		if gid == 0 {
			gid = s.uid
		}
		attr.Sys.Credential = &syscall.Credential{Uid: s.uid, Gid: gid, Groups: []uint32{}, NoSetGroups: setgroupsDenied()}
	}
	setMarker(s.marker)
	if s.group != nil {
		leave, err := s.group.enter(attr.Sys)
		if err != nil {
			return 0, fmt.Errorf("enter cgroup: %w", err)
		}
		defer leave()
	}
	return syscall.ForkExec(s.path, s.argv, attr)
}

// setgroupsDenied says whether this user namespace forbids setgroups. Then
// there are no groups to drop that the namespace could name.
func setgroupsDenied() bool {
	var buf [16]byte
	n, err := readSmall("/proc/self/setgroups", buf[:])
	return err == nil && strings.HasPrefix(string(buf[:n]), "deny")
}
