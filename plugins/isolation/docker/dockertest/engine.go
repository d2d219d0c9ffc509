package dockertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
)

const (
	// upTime and downTime bound an engine's start and end on a busy machine.
	upTime   = 60 * time.Second
	downTime = 60 * time.Second
	// dieTime is how long a containerd may take to follow its engine.
	dieTime = 10 * time.Second
)

// Engine is an engine of a test.
type Engine struct {
	// Dir is the engine's own directory; its path is short.
	Dir string
	// LiveRestore is whether containers live on while the engine is away.
	LiveRestore bool

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// Require ends a test that cannot have an engine: it needs root and dockerd.
// With AIRLOCK_REQUIRE in the environment that is a failure.
func Require(t testing.TB) {
	t.Helper()
	if why := lacking(); why != "" {
		if os.Getenv("AIRLOCK_REQUIRE") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
}

func lacking() string {
	if os.Geteuid() != 0 {
		return "a Docker engine of its own needs root"
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		return "there is no dockerd; hack/test-deps.sh installs it"
	}
	if _, err := os.Stat(busybox); err != nil {
		return "there is no " + busybox + " to make an image of; hack/test-deps.sh installs it"
	}
	return ""
}

// Start starts an engine that lives until the test's end.
func Start(t testing.TB) *Engine {
	t.Helper()
	Require(t)
	e, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// New starts an engine with live-restore; the caller closes it.
func New() (*Engine, error) {
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		return nil, err
	}
	e := &Engine{Dir: dir, LiveRestore: true}
	if err := e.Up(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Socket is the path of the engine's socket.
func (e *Engine) Socket() string { return filepath.Join(e.Dir, "docker.sock") }

// Endpoint is the same as a URL.
func (e *Engine) Endpoint() string { return "unix://" + e.Socket() }

// PID is the engine's process.
func (e *Engine) PID() int { return e.cmd.Process.Pid }

// Up starts the engine, which is down, and waits until it answers.
func (e *Engine) Up() error {
	log, err := os.OpenFile(e.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// A killed engine leaves its pid file, and its number may be somebody
	// else's by now.
	_ = os.Remove(filepath.Join(e.Dir, "pid"))
	if e.containerd() == 0 {
		// It may be a zombie that nobody has reaped yet; an engine takes that
		// for alive and waits for it in vain.
		_ = os.Remove(e.containerdPID())
	}
	e.cmd = exec.Command("dockerd",
		"--data-root", filepath.Join(e.Dir, "data"), "--exec-root", filepath.Join(e.Dir, "exec"),
		"--pidfile", filepath.Join(e.Dir, "pid"), "--host", e.Endpoint(), "--config-file", filepath.Join(e.Dir, "none.json"),
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
		"--userland-proxy=false", "--live-restore="+strconv.FormatBool(e.LiveRestore))
	if err := os.WriteFile(filepath.Join(e.Dir, "none.json"), []byte("{}"), 0o600); err != nil {
		return err
	}
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := e.cmd.Start(); err != nil {
		return err
	}
	done, cmd := make(chan struct{}), e.cmd
	e.done = done
	go func() { _ = cmd.Wait(); close(done) }()
	api, err := e.Client()
	if err != nil {
		return err
	}
	defer api.Close()
	for deadline := time.Now().Add(upTime); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := api.Ping(ctx, client.PingOptions{})
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("dockerd ended: %s", e.tail())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("dockerd does not answer: %w: %s", err, e.tail())
		}
	}
}

// Client is a new client of the engine; the caller closes it.
func (e *Engine) Client() (*client.Client, error) { return client.New(client.WithHost(e.Endpoint())) }

// Kill ends the engine as a crash would. Its containers live on.
func (e *Engine) Kill() {
	_ = e.cmd.Process.Kill()
	<-e.done
	// The engine's containerd dies with it, a moment later.
	for deadline := time.Now().Add(dieTime); e.containerd() != 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
}

// Down ends the engine as the machine's administrator would.
func (e *Engine) Down() error {
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.done:
		return nil
	case <-time.After(downTime):
		e.Kill()
		return errors.New("dockerd did not end by itself: " + e.tail())
	}
}

// Revive starts the engine again if it has ended.
func (e *Engine) Revive() error {
	select {
	case <-e.done:
		return e.Up()
	default:
		return nil
	}
}

// Hang makes the engine stand still, until Continue.
func (e *Engine) Hang() { _ = e.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue ends Hang.
func (e *Engine) Continue() { _ = e.cmd.Process.Signal(syscall.SIGCONT) }

// Close removes every container and everything that the engine has made.
func (e *Engine) Close() error {
	var errs []error
	if e.cmd != nil && e.cmd.Process != nil {
		e.Continue()
		select {
		case <-e.done: // containers of a dead engine are found by the next one
			errs = append(errs, e.Up())
		default:
		}
		errs = append(errs, e.clear(), e.Down())
	}
	errs = append(errs, e.reapContainerd(), e.unmount(), os.RemoveAll(e.Dir))
	return errors.Join(errs...)
}

// clear removes every container.
func (e *Engine) clear() error {
	api, err := e.Client()
	if err != nil {
		return err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(context.Background(), downTime)
	defer cancel()
	all, err := api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return err
	}
	for _, c := range all.Items {
		if _, err := api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			return err
		}
	}
	return nil
}

// reapContainerd ends the containerd of an engine that was killed, and did not
// come back.
func (e *Engine) reapContainerd() error {
	if pid := e.containerd(); pid != 0 {
		return unix.Kill(pid, unix.SIGKILL)
	}
	return nil
}

// containerd is the pid of the engine's containerd; 0 = it does not run.
func (e *Engine) containerd() int {
	b, err := os.ReadFile(e.containerdPID())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0
	}
	// A zombie has no command line.
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || !strings.Contains(string(line), e.Dir) {
		return 0 // gone, or another program
	}
	return pid
}

func (e *Engine) containerdPID() string {
	return filepath.Join(e.Dir, "exec", "containerd", "containerd.pid")
}

// unmount takes away what a killed engine has left mounted.
func (e *Engine) unmount() error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var at []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], e.Dir+"/") {
			at = append(at, f[4])
		}
	}
	for i := len(at) - 1; i >= 0; i-- { // the last one lies on top
		if err := unix.Unmount(at[i], unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", at[i], err)
		}
	}
	return nil
}

func (e *Engine) log() string { return filepath.Join(e.Dir, "log") }

// tail is the end of the engine's log.
func (e *Engine) tail() string {
	b, err := os.ReadFile(e.log())
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return string(b[max(0, len(b)-most):])
}
