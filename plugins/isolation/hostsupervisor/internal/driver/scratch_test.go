package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"github.com/airlock-host/airlock/plugins/isolation/hostsupervisor/internal/stage"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestMain(m *testing.M) { stage.Main(); os.Exit(m.Run()) }

func say(t *testing.T, link, cmd string) string {
	c, err := net.Dial("unix", link)
	if err != nil { t.Fatal(err) }
	defer c.Close()
	c.Write([]byte(cmd))
	b, _ := io.ReadAll(c)
	return string(b)
}

func TestScratch(t *testing.T) {
	base, _ := os.MkdirTemp("", "al")
	defer os.RemoveAll(base)
	ns := os.Getenv("NS"); if ns == "" { ns = "auto" }
	d := New(hclog.Default(), time.Now)
	ctx := context.Background()
	os.MkdirAll(base+"/state", 0o700)
	t0 := time.Now()
	if err := d.Configure(ctx, &pluginv1.ConfigureRequest{Instance: "i", HostId: "h", StateDir: base + "/state", RunDir: base,
		ConfigJson: []byte(`{"user":null,"cgroup_parent":null,"namespaces":"`+ns+`","landlock":true,"hide":["/root"],"writable":[]}`)}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("configure", time.Since(t0), d.Health().Current())
	b, _ := os.ReadFile("/tmp/hs/fakecell")
	sum := sha256.Sum256(b)
	ws := base + "/ws"; os.Mkdir(ws, 0o777)
	spec := func(id string) *pluginv1.CellSpec {
		ld := filepath.Join(base, id); os.Mkdir(ld, 0o700)
		mode := pluginv1.NetworkMode_NETWORK_MODE_NONE
		if ns == "none" { mode = pluginv1.NetworkMode_NETWORK_MODE_OPEN }
		return &pluginv1.CellSpec{CellId: id, Incarnation: 1, HostId: "h", AgentBinary: "/tmp/hs/fakecell", AgentSha256: hex.EncodeToString(sum[:]),
			LinkDir: ld, LinkSecret: make([]byte, 32), Network: &pluginv1.Network{Mode: mode},
			Resources: &pluginv1.Resources{Cpu: 0.5, MemoryBytes: 256 << 20, Pids: 64, DiskBytes: 64<<20},
			Volumes: []*pluginv1.Volume{{VolumeId: "w", Kind: pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE, HostPath: ws, Target: "/workspace"}}}
	}
	t0 = time.Now()
	r, err := d.Create(ctx, &pluginv1.CreateRequest{Spec: spec("c0")})
	if err != nil { t.Fatal(err) }
	fmt.Println("create", time.Since(t0), r.Cell.Facts, len(r.Cell.Ref.DriverState))
	for _, c := range []string{"id", "ps ax | head; cat /proc/self/mountinfo | wc -l", "ls / /root /run /dev", "cat /proc/self/status | grep -E 'Cap|NoNew'", "touch /workspace/x /tmp/y /usr/z /etc/q; ls -la /workspace /etc/q", "cat /proc/net/dev; hostname", "cat /proc/self/cgroup", "ls -la /proc/self/fd; ls -la /run/airlock/*", "df /tmp | tail -1; cat /proc/self/mountinfo"} {
		fmt.Println("$", c, "\n", say(t, r.Cell.Link, c))
	}
	var ts []time.Duration
	for i := range 50 {
		t0 = time.Now()
		if _, err := d.Create(ctx, &pluginv1.CreateRequest{Spec: spec(fmt.Sprintf("c%d", i+1))}); err != nil { t.Fatal(err) }
		ts = append(ts, time.Since(t0))
	}
	fmt.Println(ts)
	ts = nil
	for i := range 51 {
		t0 = time.Now()
		p, err := d.Stop(ctx, &pluginv1.StopRequest{Ref: &pluginv1.CellRef{CellId: fmt.Sprintf("c%d", i)}})
		if err != nil { t.Fatal(err) }
		ts = append(ts, time.Since(t0))
		if i == 0 { fmt.Println(p) }
		if i == 0 { s, err := d.Inspect(ctx, &pluginv1.InspectRequest{Ref: &pluginv1.CellRef{CellId: "c0"}}); fmt.Println(s, err) }
		t1 := time.Now()
		if _, err := d.Destroy(ctx, &pluginv1.DestroyRequest{Ref: &pluginv1.CellRef{CellId: fmt.Sprintf("c%d", i)}}); err != nil { t.Fatal(err) }
		if i%10 == 0 { fmt.Println("destroy", time.Since(t1)) }
	}
	fmt.Println(ts)
	d.Shutdown(ctx)
}
