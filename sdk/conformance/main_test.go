package conformance_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin/plugintest"
)

// programs are built once for all tests of the package.
var programs struct{ dir, agent, sum string }

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs.dir, programs.agent = dir, filepath.Join(dir, "airlock-cell")
	err = os.Chmod(dir, 0o755)
	if bin := os.Getenv("AIRLOCK_BIN"); bin != "" { // `make test` has built it
		programs.agent = filepath.Join(bin, "airlock-cell")
	} else if err == nil {
		// Named here and nowhere imported.
		err = build(programs.agent, "github.com/airlock-host/airlock/host/cmd/airlock-cell")
	}
	b, readErr := os.ReadFile(programs.agent)
	if err != nil || readErr != nil {
		fmt.Fprintln(os.Stderr, "build the cell agent:", err, readErr)
		return 1
	}
	sum := sha256.Sum256(b)
	programs.sum = hex.EncodeToString(sum[:])
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func build(to, pkg string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return nil
}

// bench runs a driver in this process.
type bench struct {
	t    *testing.T
	dir  string
	make func() isolation.Driver

	mu     sync.Mutex
	plugin pluginv1.PluginClient
}

func newBench(t *testing.T, makeDriver func() isolation.Driver) *bench {
	t.Helper()
	dir, err := os.MkdirTemp(programs.dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { // the workload has another uid
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, dir: dir, make: makeDriver}
}

// start makes a new driver over the same state: what was in memory is gone.
func (b *bench) start(ctx context.Context) (pluginv1.IsolationClient, error) {
	driver := b.make()
	conn := plugintest.Connect(b.t, func(s grpc.ServiceRegistrar) { isolation.Register(s, driver) })
	b.mu.Lock()
	b.plugin = pluginv1.NewPluginClient(conn)
	b.mu.Unlock()
	_, err := b.plugin.Configure(ctx, &pluginv1.ConfigureRequest{
		Instance: "test", ConfigJson: defaults(driver.Describe()), StateDir: filepath.Join(b.dir, "state"), RunDir: b.dir, HostId: "host-1",
	})
	return pluginv1.NewIsolationClient(conn), err
}

func (b *bench) run(o conformance.Options) []conformance.Check {
	b.t.Helper()
	client, err := b.start(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	o.AgentBinary, o.AgentSHA256, o.Dir, o.HostID = programs.agent, programs.sum, b.dir, "host-1"
	o.Features, o.Restart = b.make().Describe().GetFeatures(), b.start
	if os.Geteuid() == 0 && o.UID == 0 {
		o.UID, o.GID = 71234, 71234
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	return conformance.Isolation(b.t.Context(), client, o)
}

func defaults(d *pluginv1.DescribeResponse) []byte {
	all := map[string]json.RawMessage{}
	for _, a := range d.GetSchema().GetAttributes() {
		all[a.GetName()] = json.RawMessage("null")
		if a.GetDefaultJson() != "" {
			all[a.GetName()] = json.RawMessage(a.GetDefaultJson())
		}
	}
	b, _ := json.Marshal(all)
	return b
}
