package cellagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// stageVar makes the test binary play another part: the agent, or the program
// that a workload runs.
const stageVar = "AIRLOCK_TEST_STAGE"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(stageVar) == "pid1":
		if err := mountProc(); err != nil {
			fmt.Fprintln(os.Stderr, "mount /proc:", err)
			os.Exit(1)
		}
		os.Exit(agentStage())
	case os.Getenv(stageVar) == "agent":
		os.Exit(agentStage())
	case len(os.Args) > 1 && os.Args[1] == "ask":
		os.Exit(Main(os.Args[1:], "test", os.Stdout, os.Stderr))
	case len(os.Args) > 1 && os.Args[1] == "fetch":
		os.Exit(fetchStage(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func agentStage() int { return Main(os.Args[1:], "test", os.Stdout, os.Stderr) }

func mountProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("proc", "/proc", "proc", 0, "")
}

// modes are the ways an agent runs.
type mode string

const (
	plain mode = "process"
	pid1  mode = "pid1"
)

// eachMode runs a test with an agent that is an ordinary process and with one
// that is pid 1 of a pid namespace.
func eachMode(t *testing.T, test func(t *testing.T, m mode)) {
	t.Helper()
	for _, m := range []mode{plain, pid1} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			if m == pid1 {
				needRoot(t, "a pid namespace")
			}
			test(t, m)
		})
	}
}

func needRoot(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("AIRLOCK_REQUIRE") != "" {
		t.Fatalf("%s needs root", what)
	}
	t.Skipf("%s needs root", what)
}

// agent is a cell agent under test.
type agent struct {
	t      testing.TB
	dir    string
	secret []byte
	cmd    *exec.Cmd
	stderr *lockedBuffer
	tag    string // in the environment of every session
	uid    uint32 // of the workload
}

var tags atomic.Uint64

// startAgent starts a cell agent and stops it with the test. It must leave
// nothing behind.
func startAgent(t testing.TB, m mode, args ...string) *agent {
	t.Helper()
	return startProgram(t, m, "/proc/self/exe", 0, args...)
}

// startAgentAs starts one that runs as an ordinary user, with workloads of the
// same uid.
func startAgentAs(t testing.TB, uid uint32) *agent {
	t.Helper()
	return startProgram(t, plain, "/proc/self/exe", uid)
}

// startProgram starts a program that is a cell agent.
func startProgram(t testing.TB, m mode, program string, as uint32, args ...string) *agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &agent{
		t: t, dir: dir, secret: bytes.Repeat([]byte{byte(tags.Load() + 1)}, 32), stderr: &lockedBuffer{},
		tag: fmt.Sprintf("AIRLOCK_TEST_TAG=%d-%d", os.Getpid(), tags.Add(1)),
	}
	if os.Geteuid() == 0 {
		a.uid = uint32(61000 + tags.Load()%1000)
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	a.cmd = exec.Command(program, append([]string{"serve", "--link-dir", dir, "--secret-fd", "3"}, args...)...)
	a.cmd.Env = []string{stageVar + "=agent", "GORACE=halt_on_error=1", "SECRET_OF_THE_AGENT=x"}
	a.cmd.ExtraFiles = []*os.File{r}
	a.cmd.Stderr = a.stderr
	a.cmd.SysProcAttr = &syscall.SysProcAttr{}
	if as != 0 {
		a.uid = 0
		a.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: as, Gid: as}
		if err := os.Chown(dir, int(as), int(as)); err != nil {
			t.Fatal(err)
		}
	}
	if m == pid1 {
		a.cmd.Env[0] = stageVar + "=pid1"
		a.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(a.secret)
	_ = w.Close()
	t.Cleanup(a.stop)
	eventually(t, "the link socket", func() bool {
		_, err := os.Stat(a.socket())
		return err == nil
	})
	return a
}

func (a *agent) socket() string { return filepath.Join(a.dir, "link.sock") }

func (a *agent) stop() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(60*time.Second, func() { _ = a.cmd.Process.Kill() })
	err := a.cmd.Wait()
	kill.Stop()
	if err != nil {
		a.t.Errorf("agent: %v", err)
	}
	if s := a.stderr.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") || err != nil {
		a.t.Errorf("agent's log:\n%s", s)
	}
	if left := a.survivors(); len(left) > 0 {
		a.t.Errorf("the agent left processes behind: %v", left)
	}
}

// survivors lists the processes of this agent's sessions that are not dead,
// found by their environment, whatever has become of their parents.
func (a *agent) survivors() []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var out []int
	for _, d := range dirs {
		b, err := os.ReadFile(d + "/environ")
		if err != nil || !bytes.Contains(b, []byte(a.tag)) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		if p, ok := readProc(pid); ok && !p.dead() {
			out = append(out, pid)
		}
	}
	return out
}

// dial connects and, unless it is told not to, binds the cell.
func (a *agent) dial(t testing.TB) *cell.Conn {
	t.Helper()
	c, err := cell.Dial(long(t), a.socket(), a.secret)
	if err != nil {
		t.Fatalf("dial: %v\n%s", err, a.stderr)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Bind(long(t), "mission", max(c.Hello().GetBound().GetGeneration(), 1)); err != nil {
		t.Fatalf("bind: %v", err)
	}
	return c
}

// session describes a session for start.
func (a *agent) session(id string, argv ...string) *cellv1.Start {
	return &cellv1.Start{
		SessionId: id, Generation: 1, Argv: argv, Env: []string{a.tag}, Cwd: "/",
		Uid: a.uid, OnFull: cellv1.OnFull_ON_FULL_BLOCK,
	}
}

func (a *agent) sh(id, script string) *cellv1.Start { return a.session(id, "/bin/sh", "-c", script) }

func start(t testing.TB, c *cell.Conn, s *cellv1.Start) *cellv1.Started {
	t.Helper()
	r, err := c.Start(long(t), s)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return r
}

// output is what a session has written.
type output struct {
	stdout, stderr []byte
	all            []byte
	gaps           []*cellv1.Gap
	end            uint64
}

// readAll reads a session's output to its end, acknowledging as it goes.
func readAll(t *testing.T, c *cell.Conn, session string) output {
	t.Helper()
	var o output
	o.read(t, c, session, 0, func(next uint64) bool {
		if err := c.Ack(long(t), session, next); err != nil {
			t.Fatalf("ack: %v", err)
		}
		return true
	})
	return o
}

// read reads until the end, or until more says no. It checks the offsets.
func (o *output) read(t *testing.T, c *cell.Conn, session string, from uint64, more func(next uint64) bool) {
	t.Helper()
	r, err := c.ReadOutput(long(t), session, from)
	if err != nil {
		t.Fatalf("read output: %v", err)
	}
	defer r.Close()
	at := from
	for {
		f, err := r.Next()
		if err != nil {
			t.Fatalf("output at %d: %v", at, err)
		}
		switch {
		case f.GetGap() != nil:
			if g := f.GetGap(); g.GetFrom() != at || g.GetTo() <= at {
				t.Fatalf("gap %v at offset %d", g, at)
			}
			o.gaps = append(o.gaps, f.GetGap())
			at = f.GetGap().GetTo()
		case f.GetEnd() != nil:
			if o.end = f.GetEnd().GetOffset(); o.end != at {
				t.Fatalf("end at %d, offset is %d", o.end, at)
			}
			return
		default:
			d := f.GetData()
			if d.GetOffset() != at || len(d.GetData()) == 0 {
				t.Fatalf("%d bytes at %d, expected offset %d", len(d.GetData()), d.GetOffset(), at)
			}
			at += uint64(len(d.GetData()))
			o.all = append(o.all, d.GetData()...)
			switch d.GetStream() {
			case cellv1.Stream_STREAM_STDOUT:
				o.stdout = append(o.stdout, d.GetData()...)
			case cellv1.Stream_STREAM_STDERR:
				o.stderr = append(o.stderr, d.GetData()...)
			default:
				t.Fatalf("stream %v", d.GetStream())
			}
			if !more(at) {
				return
			}
		}
	}
}

// readUntil reads output until it holds want.
func readUntil(t *testing.T, c *cell.Conn, session string, from uint64, want string) string {
	t.Helper()
	var o output
	o.read(t, c, session, from, func(uint64) bool { return !strings.Contains(string(o.all), want) })
	if !strings.Contains(string(o.all), want) {
		t.Fatalf("session ended without %q; output %q", want, o.all)
	}
	return string(o.all)
}

// event waits for an event of the wanted kind.
func event[T any](t testing.TB, c *cell.Conn, pick func(cell.Event) T) T {
	t.Helper()
	ctx := long(t)
	for {
		select {
		case e, ok := <-c.Events():
			if !ok {
				t.Fatalf("events ended: %v", c.Err())
			}
			if v := pick(e); any(v) != any(*new(T)) {
				return v
			}
		case <-ctx.Done():
			t.Fatal("no such event")
		}
	}
}

func exited(e cell.Event) *cellv1.Exited   { return e.Exited }
func waiting(e cell.Event) *cellv1.Waiting { return e.Waiting }
func asked(e cell.Event) *cellv1.Ask       { return e.Ask }

// long is a deadline that only a hang reaches.
func long(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("it never came: %s", what)
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var _ io.Writer = (*lockedBuffer)(nil)

var errNotFound error = cell.ErrNotFound

// redialHello opens a connection for what the agent says of itself.
func (a *agent) redialHello() (*cellv1.HelloReply, error) {
	c, err := cell.Dial(context.Background(), a.socket(), a.secret)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Hello(), nil
}

// openTempDir is a temporary directory that the workload can reach and write.
func openTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}
