package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"
	"go.uber.org/goleak"

	"github.com/airlock-host/airlock/config"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// builds are the plugin binaries of this test run. They are built when the
// first test wants one: fuzz workers come through TestMain too.
type builds struct {
	once sync.Once
	dir  string
	err  error
}

var built builds

// path is the binary of a main.
func (b *builds) path(t testing.TB, name string) string {
	t.Helper()
	b.once.Do(func() { b.dir, b.err = buildAll() })
	if b.err != nil {
		t.Fatal("cannot build the test plugins: ", b.err)
	}
	return filepath.Join(b.dir, name)
}

func buildAll() (string, error) {
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{
		"driver":  "../../../sdk/fake/testdata/isolation",
		"runtime": "../../../sdk/fake/testdata/runtime",
		"revoker": "../../../sdk/fake/testdata/revoker",
		"misfit":  "./testdata/misfit",
	} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%s: %w\n%s", pkg, err, text)
		}
	}
	return dir, nil
}

func TestMain(m *testing.M) {
	if os.Getenv("AIRLOCK_TEST_HOST") != "" {
		hostMain()
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
		os.Exit(code)
	}))
}

// rig is a catalog over a plugin directory of its own.
type rig struct {
	*Catalog
	t    testing.TB
	dir  string // plugins
	lock string
	log  *logSink

	mu      sync.Mutex
	configs map[string]map[string]any // by ref
}

func newRig(t testing.TB, alter ...func(*Options)) *rig {
	t.Helper()
	root, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	r := &rig{
		t: t, dir: filepath.Join(root, "plugins"), lock: filepath.Join(root, "lock.hcl"),
		log: &logSink{}, configs: make(map[string]map[string]any),
	}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	options := Options{
		Dir: r.dir, LockFile: r.lock, StateDir: filepath.Join(root, "state"), RunDir: filepath.Join(root, "run"),
		HostID: "host-1", HostVersion: "0.0.0-test",
		Log: hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: r.log, JSONFormat: true}),
		Decode: func(i config.Instance, _ *pluginv1.ConfigSchema) ([]byte, hcl.Diagnostics) {
			r.mu.Lock()
			defer r.mu.Unlock()
			data, err := json.Marshal(r.configs[i.Ref()])
			if err != nil || r.configs[i.Ref()] == nil {
				data = []byte("{}")
			}
			return data, nil
		},
		MapDiagnostics: func(i config.Instance, found []*pluginv1.Diagnostic) (diags hcl.Diagnostics) {
			for _, d := range found {
				where := i.Range
				diags = append(diags, &hcl.Diagnostic{
					Severity: hcl.DiagError, Summary: d.GetSummary(), Detail: d.GetDetail(), Subject: &where,
				})
			}
			return diags
		},
	}
	for _, f := range alter {
		f(&options)
	}
	r.Catalog = New(options)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r.Close(ctx)
		if t.Failed() {
			t.Logf("host log:\n%s", r.log)
		}
	})
	return r
}

// install puts a build into the plugin directory under a plugin's file name.
func (r *rig) install(build, file string) string {
	r.t.Helper()
	data, err := os.ReadFile(built.path(r.t, build))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.write(file, data, 0o755)
}

func (r *rig) write(file string, data []byte, mode os.FileMode) string {
	r.t.Helper()
	path := filepath.Join(r.dir, file)
	// A new file, as an installer makes it.
	if err := os.WriteFile(path+".new", data, mode); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chmod(path+".new", mode); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func (r *rig) configure(ref string, content map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.configs[ref] = maps.Clone(content)
}

// start starts instances given as refs.
func (r *rig) start(refs ...string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r.Start(ctx, specs(refs...))
	if ctx.Err() != nil {
		r.t.Fatal("Start did not come to an end")
	}
}

func specs(refs ...string) []config.Instance {
	var out []config.Instance
	for n, ref := range refs {
		parts := strings.SplitN(ref, ".", 3)
		out = append(out, config.Instance{
			Kind: parts[0], Driver: parts[1], Name: parts[2], Body: hcl.EmptyBody(),
			Range: hcl.Range{Filename: "airlock.hcl", Start: hcl.Pos{Line: 10 + n, Column: 1}, End: hcl.Pos{Line: 10 + n, Column: 20}},
		})
	}
	return out
}

func (r *rig) status(ref string) Status {
	r.t.Helper()
	for _, s := range r.Status() {
		if s.Ref == ref {
			return s
		}
	}
	r.t.Fatalf("no status of %s", ref)
	return Status{}
}

// await waits for a condition of an instance, woken by Changed.
func (r *rig) await(ref, what string, ok func(Status) bool) Status {
	r.t.Helper()
	deadline := time.After(time.Minute)
	for {
		changed := r.Changed()
		s := r.status(ref)
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("%s: no %s; it is %+v", ref, what, s)
		}
	}
}

func healthy(s Status) bool { return s.State == Healthy }

// logSink keeps what the host logged.
type logSink struct {
	mu   sync.Mutex
	data []byte
}

func (l *logSink) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	return len(p), nil
}

func (l *logSink) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.data)
}

// lines are the log's entries.
func (l *logSink) lines() []map[string]any {
	var out []map[string]any
	for line := range strings.Lines(l.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil {
			out = append(out, entry)
		}
	}
	return out
}

// eventually polls a condition that nothing announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// gone says that a process has ended; a zombie counts as ended.
func gone(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}
