package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/host/internal/result"
)

// filesRig has two more agents, each with so many warm cells: "copy" works on a
// copy of a small tree, "empty" on nothing.
func filesRig(t *testing.T, warm int) *rig {
	t.Helper()
	src := t.TempDir()
	for name, text := range map[string]string{"keep": "keep", "edit": "before", "drop/one": "1", "drop/two": "2"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(src, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(src, name), text, 0o644)
	}
	if err := os.Symlink("keep", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	agent := func(name, workspace string) string {
		return fmt.Sprintf(`
agent %q {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  slots     = 16
  warm      = %d
  workspace {
%s
  }
}
`, name, warm, workspace)
	}
	r := newRig(t, settings{orc: optionsWithAgentID(),
		extra: agent("copy", fmt.Sprintf("    mode = \"copy\"\n    source = %q", src)) + agent("empty", `    mode = "empty"`)})
	if warm > 0 { // a rig is clean when no cell is left: its last host makes none ahead
		t.Cleanup(func() {
			text, err := os.ReadFile(r.conf)
			if err != nil {
				t.Fatal(err)
			}
			write(t, r.conf, strings.ReplaceAll(string(text), fmt.Sprintf("warm      = %d", warm), ""), 0o600)
			r.end(syscall.SIGTERM)
		})
	}
	return r
}

// cli runs the command line program against the host.
func (r *rig) cli(args ...string) (string, int) {
	r.t.Helper()
	cmd := exec.Command(program, append(args, "--addr", filepath.Join(r.dir, "run", "airlock.sock"))...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	return out.String(), cmd.ProcessState.ExitCode()
}

// manifest reads what a mission changed.
func (r *rig) manifest(id string) *result.Manifest {
	r.t.Helper()
	text, code := r.cli("mission", "files", id, "--json")
	m := &result.Manifest{}
	if err := json.Unmarshal([]byte(text), m); code != 0 || err != nil {
		r.t.Fatalf("files of %s: exit code %d, %v: %s", id, code, err, text)
	}
	return m
}

func changes(m *result.Manifest) []string {
	var out []string
	for _, f := range m.Files {
		out = append(out, fmt.Sprintf("%s %s %s", f.Change, f.Type, f.Path))
	}
	slices.Sort(out)
	return out
}

func (r *rig) wantChanges(id string, want ...string) *result.Manifest {
	r.t.Helper()
	m := r.manifest(id)
	if slices.Sort(want); !slices.Equal(changes(m), want) {
		r.t.Errorf("%s changed\n%s\nwant\n%s", id, strings.Join(changes(m), "\n"), strings.Join(want, "\n"))
	}
	return m
}

// noVolumes waits until only the volumes of waiting cells are left.
func (r *rig) noVolumes(waiting int) {
	r.t.Helper()
	r.until("the volumes of ended missions are deleted", func() bool {
		list, err := os.ReadDir(filepath.Join(r.dir, "data", "volumes"))
		return err == nil && len(list) <= waiting
	})
}

func TestWhatAMissionChangedIsKept(t *testing.T) {
	t.Parallel()
	r := filesRig(t, 1)
	r.until("warm cells wait, with nothing in them yet", func() bool {
		list, err := filepath.Glob(filepath.Join(r.dir, "data", "volumes", "*"))
		return err == nil && len(list) == 4 // each has a workspace and a state
	})
	r.dispatchTo("copy", "m1", `set -e
echo after > edit; rm -r drop; mkdir -p new/deep; echo new > new/deep/file; chmod 755 new/deep/file
ln -s /etc/passwd passwd; ln -s .. up; mkfifo fifo
head -c 50000000 /dev/urandom > big; sha256sum big | cut -d' ' -f1
(while :; do date > still-running; done) &
while [ ! -s still-running ]; do sleep 0.05; done
`)
	if m := r.reaches("m1", "done", "failed"); m.State != "done" {
		t.Fatalf("m1 is %s: %s", m.State, m.Error)
	}
	var artifacts []string
	for _, ev := range r.orc.Events("m1") {
		if ev.Event == "mission.completed" {
			var data struct {
				Artifacts []struct{ Path, Description string }
			}
			text, _ := json.Marshal(ev.Data)
			if err := json.Unmarshal(text, &data); err != nil {
				t.Fatal(err)
			}
			for _, a := range data.Artifacts {
				artifacts = append(artifacts, a.Path+": "+a.Description)
			}
		}
	}
	for _, want := range []string{"edit: modified, 6 bytes", "big: added, 50000000 bytes", "passwd: added, symlink", "fifo: added, not kept: a fifo is not kept"} {
		if !slices.Contains(artifacts, want) {
			t.Errorf("artifacts lack %q: %q", want, artifacts)
		}
	}
	m := r.wantChanges("m1", "modified file edit", "deleted dir drop", "deleted file drop/one", "deleted file drop/two",
		"added dir new", "added dir new/deep", "added file new/deep/file", "added symlink passwd", "added symlink up",
		"added fifo fifo", "added file big", "added file still-running")
	if !m.Complete {
		t.Errorf("notes: %q", m.Notes)
	}
	log, _ := r.cli("mission", "logs", "m1")
	for _, f := range m.Files {
		if f.Path == "big" && f.SHA256 != strings.TrimSpace(log) {
			t.Errorf("big has the digest %s, the mission said %s", f.SHA256, log)
		}
	}

	out := filepath.Join(t.TempDir(), "out")
	if text, code := r.cli("mission", "files", "m1", "-o", out); code != 0 || !strings.Contains(text, "2 symlinks lead out") {
		t.Errorf("extraction: exit code %d: %s", code, text)
	}
	if st, err := os.Stat(filepath.Join(out, "new/deep/file")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("new/deep/file: %v, %v", st, err)
	}
	if link, err := os.Readlink(filepath.Join(out, "passwd")); err != nil || link != "/etc/passwd" {
		t.Errorf("passwd: %q, %v", link, err)
	}
	if _, err := os.Lstat(filepath.Join(out, "keep")); err == nil {
		t.Error("what was not changed was written, too")
	}
	write(t, filepath.Join(out, "edit"), "mine", 0o644)
	if text, code := r.cli("mission", "files", "m1", "-o", out); code != 3 || !strings.Contains(text, "nothing was written") {
		t.Errorf("a second extraction: exit code %d: %s", code, text)
	}
	if text, err := os.ReadFile(filepath.Join(out, "edit")); err != nil || string(text) != "mine" {
		t.Errorf("edit was overwritten: %q, %v", text, err)
	}
	if text, code := r.cli("mission", "files", "m1", "-o", out, "--force"); code != 0 {
		t.Errorf("an extraction by force: exit code %d: %s", code, text)
	}
	if text, err := os.ReadFile(filepath.Join(out, "edit")); err != nil || string(text) != "after\n" {
		t.Errorf("edit: %q, %v", text, err)
	}
	r.noVolumes(4)
}

func TestFilesOfMissionsThatDidNotSucceed(t *testing.T) {
	t.Parallel()
	r := filesRig(t, 0)
	r.dispatchTo("copy", "failed", "echo x > edit; exit 3")
	r.dispatchTo("empty", "left", "echo x > file; exit 1")
	r.dispatchTo("empty", "nothing", "true")
	r.dispatchTo("copy", "aborted", "echo x > edit; echo up; sleep 1000")
	r.dispatchTo("copy", "lost", "echo x > edit; echo up; sleep 1000")
	r.reaches("failed", "failed")
	r.wantChanges("failed", "modified file edit")
	r.reaches("left", "failed")
	r.wantChanges("left", "added file file")
	r.reaches("nothing", "done")
	if text, code := r.cli("mission", "files", "nothing"); code != 2 || !strings.Contains(text, "it left none") {
		t.Errorf("files of a mission that left none: exit code %d: %s", code, text)
	}
	for _, id := range []string{"aborted", "lost"} {
		r.until(id+" has begun", func() bool { text, _ := r.cli("mission", "logs", id); return strings.Contains(text, "up") })
	}
	if text, code := r.cli("mission", "files", "aborted"); code != 3 {
		t.Errorf("files of a mission that runs: exit code %d: %s", code, text)
	}
	r.call("POST", "/api/v1/missions/aborted/abort", map[string]any{}, nil)
	r.reaches("aborted", "aborted")
	r.wantChanges("aborted", "modified file edit")
	r.noVolumes(3) // lost, its baseline and its state
	for _, pid := range cellPids(r.dir, false) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	r.reaches("lost", "failed")
	r.wantChanges("lost", "modified file edit")
	r.noVolumes(0)
}

// TestAHostKilledWhileMissionsEnd kills the host at any point between the exit
// of a mission and the deletion of its volume.
func TestAHostKilledWhileMissionsEnd(t *testing.T) {
	t.Parallel()
	r := filesRig(t, 0)
	const n = 6
	for round := range 3 {
		id := func(i int) string { return fmt.Sprintf("m%d-%d", round, i) }
		for i := range n {
			r.dispatchTo("copy", id(i), fmt.Sprintf("rm -r drop; head -c %d /dev/urandom > made; exit 0", i*1_000_000+10))
		}
		r.reaches(id(round), "done")
		r.end(syscall.SIGKILL)
		r.start()
		for i := range n {
			if m := r.reaches(id(i), "done", "failed"); m.State != "done" {
				t.Errorf("%s is %s: %s", id(i), m.State, m.Error)
			}
			r.wantChanges(id(i), "added file made", "deleted dir drop", "deleted file drop/one", "deleted file drop/two")
		}
	}
	r.noVolumes(0)
	if left, err := filepath.Glob(filepath.Join(r.dir, "data", "results", ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
