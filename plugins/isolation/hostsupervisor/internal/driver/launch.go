package driver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
	"github.com/airlock-host/airlock/sdk/stage"
)

// start is what launch needs.
type start struct {
	level  level
	ownNet bool
	group  *cgroup.Group // may be nil
	setup  stage.Setup
	image  *image // the agent; nil for a probe
	secret []byte
	log    string // file for the agent's own output; empty = nowhere
}

// child is a stage that was started, and the agent that it becomes.
type child struct {
	pid    int
	status *os.File
	lines  *bufio.Reader
	goOn   *os.File
	done   chan struct{} // closed when it has ended and was reaped
	state  *os.ProcessState
}

// launch starts a stage: the agent, or this very program, in the cell's
// namespaces and cgroup, with nothing of the driver's but the descriptors that
// it needs. It outlives the driver: no death signal, a session of its own.
func (d *Driver) launch(s start) (c *child, err error) {
	var files closers
	defer files.close()

	setup, err := memory("setup", s.setup)
	if err != nil {
		return nil, err
	}
	files.add(setup)
	secret, err := secretPipe(s.secret)
	if err != nil {
		return nil, err
	}
	files.add(secret)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	files.add(null)
	out := null
	if s.log != "" {
		if out, err = os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return nil, err
		}
		files.add(out)
	}
	program, image, fork := s.program(), null, func(job func() error) error { return job() }
	if s.image != nil {
		image = s.image.file
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	files.add(statusW)
	goR, goW, err := os.Pipe()
	if err != nil {
		_ = statusR.Close()
		return nil, err
	}
	files.add(goR)

	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"airlock-isolation-" + Name, stage.Argument},
		Env: []string{}, Dir: "/", Stdin: null, Stdout: out, Stderr: out,
		ExtraFiles:  []*os.File{secret, setup, image, statusW, goR},
		SysProcAttr: s.attributes(),
	}
	if program != nil {
		cmd.Path, cmd.Args = stage.Program(), append(slices.Clone(s.setup.Argv), stage.AgentArgument)
		cmd.Env, cmd.ExtraFiles = s.setup.Env, []*os.File{secret, setup, program, statusW, goR}
		fork = d.forker.do
	}
	if s.group != nil && s.group.V2 != "" {
		dir, err := os.Open(s.group.V2)
		if err != nil {
			_, _ = statusR.Close(), goW.Close()
			return nil, fmt.Errorf("open the cell's group: %w", err)
		}
		files.add(dir)
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := fork(cmd.Start); err != nil {
		_, _ = statusR.Close(), goW.Close()
		return nil, fmt.Errorf("start a process for the cell: %w", short(err))
	}
	c = &child{pid: cmd.Process.Pid, status: statusR, lines: bufio.NewReader(statusR), goOn: goW, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its meaning is in the state
		c.state = cmd.ProcessState
		close(c.done)
	}()
	return c, nil
}

// program is the agent as its own stage; nil = this program is the stage. An
// agent that starts from the machine's own mount must not be a stage: below a
// user namespace there is no other.
func (s *start) program() *os.File {
	if s.image == nil || s.level != levelRoot {
		return nil
	}
	return s.image.stage
}

func (s *start) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if s.level == levelNone {
		return a
	}
	a.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if s.ownNet {
		a.Cloneflags |= unix.CLONE_NEWNET
	}
	if s.level == levelUser {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		// Else the child is the overflow uid, without capabilities.
		a.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}
	}
	return a
}

// report reads what the stage has done. It has made the cell's place and
// waits, or it has ended with the error.
func (c *child) report(ctx context.Context) (stage.Report, error) {
	line, err := c.line(ctx)
	if len(line) == 0 {
		// A probe says nothing and ends well.
		select {
		case <-c.done:
			if c.state.Success() {
				return stage.Report{}, nil
			}
			return stage.Report{}, fmt.Errorf("the process for the cell ended early (%v)", c.state)
		case <-ctx.Done():
			return stage.Report{}, errors.Join(ctx.Err(), err)
		}
	}
	return stage.Read(line)
}

// proceed lets the stage become the agent, and returns when it has.
func (c *child) proceed(ctx context.Context) error {
	if _, err := c.goOn.Write([]byte{1}); err != nil {
		return fmt.Errorf("the process for the cell ended early: %w", short(err))
	}
	line, err := c.line(ctx)
	if len(line) > 0 {
		_, err := stage.Read(line)
		return err
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// line reads one line of the status pipe; io.EOF without one = the pipe is
// closed on the other side.
func (c *child) line(ctx context.Context) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.status.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := c.lines.ReadBytes('\n')
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return line, err
}

// release lets the pipes go; a stage that still waits gives up.
func (c *child) release() { _, _ = c.status.Close(), c.goOn.Close() }

// memory holds a value as JSON in a file without a name, from its beginning.
func memory(name string, v any) (*os.File, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return f, nil
}

// secretPipe is a pipe with the secret in it and no writer: it can be read
// once.
func secretPipe(secret []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pass the secret: %w", err)
	}
	defer w.Close()
	if _, err := w.Write(secret); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("pass the secret: %w", err)
	}
	return r, nil
}

// tail is the end of a log, for an error message.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	const most = 600
	return strings.TrimSpace(string(b[max(0, len(b)-most):]))
}

func short(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

type closers []io.Closer

func (c *closers) add(x io.Closer) { *c = append(*c, x) }
func (c *closers) close() {
	for _, x := range *c {
		_ = x.Close()
	}
}
