package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/moby/moby/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/cell"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// rig is a driver process at an engine.
type rig struct {
	t       testing.TB
	dir     string // short; holds link directories and volumes
	host    string
	engine  *dockertest.Engine
	config  []byte
	shipped bool // the built plugin, started as a host does, and not the test binary

	process *os.Process
	end     func()
	conn    *grpc.ClientConn
	client  pluginv1.IsolationClient
	plugin  pluginv1.PluginClient
}

// block is a config block as the host sends it: defaults filled in.
func block(t testing.TB, change map[string]any) []byte {
	t.Helper()
	all := map[string]any{}
	for _, a := range schema().GetAttributes() {
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

// newRig starts a driver process at an engine; nil = the shared one.
func newRig(t testing.TB, e *dockertest.Engine, change map[string]any) *rig {
	t.Helper()
	r := bareRig(t, e, change)
	r.start()
	return r
}

func bareRig(t testing.TB, e *dockertest.Engine, change map[string]any) *rig {
	t.Helper()
	if e == nil {
		e = shared.get(t)
	}
	dir, err := os.MkdirTemp(have.dir, "r")
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{"image": dockertest.Busybox, "endpoint": e.Endpoint(), "pull": pullNever}
	maps.Copy(config, change)
	r := &rig{t: t, dir: dir, host: "host-of-" + filepath.Base(dir), engine: e, config: block(t, config)}
	t.Cleanup(r.close)
	return r
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

// start starts the driver and configures it.
func (r *rig) start() {
	r.t.Helper()
	if r.shipped {
		r.launch()
	} else {
		r.reexec()
	}
	r.client, r.plugin = pluginv1.NewIsolationClient(r.conn), pluginv1.NewPluginClient(r.conn)
	if err := r.configure(r.config); err != nil {
		r.t.Fatal(err)
	}
}

// reexec serves the driver from the test binary, race detector included.
func (r *rig) reexec() {
	r.t.Helper()
	socket := filepath.Join(r.dir, "driver.sock")
	_ = os.Remove(socket)
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = []string{serveEnv + "=" + socket, "GOCOVERDIR=" + r.dir}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.process, r.end = cmd.Process, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	if r.conn, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		r.t.Fatal(err)
	}
}

// launch starts the built plugin.
func (r *rig) launch() {
	r.t.Helper()
	cmd := exec.Command(have.plugin)
	c := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: plugin.Handshake(), Plugins: plugin.ClientSet(), Cmd: cmd, AutoMTLS: true, SkipHostEnv: true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, Logger: hclog.NewNullLogger(),
	})
	rpc, err := c.Client()
	if err != nil {
		r.t.Fatal(err)
	}
	r.process, r.end = cmd.Process, func() { _ = cmd.Process.Kill(); c.Kill() }
	r.conn = rpc.(*goplugin.GRPCClient).Conn
}

func (r *rig) configure(config []byte) error {
	_, err := r.plugin.Configure(r.ctx(), &pluginv1.ConfigureRequest{
		Instance: "test", ConfigJson: config, StateDir: r.dir, RunDir: r.dir, HostId: r.host,
	}, grpc.WaitForReady(true))
	return err
}

// kill ends the driver as a crash would.
func (r *rig) kill() {
	r.end()
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
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if r.client != nil {
		for id := range r.list(ctx) {
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

func (r *rig) list(ctx context.Context) map[string]*pluginv1.ListResponse {
	out := map[string]*pluginv1.ListResponse{}
	stream, err := r.client.List(ctx, &pluginv1.ListRequest{})
	for err == nil {
		var m *pluginv1.ListResponse
		if m, err = stream.Recv(); err == nil {
			out[m.GetRef().GetCellId()] = m
		}
	}
	if !errors.Is(err, io.EOF) {
		r.t.Errorf("list: %v", err)
	}
	return out
}

// awaitHealth follows the driver's health until it is as wanted.
func (r *rig) awaitHealth(ok func(*pluginv1.HealthResponse) bool) *pluginv1.HealthResponse {
	r.t.Helper()
	stream, err := r.plugin.Health(r.ctx(), &pluginv1.HealthRequest{})
	for err == nil {
		var m *pluginv1.HealthResponse
		if m, err = stream.Recv(); err == nil && ok(m) {
			return m
		}
	}
	r.t.Fatalf("health does not become as wanted: %v", err)
	return nil
}

func healthy(m *pluginv1.HealthResponse) bool {
	return m.GetState() == pluginv1.HealthState_HEALTH_STATE_HEALTHY
}

func unavailable(m *pluginv1.HealthResponse) bool {
	return m.GetState() == pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE
}

const workload = 71700 // uid of the workload

// spec is a spec with its directories made.
func (r *rig) spec(id string) *pluginv1.CellSpec {
	r.t.Helper()
	link, work := filepath.Join(r.dir, id), filepath.Join(r.dir, id+"-w")
	for _, d := range []string{link, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := os.Chown(work, workload, workload); err != nil {
		r.t.Fatal(err)
	}
	return &pluginv1.CellSpec{
		CellId: id, Incarnation: 1, HostId: r.host, AgentBinary: have.agent, AgentSha256: have.sum,
		LinkDir: link, LinkSecret: []byte(strings.Repeat("s", secretSize)), Uid: workload, Gid: workload,
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

func (r *rig) inspect(c *pluginv1.Cell) *pluginv1.CellStatus {
	r.t.Helper()
	got, err := r.client.Inspect(r.ctx(), &pluginv1.InspectRequest{Ref: c.GetRef()})
	if err != nil {
		r.t.Fatal(err)
	}
	return got.GetStatus()
}

// api is a client of the engine of the test's own.
func (r *rig) api() *client.Client {
	r.t.Helper()
	api, err := r.engine.Client()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = api.Close() })
	return api
}

// handleOf reads the driver's own words in a ref.
func handleOf(t testing.TB, ref *pluginv1.CellRef) *handle {
	t.Helper()
	h, err := readHandle(ref)
	if err != nil || h == nil {
		t.Fatalf("handle: %v", err)
	}
	return h
}

// link opens a cell's link, claimed for a mission.
func (r *rig) link(c *pluginv1.Cell) *cell.Conn {
	r.t.Helper()
	conn, err := cell.Dial(r.ctx(), c.GetLink(), []byte(strings.Repeat("s", secretSize)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.Bind(r.ctx(), "m", 1); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// begin starts a program in a cell.
func (r *rig) begin(conn *cell.Conn, c *pluginv1.Cell, id string, argv ...string) {
	r.t.Helper()
	_, err := conn.Start(r.ctx(), &cellv1.Start{
		SessionId: id, Generation: 1, Argv: argv, Cwd: c.GetFacts().GetWorkspace(),
		Uid: c.GetFacts().GetUid(), Gid: c.GetFacts().GetGid(), OnFull: cellv1.OnFull_ON_FULL_BLOCK,
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// say runs a script to its end, whatever its exit, and gives its output.
func (r *rig) say(conn *cell.Conn, c *pluginv1.Cell, id, script string) string {
	r.t.Helper()
	r.begin(conn, c, id, "/bin/sh", "-c", script)
	return r.read(conn, id)
}

// read reads a session's output from its beginning to its end.
func (r *rig) read(conn *cell.Conn, id string) string {
	r.t.Helper()
	out, err := conn.ReadOutput(r.ctx(), id, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Close()
	var b bytes.Buffer
	for {
		f, err := out.Next()
		if errors.Is(err, io.EOF) || err == nil && f.GetEnd() != nil {
			return b.String()
		}
		if err != nil {
			r.t.Fatal(err)
		}
		b.Write(f.GetData().GetData())
	}
}

// until waits for something to become true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// work is a path in the workspace of a cell of this id.
func (r *rig) work(id, name string) string { return filepath.Join(r.dir, id+"-w", name) }

// readFile reads a file; one that is not there is empty.
func readFile(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// volumes and networks are what the engine has of them.
func (r *rig) volumes() (names []string) {
	r.t.Helper()
	got, err := r.api().VolumeList(r.ctx(), client.VolumeListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range got.Items {
		names = append(names, v.Name)
	}
	return names
}

func (r *rig) networks() int {
	r.t.Helper()
	got, err := r.api().NetworkList(r.ctx(), client.NetworkListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return len(got.Items)
}

// errors is what a session has said so far that looks like trouble.
func (r *rig) errors(conn *cell.Conn, id string) string {
	r.t.Helper()
	out, err := conn.ReadOutput(r.ctx(), id, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Close()
	for {
		f, err := out.Next()
		if err != nil || f.GetEnd() != nil {
			return ""
		}
		if s := string(f.GetData().GetData()); strings.Contains(s, "can't") {
			return s
		}
	}
}
