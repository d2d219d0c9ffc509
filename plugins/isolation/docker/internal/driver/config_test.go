package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// where renders a diagnostic's path.
func where(d *pluginv1.Diagnostic) string {
	var b strings.Builder
	for _, s := range d.GetPath() {
		switch step := s.GetStep().(type) {
		case *pluginv1.PathStep_Attribute:
			b.WriteString("." + step.Attribute)
		case *pluginv1.PathStep_Index:
			b.WriteString("[" + string(rune('0'+step.Index)) + "]")
		case *pluginv1.PathStep_Key:
			b.WriteString("[" + step.Key + "]")
		}
	}
	return b.String()
}

func TestValidate(t *testing.T) {
	t.Parallel()
	junk := filepath.Join(t.TempDir(), "junk.json")
	if err := os.WriteFile(junk, []byte(`{"a":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change map[string]any
		want   []string // path, severity and words of each finding
	}{
		"the least":         {nil, nil},
		"a digest":          {map[string]any{"image": "registry.example:5000/a/b@sha256:" + strings.Repeat("a", 64)}, nil},
		"a plain path":      {map[string]any{"endpoint": "/run/podman.sock"}, nil},
		"tcp":               {map[string]any{"endpoint": "tcp://10.0.0.1:2375"}, []string{".endpoint error another machine"}},
		"ssh":               {map[string]any{"endpoint": "ssh://root@box"}, []string{".endpoint error run a host there"}},
		"http":              {map[string]any{"endpoint": "http://127.0.0.1:2375"}, []string{".endpoint error another machine"}},
		"npipe":             {map[string]any{"endpoint": "npipe:////./pipe/docker"}, []string{".endpoint error not known"}},
		"relative":          {map[string]any{"endpoint": "docker.sock"}, []string{".endpoint error absolute"}},
		"no image":          {map[string]any{"image": ""}, []string{".image error not a reference"}},
		"a URL as image":    {map[string]any{"image": "https://x/y"}, []string{".image error not a reference"}},
		"root as user":      {map[string]any{"user": "0"}, []string{".user error uid 0"}},
		"a huge uid":        {map[string]any{"user": "9999999999"}, []string{".user error not a uid"}},
		"tmpfs on the root": {map[string]any{"tmpfs": []string{"/tmp", "/", "/run/airlock/link"}}, []string{".tmpfs[1] error cannot be a tmpfs", ".tmpfs[2] error cannot be a tmpfs"}},
		"mounts": {map[string]any{"mounts": map[string]string{"/proc/x": "/etc/passwd", "/b": "relative", "/c": "/does/not/exist", "/d": "/etc/passwd"}},
			[]string{".mounts[/b] error not absolute", ".mounts[/c] error does not exist", ".mounts[/proc/x] error Nothing can be mounted"}},
		"the machine's network":  {map[string]any{"network": "host"}, []string{".network warning this machine's own network"}},
		"no network":             {map[string]any{"network": "none"}, []string{".network error Not a network"}},
		"another's network":      {map[string]any{"network": "container:x"}, []string{".network error Not a network"}},
		"a missing profile":      {map[string]any{"seccomp": "/does/not/exist"}, []string{".seccomp error no such file"}},
		"a profile that is none": {map[string]any{"seccomp": junk}, []string{".seccomp error defaultAction"}},
		"unconfined":             {map[string]any{"seccomp": "unconfined"}, []string{".seccomp error absolute path"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := map[string]any{"image": "debian:bookworm-slim"}
			for k, v := range tt.change {
				change[k] = v
			}
			got := (&Driver{}).Validate(t.Context(), block(t, change))
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %q", got, tt.want)
			}
			for i, d := range got {
				path, rest, _ := strings.Cut(tt.want[i], " ")
				severity, words, _ := strings.Cut(rest, " ")
				text := d.GetSummary() + ": " + d.GetDetail()
				if where(d) != path || !strings.HasSuffix(strings.ToLower(d.GetSeverity().String()), severity) || !strings.Contains(text, words) {
					t.Errorf("got %s %v %q, want %q", where(d), d.GetSeverity(), text, tt.want[i])
				}
			}
		})
	}
}

func TestEveryAttributeIsDescribedAndRead(t *testing.T) {
	t.Parallel()
	var c Config
	if found := (&Driver{}).Validate(t.Context(), block(t, map[string]any{"image": "x"})); len(found) > 0 {
		t.Errorf("the defaults are not good: %v", found)
	}
	for _, a := range schema().GetAttributes() {
		if a.GetDescription() == "" {
			t.Errorf("%s has no description", a.GetName())
		}
	}
	_ = c
}

func TestDiskIsLimitedWhereThatIsTrue(t *testing.T) {
	t.Parallel()
	volume := &pluginv1.Volume{HostPath: "/w", Target: "/w"}
	shut := &pluginv1.Volume{HostPath: "/w", Target: "/w", ReadOnly: true}
	for name, tt := range map[string]struct {
		bytes    uint64
		readOnly bool
		volumes  []*pluginv1.Volume
		driver   string
		files    string
		how      string
		quota    bool
	}{
		"not asked":           {0, true, nil, "overlay2", "xfs", "not-enforced:no limit", false},
		"a volume":            {1, true, []*pluginv1.Volume{volume}, "overlay2", "xfs", "not-enforced:volumes", false},
		"a volume and layer":  {1, false, []*pluginv1.Volume{volume}, "overlay2", "xfs", "not-enforced:volumes", true},
		"nothing to write to": {1, true, []*pluginv1.Volume{shut}, "overlay2", "extfs", "enforced-by:read-only", false},
		"a quota":             {1, false, nil, "overlay2", "xfs", "enforced-by:overlay2", true},
		"no quota":            {1, false, nil, "overlay2", "extfs", "not-enforced:the storage driver", false},
		"btrfs":               {1, false, nil, "btrfs", "", "enforced-by:btrfs", true},
	} {
		in := &instance{config: Config{ReadOnly: tt.readOnly}}
		info := infoOf(tt.driver, tt.files)
		how, quota := in.diskPlan(&pluginv1.CellSpec{Resources: &pluginv1.Resources{DiskBytes: tt.bytes}, Volumes: tt.volumes}, info)
		if !strings.HasPrefix(how, tt.how) || quota != tt.quota {
			t.Errorf("%s: %q, %v", name, how, quota)
		}
	}
}
