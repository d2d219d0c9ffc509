package plugins

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

func TestALockIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lock.hcl")
	if lock, err := ReadLock(file); lock != nil || err != nil {
		t.Errorf("no file: %v %v", lock, err)
	}
	sums := map[string]string{
		"airlock-isolation-docker": strings.Repeat("ab", 32), "airlock-runtime-command": strings.Repeat("01", 32),
	}
	if err := WriteLock(file, sums); err != nil {
		t.Fatal(err)
	}
	lock, err := ReadLock(file)
	if err != nil || !reflect.DeepEqual(lock.Sums, sums) {
		t.Errorf("%v %v", lock, err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "plugin \"airlock-isolation-docker\" {\n  sha256 = \"abab") {
		t.Errorf("it looks like\n%s(%v)", text, err)
	}
}

func TestABadLockIsRefused(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	for name, c := range map[string]struct{ text, want string }{
		"no HCL":         {"plugin {", "lock.hcl:1"},
		"other block":    {"driver \"a\" {}", "Unsupported block type"},
		"no sum":         {"plugin \"a\" {}", "The argument \"sha256\" is required"},
		"short sum":      {"plugin \"a\" {\n sha256 = \"ab\"\n}", `the sha256 of plugin "a" is not 64 lower-case hex digits`},
		"named twice":    {"plugin \"a\" {\n sha256 = \"" + sum + "\"\n}\nplugin \"a\" {\n sha256 = \"" + sum + "\"\n}", `plugin "a" is named twice`},
		"more than that": {"plugin \"a\" {\n sha256 = \"" + sum + "\"\n x = 1\n}", "Unsupported argument"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "lock.hcl")
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadLock(file); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestFindListsPluginsOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"airlock-isolation-b", "airlock-runtime-a", "airlock-policy-x", "airlock-isolation-", "airlock-isolation-Bad Name", "README"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	found, err := Find(dir)
	if err != nil || len(found) != 3 || found[0].Name != "b" || found[1].Kind != "policy" || found[2].Kind != "runtime" {
		t.Errorf("%v %v", found, err)
	}
}

func TestWhatIsNoFileHasNoSum(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, dir, "/dev/zero"} {
		if sum, err := SumFile(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s has the sum %q, %v", path, sum, err)
		}
	}
}
