package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// deadline is how long anything may take on a slow machine with two cores.
const deadline = 90 * time.Second

// bin is where the programs lie, program is the host itself; TestMain fills
// them.
var bin, program string

// closeNeeds ends what the tests of the drivers have started (drivers_test.go).
var closeNeeds = func() error { return nil }

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "in-cell" {
		os.Exit(inCell(os.Args[2:]))
	}
	dir := os.Getenv("AIRLOCK_BIN")
	if dir == "" {
		tmp, err := os.MkdirTemp("", "albin")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(tmp)
		if err := buildAll(tmp); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		dir = tmp
	}
	bin, program = dir, filepath.Join(dir, "airlock")
	code := runTests(m)
	if err := closeNeeds(); err != nil {
		fmt.Fprintln(os.Stderr, "end the Docker engine:", err)
		code = 1
	}
	os.Exit(code)
}

// runTests runs the tests; with AIRLOCK_RACE=1 the host is built with the race
// detector, so that real runs are searched for races too.
func runTests(m *testing.M) int {
	if os.Getenv("AIRLOCK_RACE") != "1" {
		return m.Run()
	}
	tmp, err := os.MkdirTemp("", "alrace")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(tmp)
	program = filepath.Join(tmp, "airlock")
	cmd := exec.Command("go", "build", "-race", "-o", program, "./host/cmd/airlock")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the host with the race detector: %v\n%s", err, text)
		return 1
	}
	return m.Run()
}

// buildAll builds the programs when `make build` has not.
func buildAll(dir string) error {
	for out, pkg := range map[string]string{
		"airlock": "./host/cmd/airlock", "airlock-cell": "./host/cmd/airlock-cell", "airlock-verify": "./host/cmd/airlock-verify",
		"plugins/airlock-isolation-host-supervisor": "./plugins/isolation/hostsupervisor",
		"plugins/airlock-isolation-docker":          "./plugins/isolation/docker",
		"plugins/airlock-isolation-qemu-kvm":        "./plugins/isolation/qemukvm",
		"plugins/airlock-runtime-command":           "./plugins/runtime/command",
		"plugins/airlock-runtime-claude-code":       "./plugins/runtime/claudecode",
		"plugins/airlock-revoker-webhook":           "./plugins/revoker/webhook",
	} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, out), pkg)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
	}
	return nil
}

// rig is an orchestrator and a host that is registered with it.
type rig struct {
	t    *testing.T
	orc  *orchestrator.Orchestrator
	dir  string
	conf string
	work string // the agent's workspace, read-write, seen by host and cell

	cmd      *exec.Cmd
	done     chan struct{}
	log      *lockedBuffer
	api      *http.Client
	patience int      // how many deadlines it waits; 0 is one
	env      []string // of the host, beside this process's
}

// time is how long the rig waits for something.
func (r *rig) time() time.Duration { return time.Duration(max(1, r.patience)) * deadline }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// settings change the configuration of a rig.
type settings struct {
	agent      string // further lines of the agent block
	governance string // further lines of the governance block
	policy     string // further lines of its policy block
	extra      string // further blocks
	headURL    string // governance.head.url
	runtime    string // lines of the command runtime's config
	slots      int
	plugins    string // directory of plugins; empty: the built ones
	samePort   bool   // the REST listener has one port over restarts
	orc        orchestrator.Options
	before     func(*rig) // called when all is laid out and before the host starts
}

func newRig(t *testing.T, s settings) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "ale2e")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, work: filepath.Join(dir, "work"), log: &lockedBuffer{}}
	r.orc = orchestrator.New(s.orc)
	if err := r.orc.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.work, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, r.work} {
		if err := os.Chmod(d, 0o777); err != nil { // the workload has a uid of its own
			t.Fatal(err)
		}
	}
	if s.slots == 0 {
		s.slots = 64
	}
	rest := "127.0.0.1:0"
	if s.samePort {
		rest = freePort(t)
	}
	if s.plugins == "" {
		s.plugins = filepath.Join(bin, "plugins")
	}
	r.conf = filepath.Join(dir, "airlock.hcl")
	text := fmt.Sprintf(`
name     = "e2e"
data_dir = "%[1]s/data"
run_dir  = "%[1]s/run"
listen {
  rest = "%[12]s"
  ws   = "127.0.0.1:0"
}
orchestrator {
  endpoint = "%[2]s"
}
plugins {
  dir  = "%[3]s"
  lock = "%[1]s/no.lock.hcl"
}
isolation "host-supervisor" "host" {
  config {}
}
runtime "command" "shell" {
  config {
    %[4]s
  }
}
governance {
  mode      = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
    %[10]s
  }
  head {
    file     = "%[1]s/heads/heads.jsonl"
    key_file = "%[1]s/heads/host.key"
    url      = "%[11]s"
  }
  %[5]s
}
agent "agent-01" {
  isolation  = isolation.host-supervisor.host
  runtime    = runtime.command.shell
  slots      = %[6]d
  workspace {
    source = "%[1]s/work"
    mode   = "read-write"
  }
  %[7]s
}
operator "e2e" {
  token_file = "%[1]s/operator.token"
  uids       = [%[8]d]
  role       = "operator"
}
%[9]s
`, dir, r.orc.URL(), s.plugins, s.runtime, s.governance, s.slots, s.agent, os.Getuid(), strings.ReplaceAll(s.extra, "{{work}}", r.work), s.policy, s.headURL, rest)
	write(t, r.conf, text, 0o600)
	write(t, filepath.Join(dir, "operator.token"), strings.Repeat("k3y-", 10), 0o600)
	sock := filepath.Join(dir, "run", "airlock.sock")
	r.api = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", sock)
		},
	}}
	if s.before != nil {
		s.before(r)
	}
	t.Cleanup(r.clean)
	r.start()
	return r
}

// freePort is an address below the ports that the kernel gives out by itself, so
// that nobody takes it while the host is away.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// start starts the host and waits until it is registered.
func (r *rig) start() {
	r.t.Helper()
	r.startAs(program)
}

// startAs is start with another copy of the host's program.
func (r *rig) startAs(program string) {
	r.t.Helper()
	cmd := exec.Command(program, "serve", "--config", r.conf, "--cell-agent", filepath.Join(bin, "airlock-cell"))
	cmd.Stdout, cmd.Stderr = r.log, r.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(append(os.Environ(), "HOME="+r.dir), r.env...)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	r.cmd, r.done = cmd, done
	r.until("the host is registered", func() bool { return r.connected() })
}

func (r *rig) connected() bool {
	select {
	case <-r.done:
		r.t.Fatalf("the host has ended: %v\n%s", r.cmd.ProcessState, r.log)
	default:
	}
	return r.listed()
}

// listed says that the orchestrator shows the host as connected.
func (r *rig) listed() bool {
	resp, err := http.Get(r.orc.URL() + "/api/v1/executors")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var list struct {
		Executors []struct {
			Connected bool `json:"connected"`
		} `json:"executors"`
	}
	return json.NewDecoder(resp.Body).Decode(&list) == nil && len(list.Executors) == 1 && list.Executors[0].Connected
}

// end sends a signal to the host and waits for its end.
func (r *rig) end(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.done:
	case <-time.After(deadline):
		_ = r.cmd.Process.Signal(syscall.SIGQUIT)
		<-r.done
		r.t.Fatalf("the host did not end after %v\n%s", sig, r.log)
	}
	if sig == syscall.SIGKILL { // serve notices by itself, and may take a moment
		r.until("the orchestrator has noticed the end", func() bool { return !r.listed() })
	}
	if sig == syscall.SIGTERM && r.cmd.ProcessState.ExitCode() != 0 {
		r.t.Errorf("exit code %d after SIGTERM\n%s", r.cmd.ProcessState.ExitCode(), r.log)
	}
}

// clean aborts what still runs, ends the host and looks for faults.
func (r *rig) clean() {
	select {
	case <-r.done:
		r.orc.SetDown(false)
		r.startQuietly()
	default:
	}
	r.abortAll()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err == nil {
		select {
		case <-r.done:
		case <-time.After(deadline):
			_ = r.cmd.Process.Kill()
			<-r.done
			r.t.Error("the host did not end at the end of the test")
		}
	}
	for _, v := range r.orc.Violations() {
		r.t.Errorf("breach of the contract: %s: %s", v.Kind, v.Detail)
	}
	r.orc.Close()
	text := r.log.String()
	if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		r.t.Error("the host had a data race or panicked")
	}
	if r.t.Failed() {
		if len(text) > 20000 {
			text = text[len(text)-20000:]
		}
		r.t.Logf("host's log:\n%s", text)
	}
	if left := cellPids(r.dir, false); len(left) > 0 {
		r.t.Errorf("processes of cells are left: %v", left)
	}
	if err := os.RemoveAll(r.dir); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) startQuietly() {
	cmd := exec.Command(program, "serve", "--config", r.conf, "--cell-agent", filepath.Join(bin, "airlock-cell"))
	cmd.Stdout, cmd.Stderr = r.log, r.log
	cmd.Env = append(os.Environ(), r.env...)
	if err := cmd.Start(); err != nil {
		r.t.Error(err)
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	r.cmd, r.done = cmd, done
}

// abortAll ends every live mission, so that no cell is left.
func (r *rig) abortAll() {
	end := time.Now().Add(deadline)
	for time.Now().Before(end) {
		var list struct {
			Missions []struct {
				ID      string `json:"mission_id"`
				State   string `json:"state"`
				Runtime string `json:"runtime"`
			} `json:"missions"`
		}
		if r.call("GET", "/api/v1/missions?live=true", nil, &list) != http.StatusOK {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		live := 0
		for _, m := range list.Missions {
			if m.Runtime == "harness" {
				continue // a task without a cell is stopped, it does not end
			}
			switch m.State {
			case "done", "failed", "aborted":
			default:
				live++
				r.call("POST", "/api/v1/missions/"+escape(m.ID)+"/abort", map[string]any{}, nil)
			}
		}
		if live == 0 {
			r.untilQuiet()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.t.Error("missions could not be aborted at the end of the test")
}

// untilQuiet waits until the cells of ended missions are gone.
func (r *rig) untilQuiet() {
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if len(cellPids(r.dir, false)) == 0 {
			return
		}
	}
}

// call talks to the operator socket; it gives the status code, 0 when the host
// did not answer.
func (r *rig) call(method, path string, body, into any) int {
	var rd io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			r.t.Fatal(err)
		}
		rd = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, "http://localhost"+path, rd)
	if err != nil {
		r.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.api.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if into != nil {
		_ = json.NewDecoder(resp.Body).Decode(into)
	}
	return resp.StatusCode
}

// until waits for a condition.
func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	for end := time.Now().Add(r.time()); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}
	r.t.Fatalf("it did not come to this in %v: %s\n%s", r.time(), what, r.log)
}
