package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/qemutest"
	"github.com/airlock-host/airlock/sdk/fake/messages"
)

// claudeInCell is where images have the CLI.
const claudeInCell = "/usr/local/bin/claude"

// claudePlaces are the drivers that the story is told in: AIRLOCK_CLAUDE_PLACES
// of places, or the two that take seconds. With 3 the VM is among them, where
// the CLI takes minutes without KVM.
func claudePlaces(t *testing.T) []string {
	t.Helper()
	n := 2
	if v := os.Getenv("AIRLOCK_CLAUDE_PLACES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil || n < 1 || n > len(places) {
			t.Fatalf("AIRLOCK_CLAUDE_PLACES is %q, not a number from 1 to %d", v, len(places))
		}
	}
	return places[:n]
}

// claudeStory is a mission in which everything happens once. It asks for what
// the cell may know of a key, for the cell agent's life and for a core file on
// its way; what that has found is in the file seen.
func claudeStory(place string) string {
	return `usage 1000 50
say this is ` + place + `
write /workspace/b.txt first
bash deploy prod
bash echo danger >> calls
bash ` + lookingRound + `
ask Which color?|Red|Blue
bash echo push held >> calls
bash echo push deferred >> calls
bash echo end >> calls
say done`
}

// lookingRound is a command that looks for keys, tries to end the cell agent, and
// to leave a core file behind.
const lookingRound = `(env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; find "$HOME" /run /tmp /etc -xdev -type f -size -1000k -exec cat {} +) > seen 2>/dev/null; ` +
	`for p in 1 $(grep -la '^[a-z/]*airlock-cell' /proc/[0-9]*/cmdline | tr -dc '0-9\n'); do echo tried >> seen; kill -9 $p 2>/dev/null && echo killed >> calls; done; ` +
	`(ulimit -c unlimited; sleep 9 & kill -SEGV $!; wait) 2>/dev/null; ls | grep core >> calls; echo looked >> seen`

// glibcTree makes a root of busybox, bash, and the libraries that bash and the
// CLI are linked with, from this machine's own files.
func glibcTree(dir, claude string) error {
	const bash = "/bin/bash"
	if err := qemutest.Tree(dir, "/bin/busybox"); err != nil {
		return err
	}
	files := map[string]string{"/bin/bash": bash}
	for _, program := range []string{bash, claude} {
		out, err := exec.Command("ldd", program).Output()
		if err != nil {
			return fmt.Errorf("ldd %s: %w", program, err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			for _, word := range strings.Fields(lines.Text()) {
				if filepath.IsAbs(word) {
					files[word] = word
				}
			}
		}
	}
	for to, from := range files {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		to = filepath.Join(dir, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o755); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(dir, filepath.Dir(claudeInCell)), 0o755)
}

// dockerImage brings that root to the engine. The CLI is no part of it: it is
// mounted.
func dockerImage(t *testing.T, claude string) string {
	t.Helper()
	const ref = "airlock-test/claude:1"
	tree := filepath.Join(t.TempDir(), "tree")
	if err := glibcTree(tree, claude); err != nil {
		t.Fatal(err)
	}
	root, err := exec.Command("tar", "-C", tree, "-c", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := needs.engine.ImportTar(ref, root); err != nil {
		t.Fatal(err)
	}
	return ref
}

// vmImage is that root with the CLI in it, as `airlock image build` makes it.
func vmImage(t *testing.T, claude string) qemutest.Image {
	t.Helper()
	image, err := qemutest.BuildWith("claude1", func(tree string) error {
		if err := glibcTree(tree, claude); err != nil {
			return err
		}
		to := filepath.Join(tree, claudeInCell)
		if os.Link(claude, to) == nil {
			return nil
		}
		return exec.Command("cp", "--reflink=auto", claude, to).Run() // another file system
	}, claude, "/bin/bash", "/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// claudeInPlaces is a host with the CLI in cells of each driver: the machine's
// own file, a file that is mounted, a file of the image.
func claudeInPlaces(t *testing.T, places []string) (*rig, *messages.Server) {
	t.Helper()
	needs.get(t)
	c := setUpClaude(t)
	vm := needs.image
	if slices.Contains(places, "qemu-kvm") {
		vm = vmImage(t, c.binary)
	}
	extra := fmt.Sprintf(`
uid_range = [263000, 263199]
isolation "docker" "container" {
  config {
    endpoint = %q
    image    = %q
    pull     = "never"
    mounts   = { %q = %q }
  }
}
isolation "qemu-kvm" "vm" {
  config {
    image    = %q
    qemu     = %q
    template = false
  }
}
runtime "claude-code" "claude" {
  config {
    binary = %[4]q
  }
}
runtime "claude-code" "elsewhere" {
  config {
    binary      = %[3]q
    host_binary = %[4]q
  }
}
`, needs.engine.Endpoint(), dockerImage(t, c.binary), claudeInCell, c.binary, vm.Dir, vm.QEMU)
	for _, agent := range places {
		isolation := map[string]string{"host-supervisor": "host-supervisor.host", "docker": "docker.container", "qemu-kvm": "qemu-kvm.vm"}[agent]
		runtime := "elsewhere"
		if agent == "host-supervisor" {
			runtime = "claude"
		}
		extra += fmt.Sprintf(`
agent %[1]q {
  isolation = isolation.%[2]s
  runtime   = runtime.claude-code.%[3]s
  gateways  = [gateway.anthropic]
  resources {
    cpu    = 2
    memory = "1GiB"
    pids   = 256
    disk   = "1GiB"
  }
  workspace {
    source = "{{work}}/%[1]s"
    mode   = "read-write"
  }
}
`, agent, isolation, runtime)
	}
	r := triedOut(t, settings{
		governance: claudeApprove, policy: claudePolicy, extra: extra + c.blocks, orc: optionsWithAgentID(),
		before: func(r *rig) {
			for _, place := range places {
				dir := filepath.Join(r.work, place)
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // the workload has a uid of its own
					t.Fatal(err)
				}
			}
		}}, "claude", "elsewhere")
	t.Cleanup(r.leftovers)
	return r, c.api
}

// TestClaudeCodeIsGovernedInEveryDriver: the same mission in each, over one
// restart of the host; what has happened in the workspace is what the journal
// says, and the provider's key is nowhere while three agents run.
func TestClaudeCodeIsGovernedInEveryDriver(t *testing.T) {
	t.Parallel()
	places := claudePlaces(t)
	r, api := claudeInPlaces(t, places)
	r.patience = 8 // a VM without KVM is slow
	for _, place := range places {
		r.claude(place, place, claudeStory(place))
	}
	questions := map[string]asked{}
	for _, place := range places {
		questions[place] = r.question(place)
	}
	// Each cell has its agent now, which waits.
	r.secretNowhere(263000, 263199, []string{needs.engine.Dir}, places...)
	held, deferred := map[string]string{}, map[string]string{}
	for _, place := range places {
		r.answerBlue(place, questions[place])
	}
	for _, place := range places {
		held[place] = r.pending(place, "")
		r.didIn(place, "deployed dry")
		r.approve(place, held[place])
	}
	for _, place := range places {
		deferred[place] = r.pending(place, held[place])
	}
	for _, place := range places {
		r.until("the call is put off", func() bool { return slices.Contains(r.journal(place), "suspended") })
		r.cellsOf(place, 0)
	}
	r.end(syscall.SIGTERM)
	r.start()
	for _, place := range places {
		d := r.pending(place, deferred[place])
		r.didIn(place, "deployed dry", "push held")
		r.approve(place, d)
	}
	for _, place := range places {
		r.storyIsWhole(api, place)
	}
	r.inspected()
}

// didIn says what a mission's commands have done in its workspace so far.
func (r *rig) didIn(place string, want ...string) {
	r.t.Helper()
	if got := r.rows(place + "/calls"); !slices.Equal(got, want) {
		r.t.Errorf("%s: what ran is %q, want %q", place, got, want)
	}
}

// answerBlue answers the question of the story.
func (r *rig) answerBlue(place string, q asked) {
	r.t.Helper()
	if !strings.Contains(q.Prompt, "Which color?") || !strings.Contains(q.Prompt, "Blue") {
		r.t.Errorf("question %+v", q)
	}
	r.didIn(place, "deployed dry")
	if code := r.call(http.MethodPost, "/api/v1/hitl/"+escape(q.HITLID)+"/respond", map[string]any{"text": "Blue"}, nil); code != http.StatusNoContent {
		r.t.Fatalf("answer: %d", code)
	}
}

// storyIsWhole compares what a mission has done, and what the API was asked,
// with its journal.
func (r *rig) storyIsWhole(api *messages.Server, place string) {
	r.t.Helper()
	if m := r.reaches(place, "done", "failed", "aborted"); m.State != "done" {
		r.t.Fatalf("mission %+v", m)
	}
	r.didIn(place, "deployed dry", "push held", "push deferred", "end")
	if got := r.rows(place + "/b.txt"); !slices.Equal(got, []string{"first"}) {
		r.t.Errorf("b.txt %q", got)
	}
	seen := strings.Join(r.rows(place+"/seen"), "\n")
	if !strings.HasSuffix(seen, "looked") || !strings.Contains(seen, "\ntried\n") || !strings.Contains(seen, "ANTHROPIC_API_KEY=") {
		r.t.Errorf("%s: the agent has not looked round: %d bytes", place, len(seen))
	}
	ran, not := r.wholeCalls(place)
	want := []string{"airlock.launch failed" /* its session ended with the work undone */, "Write succeeded", "Bash succeeded", "Bash succeeded",
		"AskUserQuestion succeeded", "Bash succeeded", "airlock.launch succeeded", "Bash succeeded", "Bash succeeded"}
	if !slices.Equal(ran, want) || !slices.Equal(not, []string{"Bash BLOCK"}) {
		r.t.Errorf("the journal has the calls %q, and did not let run %q", ran, not)
	}
	if s := r.task(place); len(s.Running) != 0 || len(s.Pending) != 0 || len(s.Unresolved) != 0 {
		r.t.Errorf("left open: %+v", s)
	}
	if got := claudeSessions(api, "this is "+place); len(got) != 1 {
		r.t.Errorf("it was not one session of Claude Code: %v", got)
	}
	for _, q := range api.Requests() {
		if q.Key != messages.Digest(apiKey) {
			r.t.Error("a model call came without the host's key")
		}
	}
	if v := r.view(place); v.Tokens == 0 || v.CostUSD == 0 {
		r.t.Errorf("usage %+v", v)
	}
	r.verify(place)
}

// inspected reads what the operator is told of the CLI that is installed.
func (r *rig) inspected() {
	r.t.Helper()
	text := string(r.airlock("plugin", "inspect", "claude-code"))
	for _, want := range []string{"attribute", "binary = /", "version = 2.", "digest = ", "tested_version = ", "canary.decider-garbage = pass", "canary.deferred = pass", "canary.workspace-settings = pass"} {
		if strings.Count(text, want) < 2 {
			r.t.Errorf("plugin inspect claude-code does not say %q of both instances:\n%s", want, text)
		}
	}
}
