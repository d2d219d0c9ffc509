package e2e

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/qemutest"
)

// The drivers' pages: their commands are run at a real engine and with a real
// kernel, against a host with all drivers, and the configuration blocks of these
// pages and of those about revokers and Claude Code are taken by the plugins.
func TestCommandsAndBlocksOfTheDriversPages(t *testing.T) {
	r := driverRig(t, "", "")
	n := needs.get(t)
	etc := r.docsEtc()
	images := filepath.Join(filepath.Dir(etc), "images")
	r.dispatchTo("docker", "by-hand", "sleep 600")
	r.reaches("by-hand", "running")
	engine := "DOCKER_HOST=" + n.engine.Endpoint()
	list := exec.Command("docker", "ps", "--quiet", "--filter", "label=airlock.owner")
	list.Env = append(os.Environ(), engine)
	out, err := list.Output()
	cells := strings.Fields(string(out))
	if err != nil || len(cells) == 0 {
		t.Fatalf("the cells at the engine: %v %q", err, out)
	}
	cache, err := qemutest.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := qemutest.Tree(filepath.Join(filepath.Dir(etc), "rootfs"), busybox); err != nil {
		t.Fatal(err)
	}
	named := strings.NewReplacer("CONTAINER", cells[0], "debian:bookworm-slim", dockertest.Busybox, "/var/lib/airlock/images", images,
		"linux-image-6*.deb", filepath.Join(cache, "kernel", "linux-image-6*.deb"))
	ran := 0
	for _, page := range []string{"docker", "qemu-kvm"} {
		for _, text := range blocks(t, "../../docs/drivers/"+page+".md")["sh"] {
			ran++
			r.runCommands(page, named.Replace(text), engine)
		}
	}
	if ran < 2 {
		t.Errorf("only %d blocks of commands were run", ran)
	}

	// The image that was just built is what the block of the page names.
	block := 0
	for _, page := range []string{"drivers/docker", "drivers/qemu-kvm", "revokers"} {
		for _, text := range blocks(t, "../../docs/"+page+".md")["hcl"] {
			if !regexp.MustCompile(`(?m)^(isolation|revoker|runtime) "`).MatchString(text) {
				continue // an agent block that names others
			}
			block++
			r.validates(page, block, named.Replace(text))
		}
	}
	if block < 4 {
		t.Errorf("only %d configuration blocks were tried", block)
	}
}

// validates has a whole configuration with a block of a page validated, plugins
// included.
func (r *rig) validates(page string, n int, text string) {
	r.t.Helper()
	etc := r.docsEtc()
	for _, m := range regexp.MustCompile(`/etc/airlock/([a-z.-]+)`).FindAllStringSubmatch(text, -1) {
		content := strings.Repeat("s3cret-", 8)
		if strings.HasSuffix(m[1], ".pem") {
			srv := httptest.NewTLSServer(nil)
			content = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
			srv.Close()
		}
		write(r.t, filepath.Join(etc, m[1]), content, 0o600)
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		r.t.Fatal(err)
	}
	conf := filepath.Join(etc, fmt.Sprintf("block-%d.hcl", n))
	write(r.t, conf, strings.ReplaceAll(text, "/etc/airlock", etc)+fmt.Sprintf(`
data_dir = "%[1]s/data"
plugins {
  dir  = "%[2]s/plugins"
  lock = "%[1]s/no.lock.hcl"
}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
}
`, etc, bin), 0o600)
	if out, err := exec.Command(filepath.Join(bin, "airlock"), "validate", conf).CombinedOutput(); err != nil {
		r.t.Errorf("%s: %v\n%s\n%s", page, err, text, out)
	}
}

// What the page about Claude Code installs is the version that is tested.
func TestThePageOfClaudeCodeNamesTheTestedVersion(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/claude-code.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../hack/test-deps.d/claude.sh")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`claude-code-linux-x64@([0-9.]+)`).FindStringSubmatch(string(script))
	if version == nil {
		t.Fatal("hack/test-deps.d/claude.sh names no version")
	}
	for _, text := range []string{"@anthropic-ai/claude-code@" + version[1] + "\n", "# " + version[1] + " (Claude Code)", "Tested is " + version[1]} {
		if !strings.Contains(string(page), text) {
			t.Errorf("docs/claude-code.md has no %q", text)
		}
	}
}
