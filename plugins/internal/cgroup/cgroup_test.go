package cgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	t.Parallel()
	line := func(root, dir, kind, options string) string {
		return fmt.Sprintf("30 22 0:27 %s %s rw,relatime shared:5 - %s none rw,%s\n", root, dir, kind, options)
	}
	for name, tt := range map[string]struct {
		mounts, groups string
		v2             string
		memory, base   string // v1 mount of memory; base of memory, or of v2 when there is none
	}{
		"v2 with systemd":  {line("/", "/sys/fs/cgroup", "cgroup2", "nsdelegate"), "0::/system.slice/airlock.service\n", "/sys/fs/cgroup", "", "/sys/fs/cgroup/system.slice"},
		"v2 at the root":   {line("/", "/sys/fs/cgroup", "cgroup2", "x"), "0::/\n", "/sys/fs/cgroup", "", "/sys/fs/cgroup"},
		"v1":               {line("/", "/cg/memory", "cgroup", "memory") + line("/", "/cg/cpu", "cgroup", "cpu,cpuacct"), "4:memory:/a/b\n3:cpu,cpuacct:/\n", "", "/cg/memory", "/cg/memory/a/b"},
		"hybrid":           {line("/", "/cg/memory", "cgroup", "memory") + line("/", "/cg/unified", "cgroup2", "x"), "4:memory:/a\n0::/\n", "/cg/unified", "/cg/memory", "/cg/memory/a"},
		"a container":      {line("/docker/7", "/cg/memory", "cgroup", "memory"), "4:memory:/docker/7/x\n", "", "/cg/memory", "/cg/memory/x"},
		"a namespace":      {line("/", "/cg/memory", "cgroup", "memory"), "4:memory:/../../x\n", "", "/cg/memory", "/cg/memory"},
		"nothing mounted":  {line("/", "/", "ext4", "x"), "0::/\n", "", "", ""},
		"not worth a word": {"garbage\n", "garbage\n", "", "", ""},
	} {
		l := parse(tt.mounts, tt.groups)
		base := l.base("")
		if tt.memory != "" {
			base = l.base(memory)
		}
		if l.V2 != tt.v2 || l.V1[memory] != tt.memory || base != tt.base {
			t.Errorf("%s: v2 %q, memory %q, base %q", name, l.V2, l.V1[memory], base)
		}
	}
}

func TestQuota(t *testing.T) {
	t.Parallel()
	for cpus, want := range map[float64]int64{0.5: 50_000, 2: 200_000, 0.001: 1000} {
		if got := quota(cpus); got != want {
			t.Errorf("quota(%v) = %d, not %d", cpus, got, want)
		}
	}
}

// parent makes a parent of its own in the hierarchies that keep allows.
func parent(t *testing.T, keep func(*Layout)) *Parent {
	t.Helper()
	l, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	keep(&l)
	p := NewParent(l, "altest-"+strings.ToLower(strings.ReplaceAll(path.Base(t.TempDir()+fmt.Sprint(time.Now().UnixNano())), "/", "")))
	p.prepare()
	t.Cleanup(p.Tidy)
	return p
}

func onlyV1(l *Layout) { l.V2 = "" }

func need(t *testing.T, ok bool, what string) {
	t.Helper()
	if ok && os.Geteuid() == 0 {
		return
	}
	if os.Getenv("AIRLOCK_REQUIRE") != "" {
		t.Fatalf("this test needs root and %s", what)
	}
	t.Skipf("this test needs root and %s", what)
}

// fill starts a tree of processes in a group, one of them in a session of its
// own, and one that forks all the time.
func fill(t *testing.T, g *Group) {
	t.Helper()
	join := ""
	for _, f := range g.Tasks() {
		join += "echo 0 > " + f + "; "
	}
	if g.V2 != "" {
		join += "echo 0 > " + g.V2 + "/cgroup.procs; "
	}
	cmd := exec.Command("sh", "-c", join+"(setsid sleep 1000 &); (while :; do sleep 0.01; done) & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.setFrozen(false) // else a test that fails leaves them for ever
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = g.Kill(ctx)
		_ = cmd.Wait()
		_ = g.Remove(ctx)
	})
	deadline := time.Now().Add(30 * time.Second)
	for {
		list, err := procs(g.tracker())
		if err != nil {
			t.Fatal(err)
		}
		if len(list) >= 3 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the group has %v", list)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestLife makes, freezes, kills and removes groups, in v1 alone too, which
// the driver's tests do not reach on a machine that has both.
func TestLife(t *testing.T) {
	l, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		keep func(*Layout)
		have bool
	}{
		"v2":     {func(l *Layout) { l.V1 = nil }, l.V2 != ""},
		"v1":     {onlyV1, l.V1[freezer] != ""},
		"hybrid": {func(*Layout) {}, l.V2 != "" && len(l.V1) > 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			need(t, tt.have, "cgroup "+name)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			p := parent(t, tt.keep)
			g, _, err := p.Create("c1", Limits{})
			if err != nil {
				t.Fatal(err)
			}
			fill(t, g)
			if names, err := p.Names(); err != nil || len(names) != 1 || names[0] != "c1" {
				t.Errorf("names %v, %v", names, err)
			}
			for range 2 {
				if err := g.Freeze(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if frozen, err := g.Frozen(); err != nil || !frozen {
				t.Errorf("frozen %v, %v", frozen, err)
			}
			if err := g.Thaw(ctx); err != nil {
				t.Fatal(err)
			}
			if err := g.Freeze(ctx); err != nil { // it is killed as it stands
				t.Fatal(err)
			}
			if err := g.Kill(ctx); err != nil {
				t.Fatal(err)
			}
			if populated, err := g.Populated(); err != nil || populated {
				t.Errorf("after the kill populated is %v, %v", populated, err)
			}
			for range 2 {
				if err := g.Remove(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if p.Find("c1") != nil {
				t.Error("the group is still found")
			}
			if err := g.Kill(ctx); err != nil {
				t.Errorf("kill of a group that is gone: %v", err)
			}
			p.Tidy()
			for c, dir := range p.dirs {
				if exists(dir) {
					t.Errorf("the parent in %q is left", c)
				}
			}
		})
	}
}

func TestGroupsBelowAGroupGoWithIt(t *testing.T) {
	t.Parallel()
	l, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	need(t, l.V2 != "", "cgroup v2")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := parent(t, func(*Layout) {})
	g, _, err := p.Create("c1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	sub := &Group{V2: path.Join(g.V2, "s1")}
	if err := os.Mkdir(sub.V2, 0o755); err != nil {
		t.Fatal(err)
	}
	fill(t, sub)
	if populated, err := g.Populated(); err != nil || !populated {
		t.Errorf("populated is %v, %v", populated, err)
	}
	if err := g.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestLimitsAreInTheFiles(t *testing.T) {
	t.Parallel()
	l, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	need(t, l.V1[memory] != "", "cgroup v1 memory")
	p := parent(t, onlyV1)
	g, by, err := p.Create("c1", Limits{CPU: 0.25, Memory: 64 << 20, Pids: 33})
	if err != nil {
		t.Fatal(err)
	}
	defer g.removeNow()
	for file, want := range map[string]string{
		path.Join(g.V1[memory], "memory.limit_in_bytes"): "67108864",
		path.Join(g.V1[cpu], "cpu.cfs_quota_us"):         "25000",
		path.Join(g.V1[pids], "pids.max"):                "33",
	} {
		b, err := os.ReadFile(file)
		if got := strings.TrimSpace(string(b)); err != nil || got != want {
			t.Errorf("%s is %q, %v", filepath.Base(file), got, err)
		}
	}
	for _, c := range []string{cpu, memory, pids} {
		if by[c] != "enforced-by:cgroup-v1" {
			t.Errorf("%s is %q", c, by[c])
		}
	}
}

func TestAParentThatCannotBeUsedSaysWhy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "v2")
	if err := os.WriteFile(file, nil, 0o600); err != nil { // no directory can be made in it
		t.Fatal(err)
	}
	p := NewParent(Layout{V2: file, own: map[string]string{"": file}}, "x")
	for c, how := range p.Support() {
		if !strings.HasPrefix(how, "not-enforced:") || len(how) < 20 {
			t.Errorf("%s is %q", c, how)
		}
	}
	g, by, err := p.Create("c1", Limits{Memory: 1})
	if err != nil || g.Tracks() || g.CanFreeze() {
		t.Errorf("a group is made: %v, %v", g, err)
	}
	if by[cpu] != "not-enforced:no limit was set" {
		t.Errorf("a limit that nobody asked for is %q", by[cpu])
	}
	p = NewParent(Layout{}, "x")
	p.Refuse("it does not work")
	if got := p.Support()[memory]; got != "not-enforced:it does not work" {
		t.Errorf("memory is %q", got)
	}
}

// Somebody may remove a parent in which nothing runs.
func TestAParentThatIsGoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	if _, err := Detect(); err != nil {
		t.Fatal(err)
	}
	p := parent(t, func(*Layout) {})
	g, _, err := p.Create("c1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	g.removeNow()
	for _, dir := range p.dirs {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if g, _, err = p.Create("c1", Limits{}); err != nil {
		t.Fatal(err)
	}
	g.removeNow()
}
