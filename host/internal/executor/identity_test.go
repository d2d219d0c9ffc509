package executor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestIdentityIsMadeOnceAndKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	id, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := uuid.Parse(id); err != nil || u.Version() != 7 {
		t.Errorf("identity %q", id)
	}
	info, err := os.Stat(filepath.Join(dir, "identity"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if again, err := LoadIdentity(dir); err != nil || again != id {
		t.Errorf("again %q %v", again, err)
	}
}

func TestAnIdentityThatCannotBeReadIsNamedAndKept(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty": "", "cut": "0190a000-0000-7000", "fixture": "sandbox-01-uuid", "braces": "{0190a000-0000-7000-8000-000000000001}",
		"nil": "00000000-0000-0000-0000-000000000000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "identity")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := LoadIdentity(filepath.Dir(path))
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v", err)
			}
			if got, _ := os.ReadFile(path); string(got) != content {
				t.Errorf("the file is now %q", got)
			}
		})
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "identity"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIdentity(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "identity")) {
		t.Errorf("a directory: %v", err)
	}
}

func TestALegacyIdentityIsTakenOverIfItIsOne(t *testing.T) {
	t.Parallel()
	dir, legacy := t.TempDir(), t.TempDir()
	if took, err := AdoptIdentity(dir, legacy); took || err != nil {
		t.Fatalf("none there: %v %v", took, err)
	}
	old := "0190a000-0000-4000-8000-000000000001"
	if err := os.WriteFile(filepath.Join(legacy, "identity"), []byte(old+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if took, err := AdoptIdentity(dir, legacy); !took || err != nil {
		t.Fatalf("%v %v", took, err)
	}
	if id, err := LoadIdentity(dir); id != old || err != nil {
		t.Fatalf("%q %v", id, err)
	}
	if took, _ := AdoptIdentity(dir, legacy); took {
		t.Error("it was taken over twice")
	}
}

func TestAdvertisedEndpoints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host     string
		tls      bool
		rest, ws string
	}{
		{"127.0.0.1", false, "http://127.0.0.1:8122", "ws://127.0.0.1:8121"},
		{"::1", false, "http://[::1]:8122", "ws://[::1]:8121"},
		{"[fd00::2]", true, "https://[fd00::2]:8122", "wss://[fd00::2]:8121"},
		{"build-box.example", false, "http://build-box.example:8122", "ws://build-box.example:8121"},
	} {
		rest, ws, err := Endpoints(c.host, "0.0.0.0:8122", "[::]:8121", c.tls)
		if err != nil || rest != c.rest || ws != c.ws {
			t.Errorf("%s: %s %s %v", c.host, rest, ws, err)
		}
	}
	if _, _, err := Endpoints("h", "nonsense", "x:1", false); err == nil {
		t.Error("an address without a port was taken")
	}
	if name := RegisteredName("agentic-sandbox", strings.Repeat("é", 200)); len([]rune(name)) != 128 || !strings.HasSuffix(name, "é") {
		t.Errorf("name %q", name)
	}
}

func TestBackoffGrowsJittersAndResets(t *testing.T) {
	t.Parallel()
	b := backoff{min: 1000, max: 30000}
	seen := map[int64]bool{}
	for i := range 100 {
		d := b.wait()
		if d < 1000 || d > 30000 || (i > 6 && d < 20000) {
			t.Errorf("wait %d is %d", i, d)
		}
		seen[int64(d)] = true
	}
	if len(seen) < 10 {
		t.Errorf("no jitter: %v", seen)
	}
	b.reset()
	if d := b.wait(); d > 1250 {
		t.Errorf("after a reset %d", d)
	}
}
