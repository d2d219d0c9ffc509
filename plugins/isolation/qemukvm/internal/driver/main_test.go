package driver

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/helper"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/kvm"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/qemutest"
	"github.com/airlock-host/airlock/sdk/isolation"
)

// serveEnv makes the test binary serve the driver on a socket instead of
// running tests, so that a test can kill a driver for real. fakeEnv is a speed
// that its KVM probe pretends to have found.
const (
	serveEnv = "AIRLOCK_TEST_SERVE"
	fakeEnv  = "AIRLOCK_TEST_KVM"
)

// built is what the tests run cells with: built once for all of them.
var built struct {
	image           qemutest.Image
	dir, agent, sum string
	missing         error
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if len(os.Args) == 2 && os.Args[1] == helper.Argument {
		return helper.Main()
	}
	if socket := os.Getenv(serveEnv); socket != "" {
		return serveDriver(socket)
	}
	dir, err := os.MkdirTemp("", "al")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		defer os.RemoveAll(dir)
		built.dir = dir
		built.agent, built.sum, err = qemutest.Agent(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the cell agent:", err)
		return 1
	}
	built.image, built.missing = qemutest.Build()
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

func serveDriver(socket string) int {
	l, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := grpc.NewServer()
	probe := kvm.Probe
	if os.Getenv(fakeEnv) != "" {
		probe = func() kvm.Result {
			return kvm.Result{State: kvm.Works, PerSecond: 1e9, Detail: "a test says so"}
		}
	}
	isolation.Register(s, New(hclog.New(&hclog.LoggerOptions{Level: hclog.Warn}), time.Now, probe))
	if err := s.Serve(l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// groupsOf begins the names of the groups of this run; others may be running.
func groupsOf() string { return fmt.Sprintf("alqemu-%d-", os.Getpid()) }

// traces is what cells of these tests have left on the machine: groups, mounts,
// and processes that have something of theirs open.
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
		if strings.Contains(line, built.dir) {
			fmt.Fprint(&b, "mount ", line)
		}
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, built.dir+"/") && !strings.HasPrefix(fd, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			fmt.Fprintln(&b, "process", fd, to)
		}
	}
	return b.String()
}

// needVM ends a test that needs root, QEMU and a kernel; CI makes that a
// failure.
func needVM(t testing.TB) {
	t.Helper()
	asRoot(t)
	if built.missing == nil {
		return
	}
	if os.Getenv("AIRLOCK_REQUIRE") != "" {
		t.Fatal(built.missing)
	}
	t.Skip(built.missing)
}
