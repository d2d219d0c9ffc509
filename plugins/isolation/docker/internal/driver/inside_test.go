package driver

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestWhatACellSees(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(have.dir, "tool")
	if err := os.WriteFile(tool, []byte("tool\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, nil, map[string]any{"mounts": map[string]string{"/opt/tool": tool}})
	spec := r.spec("sees")
	spec.Resources = &pluginv1.Resources{Cpu: 0.5, MemoryBytes: 64 << 20, Pids: 64}
	c := r.create(spec)
	conn := r.link(c)
	for name, tt := range map[string]struct{ script, want string }{
		"a read-only root":                {"touch /x 2>&1; touch /etc/x 2>&1", "touch: /x: Read-only file system\ntouch: /etc/x: Read-only file system\n"},
		"a /tmp of its own, to run from":  {"cp /bin/busybox /tmp/ && /tmp/busybox echo yes", "yes\n"},
		"no interface but the loopback":   {"ls /sys/class/net; ip route", "lo\n"},
		"no capabilities":                 {"grep -E '^(CapInh|CapPrm|CapEff|CapAmb)' /proc/self/status | cut -f2 | sort -u", "0000000000000000\n"},
		"no way to new ones":              {"grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr '\\t' ' '", "NoNewPrivs: 1\nSeccomp: 2\n"},
		"its own uid":                     {"id -u; id -g; id -G", "71700\n71700\n71700\n"},
		"no way to the link":              {"ls /run/airlock/link 2>&1", "ls: can't open '/run/airlock/link': Permission denied\n"},
		"no memory of the agent":          {"head -c1 /proc/1/environ 2>&1; head -c1 /proc/1/mem 2>&1", "head: /proc/1/environ: Permission denied\nhead: /proc/1/mem: Permission denied\n"},
		"no signal to the agent":          {"kill -9 1 2>/dev/null || echo refused", "refused\n"},
		"an agent that cannot be changed": {"(echo x > /run/airlock/airlock-cell) 2>/dev/null || echo refused", "refused\n"},
		"a program to ask with":           {"$AIRLOCK_CELL version >/dev/null && echo yes", "yes\n"},
		"no limits to change":             {"(echo 1 > /sys/fs/cgroup/pids/pids.max) 2>/dev/null || echo refused", "refused\n"},
		"its own name":                    {"hostname", "sees\n"},
		"nothing of the engine's socket":  {"find / -name 'docker.sock' 2>/dev/null", ""},
		"a mount of the machine's":        {"cat /opt/tool; (echo x > /opt/tool) 2>/dev/null || echo refused", "tool\nrefused\n"},
		"no devices of the machine's":     {"ls /dev | grep -E '^(sd|vd|nvme|mem|kmsg|kvm)' | wc -l", "0\n"},
	} {
		if got := r.say(conn, c, strings.ReplaceAll(name, " ", "-"), tt.script); got != tt.want {
			t.Errorf("%s: %q says %q, not %q", name, tt.script, got, tt.want)
		}
	}
	for limit, how := range c.GetFacts().GetLimits() {
		if limit != "disk" && !strings.HasPrefix(how, "enforced-by:cgroup-v") {
			t.Errorf("the limit %s is %q", limit, how)
		}
	}
	if f := c.GetFacts(); f.GetLink() != pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED || !strings.Contains(f.GetRoot(), "sha256:") {
		t.Errorf("the facts say %v", f)
	}
	r.destroy("sees")
}

func TestTheAgentHasWhatItNeedsAndNoMore(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	c := r.create(r.spec("agent"))
	// Of every thread: one that starts workloads gives up more than the rest.
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(handleOf(t, c.GetRef()).Init.PID) + "/task/*/status")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("the agent's threads: %v, %v", tasks, err)
	}
	whole := 0
	for _, task := range tasks {
		status := readFile(task)
		if status == "" {
			continue // it has ended
		}
		for _, line := range []string{"NoNewPrivs:\t1\n", "CapBnd:\t00000000000000e3\n", "CapInh:\t0000000000000000\n", "Seccomp:\t2\n"} {
			if !strings.Contains(status, line) {
				t.Errorf("%s lacks %q", task, line)
			}
		}
		switch {
		case strings.Contains(status, "CapEff:\t00000000000000e3\n"):
			whole++
		case !strings.Contains(status, "CapEff:\t0000000000000000\n"):
			t.Errorf("%s has other capabilities:\n%s", task, status)
		}
	}
	if whole == 0 {
		t.Error("no thread of the agent can do its work")
	}
	r.destroy("agent")
}

func TestTheSecretIsNowhereToBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	spec := r.spec("secret")
	secret := string(spec.GetLinkSecret())
	c := r.create(spec)
	entries, err := os.ReadDir(spec.GetLinkDir())
	if err != nil || len(entries) != 1 || entries[0].Name() != "link.sock" {
		t.Errorf("the link directory holds %v, %v", entries, err)
	}
	raw, err := r.api().ContainerInspect(r.ctx(), containerName(r.host, "secret"), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(handleOf(t, c.GetRef()).Init.PID)
	for where, text := range map[string]string{
		"what the engine shows": string(raw.Raw), "the ref": string(c.GetRef().GetDriverState()),
		"the agent's command line": readFile("/proc/" + pid + "/cmdline"), "its environment": readFile("/proc/" + pid + "/environ"),
	} {
		if text == "" && where != "its environment" {
			t.Errorf("%s is empty", where)
		}
		if strings.Contains(text, secret) {
			t.Errorf("the secret is in %s", where)
		}
	}
	// And the engine's own directory has it in no file: configuration, log.
	out := r.say(r.link(c), c, "env", "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
	if strings.Contains(out, secret) {
		t.Error("the secret is in an environment in the cell")
	}
	_ = filepath.WalkDir(filepath.Join(r.engine.Dir, "data", "containers", raw.Container.ID), func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(readFile(p), secret) {
			t.Errorf("the secret is in %s", p)
		}
		return nil
	})
	r.destroy("secret")
}

// An image with nothing in it is enough: the agent brings itself.
func TestAnImageWithNothingInIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, map[string]any{"image": dockertest.Scratch})
	c := r.create(r.spec("scratch"))
	conn := r.link(c)
	r.begin(conn, c, "v", cellPublicDir+"/bin/airlock-cell", "help")
	if got := r.read(conn, "v"); !strings.Contains(got, "airlock-cell runs inside") {
		t.Errorf("the only program says %q", got)
	}
	if err := conn.PutFiles(r.ctx(), []*cellv1.File{{Path: "/run/placed/file", Content: []byte("x"), Mode: 0o644}}); err != nil {
		t.Errorf("a file cannot be placed: %v", err)
	}
	r.destroy("scratch")
}

// What an image asks for does not get between the agent and its cell.
func TestAnImageThatWantsItsOwnWay(t *testing.T) {
	t.Parallel()
	e := shared.get(t)
	const image = "airlock-test/wilful:1"
	root, err := dockertest.ShellTar()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ImportTar(image, root, "USER 1234", "ENV LD_PRELOAD=/x", "ENV IMAGE=yes", `ENTRYPOINT ["/bin/false"]`,
		`CMD ["--no"]`, "WORKDIR /nowhere", "VOLUME /data", `HEALTHCHECK CMD ["/bin/false"]`, "LABEL airlock.cell_id=other"); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, e, map[string]any{"image": image})
	spec := r.spec("wilful")
	c := r.create(spec)
	if got := r.say(r.link(c), c, "s", "id -u; echo \"$IMAGE$LD_PRELOAD\"; [ -d /data ] && echo data"); got != "71700\n\ndata\n" {
		t.Errorf("the workload says %q", got)
	}
	if l := r.list(r.ctx())["wilful"]; l == nil {
		t.Error("list does not show the cell")
	}
	volumes := r.volumes()
	r.destroy("wilful")
	if after := r.volumes(); len(after) != len(volumes)-1 {
		t.Errorf("the image's volume was left: %v, then %v", volumes, after)
	}
}

func TestASeccompProfileOfOnesOwn(t *testing.T) {
	t.Parallel()
	profile := filepath.Join(have.dir, "seccomp.json")
	text := `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["symlink","symlinkat"],"action":"SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(profile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// The agent offers its program as a link where it can; where the profile
	// forbids links this shows at once.
	r := newRig(t, nil, map[string]any{"seccomp": profile})
	spec := r.spec("seccomp")
	_, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: spec})
	if err == nil || !strings.Contains(err.Error(), "operation not permitted") || !strings.Contains(err.Error(), "ended at once, with code 1") {
		t.Errorf("create with a profile that the agent cannot live with: %v", err)
	}
	if len(r.list(r.ctx())) != 0 {
		t.Error("something was left")
	}
}

func TestOpenIsTheConfiguredNetworkAndNothingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, map[string]any{"network": "airlock-test-net"})
	spec := r.spec("open")
	spec.Network.Mode = pluginv1.NetworkMode_NETWORK_MODE_OPEN
	_, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: spec})
	if err == nil || !strings.Contains(err.Error(), `network "airlock-test-net"`) {
		t.Errorf("create on a network that is missing: %v", err)
	}
	api := r.api()
	if _, err := api.NetworkCreate(r.ctx(), "airlock-test-net", client.NetworkCreateOptions{Driver: "bridge"}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := api.NetworkRemove(r.ctx(), "airlock-test-net", client.NetworkRemoveOptions{}); err != nil {
			t.Error(err)
		}
	}()
	c := r.create(spec)
	if got := r.say(r.link(c), c, "s", "ls /sys/class/net"); got != "eth0\nlo\n" {
		t.Errorf("the interfaces are %q", got)
	}
	if c.GetFacts().GetNetwork() != pluginv1.NetworkMode_NETWORK_MODE_OPEN {
		t.Errorf("the facts say %v", c.GetFacts())
	}
	r.destroy("open")
}

// A workload that needs more memory than the cell has dies of it, the cell
// lives, and says so.
func TestTheCellSaysThatMemoryRanOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	spec := r.spec("oom")
	spec.Resources = &pluginv1.Resources{MemoryBytes: 48 << 20}
	c := r.create(spec)
	conn := r.link(c)
	r.say(conn, c, "s", "head -c 200000000 /dev/zero | tail -c 200000000 >/dev/null")
	until(t, "the driver to see it", func() bool { return strings.Contains(r.inspect(c).GetDetail(), "killed for memory") })
	if st := r.inspect(c); st.GetState() != pluginv1.CellState_CELL_STATE_RUNNING {
		t.Errorf("inspect says %v", st)
	}
	if got := r.say(conn, c, "after", "echo lives"); got != "lives\n" {
		t.Errorf("afterwards the cell says %q", got)
	}
	r.destroy("oom")
}

func TestTheNumberOfProcessesIsLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	spec := r.spec("pids")
	spec.Resources = &pluginv1.Resources{Pids: 40}
	c := r.create(spec)
	conn := r.link(c)
	r.begin(conn, c, "bomb", "/bin/sh", "-c", "while :; do sleep 60 & echo x >> started; done")
	until(t, "the limit", func() bool { return strings.Contains(r.errors(conn, "bomb"), "can't fork") })
	if n := strings.Count(readFile(r.work("pids", "started")), "x"); n > 40 {
		t.Errorf("%d processes were started", n)
	}
	r.destroy("pids")
}
