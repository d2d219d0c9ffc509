package cellagent

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

const (
	// drainTime is how long the children of a session's own process may go on
	// writing once it has ended. Then they are killed: the session is its own
	// process, and whatever it leaves behind goes with it.
	drainTime = 250 * time.Millisecond
	// eofTime is how long the output may stay open once everything that the
	// session started is dead.
	eofTime = 2 * time.Second
)

// session is one process of the workload, what it has started, and its output.
type session struct {
	agent      *Agent
	id         string
	generation uint64
	uid, gid   uint32
	marker     uint64
	watch      bool

	ready    chan struct{} // closed when the start has come to an end
	started  *cellv1.Started
	startErr error

	pid     atomic.Int32 // of its own process; set before that can be reaped
	group   *cgroup
	out     *buffer
	term    *os.File // the terminal's master end, or nil
	tty     uint64   // the terminal's device number
	input   *input
	doors   *doors // nil = none
	scratch string // directory; empty = none
	readers sync.WaitGroup
	abandon chan struct{} // closed: readers stop waiting for room
	outputs []*os.File
	oomAt   uint64

	status   unix.WaitStatus
	mainDone chan struct{} // closed by the reaper; status is valid

	mu     sync.Mutex
	exited *cellv1.Exited
	clean  bool // nothing of it is left
}

func (s *session) isStarted() bool {
	select {
	case <-s.ready:
		return s.startErr == nil
	default:
		return false
	}
}

func (s *session) exit() *cellv1.Exited {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exited
}

// swept says that nothing of the session is left.
func (s *session) swept() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clean
}

func (s *session) setSwept() {
	s.mu.Lock()
	s.clean = true
	s.mu.Unlock()
}

// running says whether the session's own process has not been reaped.
func (s *session) running() bool {
	select {
	case <-s.mainDone:
		return false
	default:
		return true
	}
}

func (s *session) state() *cellv1.SessionState {
	base, next := s.out.offsets()
	return &cellv1.SessionState{
		SessionId: s.id, Generation: s.generation, Base: base, Next: next,
		AppliedKeys: s.input.appliedKeys(), Exited: s.exit(), Pid: s.pid.Load(), StartedAt: s.started.GetAt(),
	}
}

// read moves one output of the session into its buffer until it ends.
func (s *session) read(f *os.File, stream cellv1.Stream) {
	defer s.readers.Done()
	buf := make([]byte, 16<<10)
	for {
		n := s.out.room(s.abandon)
		if n == 0 {
			return
		}
		n, err := f.Read(buf[:min(n, len(buf))])
		s.out.append(stream, buf[:n])
		if err != nil { // the end; a terminal says EIO
			return
		}
	}
}

// finish runs once the session's own process has ended.
func (s *session) finish() {
	<-s.mainDone
	drained := make(chan struct{})
	go func() { s.readers.Wait(); close(drained) }()
	wait(drained, drainTime)
	// Only now: what was still running could have filled any buffer. What is
	// left is what lies in the pipes, and must not wait for an acknowledgement.
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	if err := s.agent.kill(ctx, s, 0); err != nil {
		s.agent.log.error("session left processes behind", "session", s.id, "error", err)
	}
	s.doors.close()
	s.out.lift()
	if !wait(drained, eofTime) { // a process that is not the session's holds its output
		close(s.abandon)
		for _, f := range s.outputs {
			_ = f.Close()
		}
		<-drained
	}
	s.input.close()
	for _, f := range s.outputs {
		_ = f.Close()
	}
	s.dropScratch()
	if s.group != nil {
		if err := s.group.remove(); err != nil {
			s.agent.log.warn("cannot remove the session's cgroup", "session", s.id, "error", err)
		}
	}
	s.agent.announce(func() *cellv1.AgentFrame {
		e := s.result()
		s.mu.Lock()
		s.exited = e
		s.mu.Unlock()
		return &cellv1.AgentFrame{Frame: &cellv1.AgentFrame_Exited{Exited: e}}
	})
	s.agent.slack.active()
}

// result is the exit status of the session's own process, whatever else was
// killed.
func (s *session) result() *cellv1.Exited {
	e := &cellv1.Exited{SessionId: s.id, At: timestamppb.Now(), End: s.out.end()}
	if s.status.Signaled() {
		e.Signal = int32(s.status.Signal())
		e.Oom = s.status.Signal() == unix.SIGKILL && s.agent.cgroups.oomKills() > s.oomAt
	} else {
		e.Code = int32(s.status.ExitStatus())
	}
	return e
}

// signal signals the foreground process group, or with pipes the session's own
// process group.
func (s *session) signal(sig unix.Signal) error {
	if sig < 1 || sig > 64 {
		return refuse(cellv1.ErrorCode_ERROR_CODE_INVALID, fmt.Sprintf("no such signal: %d", sig))
	}
	err := refuse(cellv1.ErrorCode_ERROR_CODE_CLOSED, "the session has ended")
	s.agent.reaper.held(func() { // its own process is not reaped, so its pid and its session are still its own
		if !s.running() {
			return
		}
		group := int(s.pid.Load())
		if fg, ok := s.foreground(); ok {
			group = fg
		}
		if e := unix.Kill(-group, sig); e != nil && e != unix.ESRCH {
			err = refuse(cellv1.ErrorCode_ERROR_CODE_INTERNAL, "signal: "+e.Error())
			return
		}
		err = nil
	})
	return err
}

// foreground is the terminal's foreground process group. The kernel lets only
// groups of the terminal's own session become that.
func (s *session) foreground() (int, bool) {
	if s.term == nil {
		return 0, false
	}
	pgrp := 0
	err := control(s.term, func(fd int) (err error) {
		pgrp, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	return pgrp, err == nil && pgrp > 1
}

func (s *session) resize(size *cellv1.TerminalSize) error {
	if s.term == nil {
		return refuse(cellv1.ErrorCode_ERROR_CODE_INVALID, "the session has no terminal")
	}
	if err := setSize(s.term, size); err != nil {
		return refuse(cellv1.ErrorCode_ERROR_CODE_CLOSED, "the terminal is closed")
	}
	return nil
}

// wait waits for c, at most for d.
func wait(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// control runs an ioctl on a file without taking it out of the poller.
func control(f *os.File, do func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}
