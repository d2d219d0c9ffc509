package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// rig is one driver process with its directories.
type rig struct {
	t      testing.TB
	dir    string // short; holds link directories, volumes and the driver's state
	host   string
	config []byte

	cmd    *exec.Cmd
	conn   *grpc.ClientConn
	client pluginv1.IsolationClient
	plugin pluginv1.PluginClient
}

// block is a config block as the host sends it: defaults filled in.
func block(t testing.TB, change map[string]any) []byte {
	t.Helper()
	all := map[string]any{}
	for _, a := range (&Driver{}).Describe().GetSchema().GetAttributes() {
		var v any
		if a.GetDefaultJson() != "" {
			if err := json.Unmarshal([]byte(a.GetDefaultJson()), &v); err != nil {
				t.Fatalf("default of %s: %v", a.GetName(), err)
			}
		}
		all[a.GetName()] = v
	}
	maps.Copy(all, change)
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newRig starts a driver process.
func newRig(t testing.TB, change map[string]any) *rig {
	t.Helper()
	dir, err := os.MkdirTemp(built.dir, "r")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(dir))
	config := map[string]any{
		"cgroup_parent": groupsOf() + hex.EncodeToString(sum[:4]), "image": built.image.Dir, "qemu": built.image.QEMU,
		"memory": "128MiB", "disk": "64MiB",
	}
	maps.Copy(config, change)
	r := &rig{t: t, dir: dir, host: "host-of-" + filepath.Base(dir), config: block(t, config)}
	if err := os.Mkdir(r.state(), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	r.start()
	return r
}

func (r *rig) state() string { return filepath.Join(r.dir, "state") }

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

// start starts the driver and configures it.
func (r *rig) start() {
	r.t.Helper()
	socket := filepath.Join(r.dir, "driver.sock")
	_ = os.Remove(socket)
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	r.cmd = exec.Command(exe)
	r.cmd.Env = []string{serveEnv + "=" + socket, "GOCOVERDIR=" + r.dir, fakeEnv + "=" + os.Getenv(fakeEnv)}
	r.cmd.Stderr = os.Stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.conn, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.client, r.plugin = pluginv1.NewIsolationClient(r.conn), pluginv1.NewPluginClient(r.conn)
	if err := r.configure(r.config); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) configure(config []byte) error {
	_, err := r.plugin.Configure(r.ctx(), &pluginv1.ConfigureRequest{
		Instance: "test", ConfigJson: config, StateDir: r.state(), RunDir: r.dir, HostId: r.host,
	}, grpc.WaitForReady(true))
	return err
}

// kill ends the driver as a crash would.
func (r *rig) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	_ = r.conn.Close()
}

// restart is what the conformance kit wants.
func (r *rig) restart(context.Context) (pluginv1.IsolationClient, error) {
	r.kill()
	r.start()
	return r.client, nil
}

// close checks that List is empty, and takes everything away.
func (r *rig) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if r.client != nil {
		for _, id := range r.list(ctx) {
			if !r.t.Failed() {
				r.t.Errorf("cell %s was left", id)
			}
			_, _ = r.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: &pluginv1.CellRef{CellId: id}, Force: true})
		}
		_, _ = r.plugin.Shutdown(ctx, &pluginv1.ShutdownRequest{})
		r.kill()
	}
	if err := os.RemoveAll(r.dir); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) list(ctx context.Context) (ids []string) {
	stream, err := r.client.List(ctx, &pluginv1.ListRequest{})
	for err == nil {
		var m *pluginv1.ListResponse
		if m, err = stream.Recv(); err == nil {
			ids = append(ids, m.GetRef().GetCellId())
		}
	}
	return ids
}

// health waits until the driver says how it is.
func (r *rig) health() *pluginv1.HealthResponse {
	r.t.Helper()
	stream, err := r.plugin.Health(r.ctx(), &pluginv1.HealthRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// spec is a spec with its directories made.
func (r *rig) spec(id string) *pluginv1.CellSpec {
	r.t.Helper()
	link, work := filepath.Join(r.dir, id), filepath.Join(r.dir, id+"-w")
	for _, d := range []string{link, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := os.Chmod(work, 0o777); err != nil { // for whatever uid the workload has
		r.t.Fatal(err)
	}
	return &pluginv1.CellSpec{
		CellId: id, Incarnation: 1, HostId: r.host, AgentBinary: built.agent, AgentSha256: built.sum,
		LinkDir: link, LinkSecret: []byte(strings.Repeat("s", secretSize)),
		Network: &pluginv1.Network{Mode: pluginv1.NetworkMode_NETWORK_MODE_NONE},
		Volumes: []*pluginv1.Volume{{VolumeId: id, Kind: pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE, HostPath: work, Target: "/workspace"}},
	}
}

func (r *rig) create(spec *pluginv1.CellSpec) *pluginv1.Cell {
	r.t.Helper()
	got, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: spec})
	if err != nil {
		r.t.Fatal(err)
	}
	return got.GetCell()
}

func (r *rig) destroy(id string) {
	r.t.Helper()
	ref := &pluginv1.CellRef{CellId: id}
	if _, err := r.client.Destroy(r.ctx(), &pluginv1.DestroyRequest{Ref: ref, Force: true}); err != nil {
		r.t.Fatal(err)
	}
}

// handleOf reads the driver's own words in a ref.
func handleOf(t testing.TB, ref *pluginv1.CellRef) handle {
	t.Helper()
	h, err := parseHandle(ref.GetDriverState())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// waitFor waits for something to become true.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// asRoot ends a test that needs root; CI makes that a failure.
func asRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("AIRLOCK_REQUIRE") != "" {
		t.Fatal("this test needs root")
	}
	t.Skip("this test needs root")
}
