package packages

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// common is what the host's package holds in both kinds.
var common = []string{
	"/usr/bin/airlock", "/usr/bin/airlock-cell", "/usr/bin/airlock-verify", "/usr/lib/systemd/system/airlock.service", "/usr/lib/systemd/system/airlock-cells.service",
	"/etc/default/airlock", "/etc/airlock", "/usr/lib/airlock/plugins", "/usr/share/airlock/airlock.hcl",
	"/usr/share/man/man1/airlock.1.gz", "/usr/share/man/man1/airlock-mission-dispatch.1.gz",
	"/usr/share/bash-completion/completions/airlock", "/usr/share/fish/vendor_completions.d/airlock.fish",
	"/usr/share/doc/airlock/copyright", "/usr/share/doc/airlock/docs/operator-guide.md",
}

// kinds of plugins that have a package of their own.
var plugins = []string{"isolation-host-supervisor", "isolation-docker", "isolation-qemu-kvm", "runtime-command", "runtime-claude-code", "revoker-webhook", "revoker-postgres"}

func packages(t *testing.T) string {
	t.Helper()
	dir, err := oldPackages()
	need(t, err)
	return dir
}

func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	return files[0]
}

// lists says that a listing names a file, alone or at the end of a line.
func lists(listing, file string) bool {
	for _, line := range strings.Split(listing, "\n") {
		line, _, _ = strings.Cut(line, " -> ")
		if fields := strings.Fields(line); len(fields) > 0 && strings.Trim(fields[len(fields)-1], "./") == strings.Trim(file, "/") {
			return true
		}
	}
	return false
}

func TestDeb(t *testing.T) {
	t.Parallel()
	dir := packages(t)
	host := one(t, dir, "airlock_*.deb")
	content := output(t, "dpkg-deb", "-c", host)
	for _, file := range append(common, "/usr/share/zsh/vendor-completions/_airlock") {
		if !lists(content, file) {
			t.Errorf("the host's package lacks %s", file)
		}
	}
	if strings.Contains(content, "airlock-isolation") {
		t.Error("the host's package holds a driver")
	}
	for _, line := range strings.Split(strings.TrimSpace(content), "\n") {
		if !strings.Contains(line, "root/root") && !strings.Contains(line, "0/0") || strings.HasPrefix(line, "-rwxrwx") || strings.HasPrefix(line, "drwxrwx") {
			t.Errorf("owner or mode: %s", line)
		}
	}
	if conf := output(t, "dpkg-deb", "-I", host, "conffiles"); strings.TrimSpace(conf) != "/etc/default/airlock" {
		t.Errorf("conffiles: %q", conf)
	}
	for _, plugin := range plugins {
		file := one(t, dir, "airlock-"+plugin+"_*.deb")
		if content := output(t, "dpkg-deb", "-c", file); !lists(content, "/usr/lib/airlock/plugins/airlock-"+plugin) {
			t.Errorf("%s lacks its plugin:\n%s", file, content)
		}
		if on := output(t, "dpkg-deb", "-f", file, "Depends"); strings.TrimSpace(on) != "airlock" {
			t.Errorf("%s depends on %q", file, on)
		}
	}
}

func TestRPM(t *testing.T) {
	t.Parallel()
	dir := packages(t)
	_, err := exec.LookPath("rpm")
	need(t, err)
	host := one(t, dir, "airlock-"+oldVersion+"-*.rpm")
	query := func(args ...string) string { return output(t, "rpm", append([]string{"-qp"}, args...)...) }
	content := query("-l", host)
	for _, file := range append(common, "/usr/share/zsh/site-functions/_airlock") {
		if !lists(content, file) {
			t.Errorf("the host's package lacks %s", file)
		}
	}
	if got := strings.TrimSpace(query("-c", host)); got != "/etc/default/airlock" {
		t.Errorf("configuration files: %q", got)
	}
	if got := query("--requires", host); !strings.Contains(got, "shadow-utils") {
		t.Errorf("it requires %q", got)
	}
	scripts := query("--scripts", host)
	for _, want := range []string{"preinstall scriptlet", "a newer airlock has written it", "postinstall scriptlet", "useradd --system", "preuninstall scriptlet", "airlock drain", "postuninstall scriptlet"} {
		if !strings.Contains(scripts, want) {
			t.Errorf("the scripts lack %q", want)
		}
	}
	if got := output(t, "rpm", "-K", "--nosignature", host); !strings.Contains(got, "digests OK") {
		t.Errorf("digests: %s", got)
	}
	// It can be laid out: files, modes and directories suit rpm.
	root := t.TempDir()
	args := []string{"--root", root, "--dbpath", "/var/lib/rpm", "-i", "--nodeps", "--noscripts", host}
	for _, plugin := range plugins {
		file := one(t, dir, "airlock-"+plugin+"-"+oldVersion+"-*.rpm")
		if got := query("--requires", file); !lists(got, "airlock") {
			t.Errorf("%s requires %q", file, got)
		}
		if scripts := query("--scripts", file); !strings.Contains(scripts, "try-restart airlock.service") {
			t.Errorf("%s does not tell the host: %s", file, scripts)
		}
		args = append(args, file)
	}
	output(t, "rpm", args...)
	for _, plugin := range plugins {
		info, err := os.Stat(filepath.Join(root, "usr/lib/airlock/plugins/airlock-"+plugin))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", plugin, info, err)
		}
	}
}

// The list of what is in the packages, and the checksums.
func TestMaterialsAndChecksums(t *testing.T) {
	t.Parallel()
	dir := packages(t)
	text, err := os.ReadFile(filepath.Join(dir, "airlock-"+oldVersion+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct {
			Name, Version, PURL string
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Fatalf("%q, %v", bom.BOMFormat, err)
	}
	found := map[string]bool{}
	for _, c := range bom.Components {
		found[c.Name] = c.Version != "" && c.PURL != ""
	}
	for _, want := range []string{"modernc.org/sqlite", "google.golang.org/grpc", "github.com/hashicorp/hcl/v2", "github.com/moby/moby/client", "std"} {
		if !found[want] {
			t.Errorf("the list of materials lacks %s", want)
		}
	}
	cmd := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if lines, want := strings.Count(string(sums), "\n"), 2*(len(plugins)+1)+1; lines != want {
		t.Errorf("%d checksums, not %d:\n%s", lines, want, sums)
	}
}
