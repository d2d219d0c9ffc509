package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A third party gets one small static program that has no way to a network.
func TestTheVerifierIsSmallAndHasNoNetwork(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "airlock-verify")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", info.Size())
	if info.Size() > 5<<20 {
		t.Errorf("the verifier has %d bytes, more than 5 MiB", info.Size())
	}
	list := exec.Command("go", "list", "-deps", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	deps, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(deps)) {
		if dep == "net" || strings.HasPrefix(dep, "net/") || dep == "crypto/tls" {
			t.Errorf("it depends on %s", dep)
		}
	}
	if !slices.Contains(strings.Fields(string(deps)), "github.com/airlock-host/airlock/host/internal/evidence") {
		t.Error("the list of dependencies is not that of the verifier")
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("{\"airlock_bundle\":1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want int
		says string
	}{
		{nil, unread, "name one bundle"},
		{[]string{"a", "b"}, unread, "name one bundle"},
		{[]string{"--nonsense"}, unread, "not defined"},
		{[]string{filepath.Join(dir, "none")}, unread, "no such file"},
		{[]string{"--key", bad, bad}, unread, "PEM"},
		{[]string{bad}, damaged, "is damaged: line 1"},
		{[]string{"--json", bad}, damaged, "is damaged: line 1"},
		{[]string{"-"}, damaged, "no evidence bundle"},
		{[]string{"--version"}, whole, ""},
		{[]string{"--help"}, whole, "third party"},
	} {
		var out, errs bytes.Buffer
		if got := run(c.args, strings.NewReader("x"), &out, &errs); got != c.want {
			t.Errorf("%q: exit code %d, want %d", c.args, got, c.want)
		}
		if c.says != "third party" && !strings.Contains(errs.String(), c.says) {
			t.Errorf("%q says %q", c.args, errs.String())
		}
	}
}
