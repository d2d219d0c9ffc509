package plugins

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// process is one running plugin. It is go-plugin's runner.Runner, but reads
// standard output and standard error itself: go-plugin's own log parser
// panics on some JSON, and its diagnosis is a guess.
type process struct {
	image   *image
	forker  *forker
	logs    *logs
	env     []string
	uid     *ids
	limits  []rlimit
	timeout time.Duration

	socketDir string
	pid       int // 0 until it was started
	handshake string
	started   time.Time
	stderrEnd chan struct{}
	reaped    chan struct{} // closed when the process has ended and state is set
	exited    chan struct{} // closed when its last words were read too
	state     *os.ProcessState
	endOnce   sync.Once

	mu        sync.Mutex
	os        *os.Process
	killed    bool
	killedFor string // why the host killed it

	client *goplugin.Client
	conn   *grpc.ClientConn
	// What the plugin says of itself, and the config that it runs with.
	description *pluginv1.DescribeResponse
	configSum   [32]byte
	calls       sync.WaitGroup // bounded calls under way; see instance.current
}

// ids are the user and group of a plugin process.
type ids struct{ uid, gid uint32 }

type rlimit struct {
	resource int
	value    uint64
}

// Start runs the image and waits for its handshake line.
func (p *process) Start(ctx context.Context) error {
	stdout, err := p.spawn()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(stdout, maxHandshake)
	line, err := p.readHandshake(ctx, stdout, in)
	if fault := p.judge(line, err); fault != nil {
		p.kill("")
		<-p.exited
		_ = stdout.Close()
		return fault
	}
	p.handshake = line
	go func() {
		defer stdout.Close()
		p.logs.consume(in)
	}()
	return nil
}

// spawn starts the process with standard input from /dev/null and pipes for
// the rest, and begins to read standard error.
func (p *process) spawn() (stdout *os.File, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, p.trouble(err)
	}
	defer null.Close()
	stdout, stdoutW, err := os.Pipe()
	if err != nil {
		return nil, p.trouble(err)
	}
	defer stdoutW.Close()
	stderr, stderrW, err := os.Pipe()
	if err != nil {
		_ = stdout.Close()
		return nil, p.trouble(err)
	}
	defer stderrW.Close()

	attr := &os.ProcAttr{
		Dir: "/", Env: p.env, Files: []*os.File{null, stdoutW, stderrW},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if p.uid != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: p.uid.uid, Gid: p.uid.gid}
	}
	// The kernel opens the path after the fork and before it closes the
	// descriptors of the host, so a program needs no descriptor of its own. A
	// script's interpreter opens it later and does.
	path := fmt.Sprintf("/proc/self/fd/%d", p.image.file.Fd())
	if p.image.script {
		attr.Files = append(attr.Files, p.image.file)
		path = "/proc/self/fd/3"
	}
	p.started = time.Now()
	started, err := p.forker.start(path, []string{p.image.found.File}, attr)
	if err != nil {
		_, _ = stdout.Close(), stderr.Close()
		return nil, p.cannotRun(err)
	}
	p.mu.Lock()
	p.os, p.pid = started, started.Pid
	if p.killed {
		_ = started.Kill()
	}
	p.mu.Unlock()
	for _, l := range p.limits {
		_ = unix.Prlimit(p.pid, l.resource, &unix.Rlimit{Cur: l.value, Max: l.value}, nil)
	}
	p.stderrEnd = make(chan struct{})
	go func() {
		defer close(p.stderrEnd)
		defer stderr.Close()
		p.logs.consume(stderr)
	}()
	go p.wait(started, stdout, stderr)
	return stdout, nil
}

// wait reaps the process. Its children may hold the pipes open; they are read
// on for a moment and no longer.
func (p *process) wait(started *os.Process, pipes ...*os.File) {
	p.state, _ = started.Wait()
	close(p.reaped)
	for _, pipe := range pipes {
		_ = pipe.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	}
	<-p.stderrEnd
	p.logs.flush()
	close(p.exited)
}

// readHandshake reads the first line, or what there is of it when the time is
// over or the stream has ended.
func (p *process) readHandshake(ctx context.Context, stdout *os.File, in *bufio.Reader) (string, error) {
	now := func() { _ = stdout.SetReadDeadline(time.Now()) }
	// A timer, not a deadline set now: wait sets its own when the process ends.
	timer := time.AfterFunc(p.timeout, now)
	defer timer.Stop()
	defer context.AfterFunc(ctx, now)()
	line, err := in.ReadSlice('\n')
	return string(line), err
}

// judge says what is wrong with the beginning of a plugin's life, if anything.
func (p *process) judge(line string, err error) *Fault {
	path := p.image.found.Path
	if line != "" {
		return checkHandshake(path, line, p.socketDir)
	}
	if p.wasReaped() {
		<-p.exited
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && p.alive() {
		return faultf(StartTimeout, "%s printed no handshake within %s", path, p.timeout).
			advise("it is no Airlock plugin, or it hangs before it serves").words(p.logs.words()).retry()
	}
	if err == nil {
		return faultf(StartTimeout, "%s printed an empty handshake", path)
	}
	if p.alive() && !p.endsWithin(time.Second) {
		return faultf(Junk, "%s closed its standard output before its handshake", path).words(p.logs.words())
	}
	words := p.logs.words()
	if strings.Contains(strings.Join(words, " "), notForPeople) {
		return faultf(WrongMagic, "%s does not know this host's magic cookie", path).
			advise("it was built for another program, or for another version of Airlock")
	}
	return faultf(ExitsEarly, "%s ended before its handshake (%s)", path, p.ending()).words(words).retry()
}

func (p *process) cannotRun(err error) *Fault {
	path := p.image.found.Path
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return faultf(NotExecutable, "the kernel does not run %s", path).advise("install it again")
	case errors.Is(err, syscall.ENOENT):
		return faultf(NotExecutable, "%s needs an interpreter or loader that this machine does not have", path).
			advise("install what it needs, or a static build")
	case errors.Is(err, syscall.EACCES):
		return faultf(NotExecutable, "%s may not be executed", path).advise("look at security modules and at the sysctl vm.memfd_noexec")
	}
	return p.trouble(err)
}

func (p *process) trouble(err error) *Fault {
	return faultf(HostTrouble, "%s cannot be started: %v", p.image.found.Path, err).retry()
}

func (p *process) wasReaped() bool {
	select {
	case <-p.reaped:
		return true
	default:
		return false
	}
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// ending is how the process ended, in words; only after exited.
func (p *process) ending() string {
	p.mu.Lock()
	why := p.killedFor
	p.mu.Unlock()
	if why != "" {
		return "killed by the host: " + why
	}
	if p.state == nil {
		return "unknown"
	}
	if status, ok := p.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Sprintf("signal %d, %s", status.Signal(), status.Signal())
	}
	return "exit code " + strconv.Itoa(p.state.ExitCode())
}

// kill ends the process at once. The reason is for the operator; empty when
// the end needs no explanation.
func (p *process) kill(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killedFor == "" {
		p.killedFor = reason
	}
	p.killed = true
	if p.os != nil {
		_ = p.os.Kill()
	}
}

// The rest of runner.Runner. Both streams are read by the process itself.

// Stdout is the handshake line, which is all that go-plugin needs.
func (p *process) Stdout() io.ReadCloser { return io.NopCloser(strings.NewReader(p.handshake)) }

// Stderr is empty; logs reads the real one.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name is the executable's name.
func (p *process) Name() string { return p.image.found.File }

// ID is the pid, empty before the start.
func (p *process) ID() string {
	if p.pid == 0 {
		return ""
	}
	return strconv.Itoa(p.pid)
}

// Wait waits for the end.
func (p *process) Wait(context.Context) error {
	<-p.exited
	return nil
}

// Kill ends the process at once.
func (p *process) Kill(context.Context) error {
	p.kill("")
	return nil
}

// Diagnose has nothing to add: Start says what is wrong.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost changes nothing: both see the same files.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin changes nothing.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// shutdown asks the plugin to tidy up. What it answers does not matter.
func (p *process) shutdown(ctx context.Context) {
	if p.conn != nil && p.alive() {
		_, _ = pluginv1.NewPluginClient(p.conn).Shutdown(ctx, &pluginv1.ShutdownRequest{})
	}
}
