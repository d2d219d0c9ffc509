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
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/airlock-host/airlock/sdk/isolation"
)

// serveEnv makes the test binary serve the driver on a socket instead of
// running tests, so that a test can kill a driver for real.
const serveEnv = "AIRLOCK_TEST_SERVE"

// built is what the tests run cells with.
type built struct{ agent, sum string }

var agent built //nolint:gochecknoglobals // built once for all tests of the package

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
		agent, err = build(filepath.Join(dir, "airlock-cell"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the cell agent:", err)
		return 1
	}
	before := traces()
	code := m.Run()
	if after := traces(); after != before {
		fmt.Fprintf(os.Stderr, "the tests left something behind:\nbefore: %s\nafter:  %s\n", before, after)
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
func build(to string) (built, error) {
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
	return built{to, hex.EncodeToString(sum[:])}, os.Chmod(to, 0o755)
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

// traces is what a cell of these tests could leave on the machine: groups,
// mounts, and processes of the cell agent that was built here.
func traces() string {
	var b bytes.Buffer
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && bytes.Contains([]byte(filepath.Base(p)), []byte("altest-")) {
			fmt.Fprintln(&b, "group", p)
		}
		return nil
	})
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	fmt.Fprintln(&b, "mounts", bytes.Count(mounts, []byte("\n")))
	procs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, p := range procs {
		if exe, err := os.Readlink(p); err == nil && exe == agent.agent {
			fmt.Fprintln(&b, "process", p)
		}
	}
	return b.String()
}
