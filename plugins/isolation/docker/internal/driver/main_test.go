package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	"github.com/airlock-host/airlock/sdk/isolation"
)

// serveEnv makes the test binary serve the driver on a socket instead of
// running tests, so that a test can kill a driver for real.
const serveEnv = "AIRLOCK_TEST_SERVE"

// built is what the tests run cells with.
type built struct {
	dir, agent, sum, plugin string
	began                   time.Time // when the tests began
}

var have built // built once for all tests of the package

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if socket := os.Getenv(serveEnv); socket != "" {
		return serveDriver(socket)
	}
	dir, err := os.MkdirTemp("", "al")
	if err == nil {
		defer os.RemoveAll(dir)
		have, err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		return 1
	}
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared engine:", err)
		code = 1
	}
	if left := traces(); left != "" {
		fmt.Fprintf(os.Stderr, "the tests left something behind:\n%s", left)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// build builds the cell agent and the plugin as they are shipped. The agent's
// package is named here and nowhere imported.
func build(dir string) (built, error) {
	b := built{dir: dir, agent: filepath.Join(dir, "airlock-cell"), plugin: filepath.Join(dir, "airlock-isolation-docker"), began: time.Now()}
	for to, pkg := range map[string]string{
		b.agent: "github.com/airlock-host/airlock/host/cmd/airlock-cell", b.plugin: "github.com/airlock-host/airlock/plugins/isolation/docker",
	} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return b, fmt.Errorf("%w: %s", err, out)
		}
	}
	program, err := os.ReadFile(b.agent)
	if err != nil {
		return b, err
	}
	sum := sha256.Sum256(program)
	b.sum = hex.EncodeToString(sum[:])
	return b, os.Chmod(b.agent, 0o755)
}

func serveDriver(socket string) int {
	l, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := grpc.NewServer()
	isolation.Register(s, New(hclog.New(&hclog.LoggerOptions{Level: hclog.Error}), time.Now))
	if err := s.Serve(l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// shared is the engine of every test that does no harm to it.
var shared sharedEngine

type sharedEngine struct {
	once   sync.Once
	engine *dockertest.Engine
	err    error
}

func (s *sharedEngine) get(t testing.TB) *dockertest.Engine {
	t.Helper()
	dockertest.Require(t)
	s.once.Do(func() {
		if s.engine, s.err = dockertest.New(); s.err == nil {
			s.err = s.engine.Import()
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.engine
}

func (s *sharedEngine) close() error {
	if s.engine == nil {
		return nil
	}
	return s.engine.Close()
}

// traces is what cells of these tests have left on the machine: processes of
// the cell agent that was built here, and mounts.
func traces() string {
	var b strings.Builder
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, have.dir) {
			fmt.Fprint(&b, "mount ", line)
		}
	}
	// By the file itself: in a cell it has another path.
	own, err := os.Stat(have.agent)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, p := range procs {
		if exe, err := os.Stat(p); err == nil && os.SameFile(exe, own) {
			fmt.Fprintln(&b, "process", p)
		}
	}
	return b.String()
}
