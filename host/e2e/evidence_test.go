package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checkBundle runs airlock-verify, as a third party would.
func checkBundle(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "airlock-verify"), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = []string{} // it needs nothing
	_ = cmd.Run()
	return out.String(), cmd.ProcessState.ExitCode()
}

// A mission's bundle shows policy, plugins and outcome to somebody who has the
// bundle, the host's public key and nothing else.
func TestAThirdPartyChecksTheEvidenceOfAMission(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", "echo hello")
	r.reaches("m", "done")
	file := filepath.Join(r.dir, "m.evidence")
	if out, code := r.cli("journal", "export", "m", "--bundle", "-o", file); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	key := filepath.Join(r.dir, "heads", "host.key.pub")
	out, code := checkBundle(t, "--key", key, "--json", file)
	var got struct {
		OK       bool           `json:"ok"`
		TaskID   string         `json:"task_id"`
		Trusted  bool           `json:"trusted"`
		State    string         `json:"state"`
		Evidence map[string]int `json:"evidence"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || !got.OK || !got.Trusted || got.TaskID != "m" || got.State != "done" {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	for _, kind := range []string{"mission", "policy", "plugins", "outcome"} {
		if got.Evidence[kind] == 0 {
			t.Errorf("no %s in the evidence: %s", kind, out)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The plugins' digests are those of the programs that are there.
	for _, name := range []string{"airlock-isolation-host-supervisor", "airlock-runtime-command"} {
		sum, err := exec.Command("sha256sum", filepath.Join(bin, "plugins", name)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, sum[:64]) {
			t.Errorf("the digest of %s is not in the bundle", name)
		}
	}
	// Another host's key, and a bundle in which one byte is another.
	other := newRig(t, settings{})
	if out, code := checkBundle(t, "--key", filepath.Join(other.dir, "heads", "host.key.pub"), file); code != 1 || !strings.Contains(out, "the key that you trust") {
		t.Errorf("with another key: exit code %d: %s", code, out)
	}
	text[len(text)/2] ^= 1
	write(t, file, string(text), 0o600)
	if out, code := checkBundle(t, "--key", key, file); code != 1 || !strings.Contains(out, "damaged") {
		t.Errorf("a damaged bundle: exit code %d: %s", code, out)
	}
	if out, code := r.cli("journal", "export", "none", "--bundle"); code != 2 {
		t.Errorf("of a mission that is not there: exit code %d: %s", code, out)
	}
}

// With a retention block a finished mission goes to the archive and its id stays
// taken: it is not run again.
func TestAFinishedMissionIsArchivedAndNotRunAgain(t *testing.T) {
	t.Parallel()
	archive, err := os.MkdirTemp("", "alarchive")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(archive) })
	r := newRig(t, settings{extra: "retention {\n  journals = \"1s\"\n  archive = \"" + archive + "\"\n}\n"})
	r.dispatch("m", "echo x >> $PWD/m.ran")
	r.dispatch("running", "sleep 300")
	r.reaches("m", "done")
	r.reaches("running", "running")
	var bundles []string
	r.until("the mission is archived", func() bool {
		bundles, _ = filepath.Glob(filepath.Join(archive, "*", "*.evidence"))
		return len(bundles) == 1
	})
	if out, code := checkBundle(t, "--key", filepath.Join(r.dir, "heads", "host.key.pub"), bundles[0]); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	r.until("it is gone from the store", func() bool { return r.call("GET", "/api/v1/missions/m", nil, nil) == 404 })
	if !strings.Contains(r.log.String(), bundles[0]) {
		t.Error("the log does not say where it is")
	}
	r.tryDispatch(map[string]any{"mission_id": "m", "objective": "echo x >> $PWD/m.ran", "completion": "x"})
	if n := len(r.lines("m.ran")); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	if status := r.call("GET", "/api/v1/missions/running", nil, nil); status != 200 {
		t.Errorf("a running mission: %d", status)
	}
}
