package driver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	_ "github.com/airlock-host/airlock/plugins/isolation/hostsupervisor/internal/early"
	"github.com/airlock-host/airlock/sdk/isolation"
)

// serveEnv makes the test binary serve the driver on a socket instead of
// running tests, so that a test can kill a driver for real.
const serveEnv = "AIRLOCK_TEST_SERVE"

// built is what the tests run cells with.
type built struct{ dir, agent, sum string }

var agent built // built once for all tests of the package

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if socket := os.Getenv(serveEnv); socket != "" {
		return serveDriver(socket)
	}
	dir, err := os.MkdirTemp("", "al")
	if err == nil {
		// Cells of an ordinary user read it too.
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		defer os.RemoveAll(dir)
		agent, err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the cell agent:", err)
		return 1
	}
	code := m.Run()
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

// build builds the cell agent as it is shipped. The package is named here and
// nowhere imported.
func build(dir string) (built, error) {
	to := filepath.Join(dir, "airlock-cell")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to, "github.com/airlock-host/airlock/host/cmd/airlock-cell")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return built{}, fmt.Errorf("%w: %s", err, out)
	}
	b, err := os.ReadFile(to)
	if err != nil {
		return built{}, err
	}
	sum := sha256.Sum256(b)
	return built{dir, to, hex.EncodeToString(sum[:])}, os.Chmod(to, 0o755)
}

func serveDriver(socket string) int {
	l, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := grpc.NewServer()
	isolation.Register(s, New(hclog.New(&hclog.LoggerOptions{Level: hclog.Warn}), time.Now))
	if err := s.Serve(l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// groupsOf begins the names of the groups of this run; others may be running.
func groupsOf() string { return fmt.Sprintf("altest-%d-", os.Getpid()) }

// traces is what cells of these tests have left on the machine: groups,
// mounts, and processes of the cell agent that was built here.
func traces() string {
	var b bytes.Buffer
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(filepath.Base(p), groupsOf()) {
			fmt.Fprintln(&b, "group", p)
		}
		return nil
	})
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, agent.dir) {
			fmt.Fprint(&b, "mount ", line)
		}
	}
	// By the file itself: in a cell it has another path.
	own, err := os.Stat(agent.agent)
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
