package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
	"github.com/airlock-host/airlock/plugins/internal/proc"
)

// child is a process that was started here.
type child struct {
	id    proc.ID
	done  chan struct{} // closed when it has ended and was reaped
	state *os.ProcessState
}

// markerEnv is the variable that holds a record's marker.
const markerEnv = "AIRLOCK_VM_MARKER"

// spawn starts a process in the cell's groups, as the cell's user, with an
// empty network. It outlives the driver: no death signal, a session of its own.
func spawn(path string, args []string, files []*os.File, group *cgroup.Group, user ids, marker, logFile string) (*child, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := &exec.Cmd{
		Path: path, Args: args, Env: []string{"PATH=/usr/bin:/bin", markerEnv + "=" + marker}, Dir: "/", Stdin: null, Stdout: out, Stderr: out, ExtraFiles: files,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: kvmGroup()}
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	}
	if group != nil && group.V2 != "" {
		dir, err := os.Open(group.V2)
		if err != nil {
			return nil, fmt.Errorf("open the cell's group: %w", err)
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := inGroups(group, cmd.Start); err != nil {
		return nil, err
	}
	c := &child{done: make(chan struct{})}
	id, err := proc.Identify(cmd.Process.Pid) // it cannot be reaped before the Wait below
	c.id = id
	go func() {
		_ = cmd.Wait() // its meaning is in the state
		c.state = cmd.ProcessState
		close(c.done)
	}()
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, err
	}
	return c, nil
}

// kvmGroup is the group of /dev/kvm, where there is one that may use it.
func kvmGroup() []uint32 {
	st, err := os.Stat("/dev/kvm")
	if err != nil {
		return []uint32{}
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Gid != 0 && st.Mode()&0o060 == 0o060 {
		return []uint32{sys.Gid}
	}
	return []uint32{}
}

// inGroups runs a fork on a thread that is in the cell's v1 groups, which the
// child inherits: it is in them from its first instruction on.
func inGroups(group *cgroup.Group, fork func() error) error {
	if group == nil || len(group.V1) == 0 {
		return fork()
	}
	result := make(chan error, 1)
	var job func()
	job = func() {
		// Never unlocked: the thread ends with this goroutine, and leaves the
		// groups by that. Only the process's first thread never ends.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			again := make(chan struct{})
			go func() { defer close(again); job() }()
			<-again
			runtime.UnlockOSThread()
			return
		}
		tid := []byte(strconv.Itoa(unix.Gettid()))
		for _, tasks := range group.Tasks() {
			if err := os.WriteFile(tasks, tid, 0); err != nil {
				result <- fmt.Errorf("enter the cell's group: %w", err)
				return
			}
		}
		result <- fork()
	}
	go job()
	return <-result
}

// closers is what is closed at the end of a function.
type closers []interface{ Close() error }

func (c *closers) add(x interface{ Close() error }) { *c = append(*c, x) }

func (c *closers) close() {
	for _, x := range *c {
		_ = x.Close()
	}
}

// exited says how a child has ended, as far as it has.
func (c *child) exited() error {
	select {
	case <-c.done:
		return errors.New("QEMU ended: " + c.state.String())
	default:
		return nil
	}
}
