package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readyWait is how long the program that is to take over may take to be ready;
	// the host works meanwhile.
	readyWait = 3 * time.Minute
	// upWait is how long it may take to serve once it has everything.
	upWait = 2 * time.Minute
	// killWait is how long a process that was killed may take to be gone.
	killWait = 10 * time.Second
)

// Succession is how a host has let go: for a process that is up, or, since that
// one failed after it had everything, for this program begun anew.
type Succession struct {
	PID    int       // of the process that is up; 0: none
	Life   int       // the descriptor that it lives with
	Handed *Handover // for this program begun anew; nil: it is not needed
}

// successor is the process that is to take the host over.
type successor struct {
	pid     int
	process *os.Process
	link    *link
	fds     map[string]int // copies of the listeners
	life    int            // our end; 0: the guard has it
}

// prepareSuccessor starts the program that now lies at the host's path and waits
// until it is ready. Until then, and when it does not come to it, the host goes on
// as if nothing had happened; nil then.
func (h *host) prepareSuccessor(ctx context.Context, l *listeners) *successor {
	s, err := h.startSuccessor(l)
	if err == nil {
		var m message
		if m, err = s.link.receive(ctx, readyWait); err == nil {
			err = h.fits(m)
		}
		if err == nil {
			return s
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("it ended before it was ready; what it said is above")
		}
		s.giveUp()
		l.keep()
	}
	h.log.Error("the host is not replaced: the program at its path cannot take over", "program", h.opts.Program, "error", err)
	return nil
}

// fits says why a program that is ready must not take over: a plugin that works
// here does not work for it.
func (h *host) fits(m message) error {
	if !m.Ready {
		return errors.New("it says something else than that it is ready")
	}
	var worse []string
	for _, ref := range slices.Sorted(maps.Keys(m.Unwell)) {
		if _, err := h.catalog.Capabilities(ref); err == nil {
			worse = append(worse, ref+": "+m.Unwell[ref])
		}
	}
	if len(worse) > 0 {
		return fmt.Errorf("plugins that work now would not work any more: %s", strings.Join(worse, "; "))
	}
	return nil
}

// startSuccessor starts the process, with copies of the listeners.
func (h *host) startSuccessor(l *listeners) (_ *successor, err error) {
	s := &successor{fds: map[string]int{}}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if s.fds, err = l.copies(); err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make the link: %w", err)
	}
	s.link = newLink(pair[0])
	defer unix.Close(pair[1])
	life := h.opts.Handed.guarded()
	if life == 0 {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("make the link: %w", err)
		}
		life, s.life = pipe[0], pipe[1]
		defer unix.Close(life)
	}
	// Where the new process finds them.
	files := []uintptr{0, 1, 2, 0}
	over := &Handover{FDs: map[string]int{}}
	give := func(name string, fd int) {
		over.FDs[name] = len(files)
		files = append(files, uintptr(fd)) //nolint:gosec // a descriptor
	}
	for name, fd := range s.fds {
		give(name, fd)
	}
	give("link", pair[1])
	give("life", life)
	said, err := over.sealed()
	if err != nil {
		return nil, err
	}
	defer unix.Close(said)
	files[3] = uintptr(said) //nolint:gosec // a descriptor
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WATCHDOG_PID=") })
	attr := &syscall.ProcAttr{Env: append(env, handoverEnv+"=3"), Files: files, Sys: &syscall.SysProcAttr{}}
	if h.opts.Handed.guarded() != 0 {
		attr.Sys.Cloneflags = unix.CLONE_PARENT // the guard's, as this process is
	}
	if s.pid, _, err = syscall.StartProcess(h.opts.Program, os.Args, attr); err != nil {
		return nil, fmt.Errorf("start %s: %w", h.opts.Program, err)
	}
	s.process, err = os.FindProcess(s.pid)
	return s, err
}

// handOver gives the host away and waits until the other process serves.
func (s *successor) handOver(token string) error {
	if err := s.link.send(message{Yours: true, Token: token}); err != nil {
		return err
	}
	m, err := s.link.receive(context.Background(), upWait)
	if err == nil && !m.Up {
		err = errors.New("it says something else than that it serves")
	}
	return err
}

// giveUp ends the process and everything that was made for it.
func (s *successor) giveUp() {
	s.kill()
	s.release()
}

// kill ends the process, and waits for that: it may hold what this one needs.
func (s *successor) kill() {
	_ = s.process.Kill()
	if _, err := s.process.Wait(); err == nil {
		return
	}
	// It is the guard's child, which reaps it.
	for end := time.Now().Add(killWait); s.process.Signal(syscall.Signal(0)) == nil && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *successor) release() {
	if s.link != nil {
		_ = s.link.f.Close()
	}
	if s.life != 0 {
		_ = unix.Close(s.life)
	}
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
	s.fds = nil
}

// copies gives descriptors of the listeners that stay when those are closed. They
// are not taken by File and Fd, which make the listeners themselves block.
func (l *listeners) copies() (map[string]int, error) {
	fds := map[string]int{}
	for name, one := range map[string]net.Listener{"rest": l.rest, "ws": l.ws, "socket": l.socket} {
		raw, ok := one.(syscall.Conn)
		if !ok {
			return fds, fmt.Errorf("the listener %s cannot be handed over", name)
		}
		c, err := raw.SyscallConn()
		if err == nil {
			var derr error
			err = c.Control(func(fd uintptr) { fds[name], derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
			err = errors.Join(err, derr)
		}
		if err != nil {
			delete(fds, name)
			return fds, fmt.Errorf("hand over the listener %s: %w", name, err)
		}
	}
	return fds, nil
}

// guarded is the descriptor that this process lives with; 0: it is the one that
// supervisors know.
func (h *Handover) guarded() int {
	if h == nil {
		return 0
	}
	return h.life
}
