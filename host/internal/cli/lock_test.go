package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pluginDir is a directory with executables of these texts in it.
func pluginDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// states are an answer's plugins by file.
func states(t *testing.T, r result) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range r.object(t)["plugins"].([]any) {
		m := p.(map[string]any)
		out[m["file"].(string)] = m["state"].(string)
	}
	return out
}

func TestPluginLockAndVerify(t *testing.T) {
	t.Parallel()
	dir := pluginDir(t, map[string]string{"airlock-isolation-a": "1", "airlock-runtime-b": "2", "README": "x"})
	at := t.TempDir()
	lock := filepath.Join(at, "etc", "plugins.lock.hcl")
	sh := &shell{t: t, socket: "/nonexistent"} // no host is needed

	sh.run("plugin", "verify", dir, "--lock", lock).want(t, ExitNotFound).has(t, "airlock plugin lock")
	sh.run("plugin", "lock", dir, "--lock", lock).want(t, 0).has(t, "airlock-isolation-a", "added", lock)
	sh.run("plugin", "lock", dir, "--lock", lock).want(t, 0).has(t, "unchanged")
	sh.run("plugin", "verify", dir, "--lock", lock).want(t, 0).has(t, "airlock-runtime-b", "ok")
	if got := sh.run("plugin", "verify", dir, "--lock", lock, "--json").want(t, 0).object(t); got["ok"] != true || got["dir"] != dir || got["lock"] != lock {
		t.Errorf("verify = %v", got)
	}

	if err := os.WriteFile(filepath.Join(dir, "airlock-isolation-a"), []byte("3"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "airlock-runtime-b"), filepath.Join(dir, "airlock-revoker-c")); err != nil {
		t.Fatal(err)
	}
	r := sh.run("plugin", "verify", dir, "--lock", lock, "--json").want(t, ExitFailed).has(t, "3 of 3 plugins", "airlock plugin lock")
	want := map[string]string{"airlock-isolation-a": "changed", "airlock-runtime-b": "missing", "airlock-revoker-c": "not_locked"}
	for file, state := range want {
		if got := states(t, r)[file]; got != state {
			t.Errorf("%s is %q, want %q", file, got, state)
		}
	}
	sh.run("plugin", "lock", dir, "--lock", lock).want(t, 0).has(t, "changed", "removed", "added")
	sh.run("plugin", "verify", dir, "--lock", lock).want(t, 0)

	// A lock file that cannot be used is replaced by lock and refused by verify.
	if err := os.WriteFile(lock, []byte("plugin {"), 0o644); err != nil {
		t.Fatal(err)
	}
	sh.run("plugin", "verify", dir, "--lock", lock).want(t, ExitFailed).has(t, "cannot be used")
	sh.run("plugin", "lock", dir, "--lock", lock).want(t, 0).has(t, "could not be used")
	sh.run("plugin", "verify", dir, "--lock", lock).want(t, 0)

	sh.run("plugin", "lock", t.TempDir(), "--lock", lock).want(t, ExitNotFound).has(t, "there are no plugins")
	sh.run("plugin", "lock", filepath.Join(at, "none"), "--lock", lock).want(t, ExitNotFound).has(t, "no plugin directory")
	sh.run("plugin", "verify", dir, "--lock", lock).want(t, 0) // the refusals left it alone
}

func TestPluginLockGoesByTheConfiguration(t *testing.T) {
	t.Parallel()
	dir := pluginDir(t, map[string]string{"airlock-isolation-a": "1"})
	at := t.TempDir()
	lock, file := filepath.Join(at, "plugins.lock.hcl"), filepath.Join(at, "airlock.hcl")
	text := "plugins {\n  dir  = \"" + dir + "\"\n  lock = \"" + lock + "\"\n}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := &shell{t: t, socket: "/nonexistent"}
	sh.run("plugin", "lock", "--config", file).want(t, 0).has(t, lock)
	sh.run("plugin", "verify", "-c", file).want(t, 0)
	other := pluginDir(t, map[string]string{"airlock-isolation-a": "2"})
	sh.run("plugin", "verify", "-c", file, other).want(t, ExitFailed).has(t, "changed")

	if err := os.WriteFile(file, []byte(strings.Replace(text, "dir ", "dri ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	sh.run("plugin", "verify", "-c", file).want(t, ExitFailed).has(t, "airlock validate "+file)
	sh.run("plugin", "verify", "-c", file, dir, "--lock", lock).want(t, 0)

	sh.run("plugin", "verify", "-c", filepath.Join(at, "none.hcl")).want(t, ExitFailed).has(t, "none.hcl")
}
