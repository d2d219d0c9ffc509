package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// block is a piece of a page between fences: what it is said to be, and what
// stands in it.
var block = regexp.MustCompile("(?sm)^```([a-z]*)\n(.*?)^```$")

const notRun = "# not run by the tests: "

// Every command of the documentation is run against a host, page by page, or
// says on its first line why it is not. What is not a command says what it is.
func TestCommandsOfTheDocumentation(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, settings{governance: harnessRules, policy: harnessPolicy, samePort: true})
	ran := 0
	for _, page := range append(pages, "../../README.md") {
		if filepath.Base(page) == "plugin-authors.md" { // it has a test of its own
			continue
		}
		for _, text := range blocks(t, page)["sh"] {
			ran++
			r.runBlock(filepath.Base(page), text)
		}
	}
	if ran < 8 {
		t.Errorf("only %d blocks of commands were run", ran)
	}
}

// blocks are the pieces of a page by what they are, without commands that are not
// run.
func blocks(t *testing.T, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, b := range block.FindAllStringSubmatch(string(text), -1) {
		if b[1] == "" {
			first, _, _ := strings.Cut(b[2], "\n")
			t.Errorf("%s: a block does not say what it is (sh, hcl, json, text …): %s", page, first)
		}
		if !strings.HasPrefix(b[2], notRun) {
			found[b[1]] = append(found[b[1]], b[2])
		}
	}
	return found
}

// runBlock runs the commands of a block as they stand there, but for names and
// places that are made up.
func (r *rig) runBlock(page, text string) {
	r.t.Helper()
	etc := r.docsEtc()
	text = strings.NewReplacer("/etc/airlock", etc, "http://127.0.0.1:8122", r.restBase(), `"make test"`, `"true"`, "bench -n 20", "bench -n 2",
		"examples/configs/", r.exampleConfigs()).Replace(text)
	if strings.Contains(text, "MISSION") {
		id := fmt.Sprintf("of-%s", strings.TrimSuffix(page, ".md"))
		r.call("POST", "/api/v1/missions", map[string]any{"mission_id": id, "objective": "sleep 600"}, nil)
		r.until("the mission runs", func() bool {
			var m struct{ State string }
			r.call("GET", "/api/v1/missions/"+id, nil, &m)
			return m.State == "running"
		})
		text = strings.ReplaceAll(text, "MISSION", id)
	}
	if strings.Contains(text, "DECISION") {
		_, token := r.harnessTask("of-" + page)
		var d struct {
			ID string `json:"decision_id"`
		}
		r.callAs(token, "POST", "/tasks/of-"+page+"/proposals", map[string]any{"tool_name": "refund", "tool_args": map[string]any{"amount": 850}}, &d)
		text = strings.ReplaceAll(text, "DECISION", d.ID)
	}
	r.runCommands(page, text)
	if strings.Contains(text, "airlock drain") { // it takes no missions any more
		r.end(syscall.SIGTERM)
		r.start()
	}
}

// docsEtc is the directory that stands for /etc/airlock; the one above it is where
// commands are run.
func (r *rig) docsEtc() string {
	r.t.Helper()
	etc := filepath.Join(r.dir, "docs", "etc")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		r.t.Fatal(err)
	}
	return etc
}

// exampleConfigs copies the example of Claude Code to where what it names is
// there (any program stands for the CLI), and gives the directory with a slash.
func (r *rig) exampleConfigs() string {
	r.t.Helper()
	text, err := os.ReadFile("../../examples/configs/claude.hcl")
	if err != nil {
		r.t.Fatal(err)
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		r.t.Fatal(err)
	}
	dir := filepath.Join(r.dir, "docs", "examples")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	write(r.t, filepath.Join(dir, "claude.hcl"), strings.NewReplacer("/srv/repo", r.work, "/opt/claude/claude", filepath.Join(bin, "airlock-cell")).Replace(string(text))+
		fmt.Sprintf("\ndata_dir = %q\nplugins {\n  dir  = %q\n  lock = %q\n}\n", filepath.Join(dir, "data"), filepath.Join(bin, "plugins"), filepath.Join(dir, "no.lock.hcl")), 0o600)
	return dir + "/"
}

// runCommands runs commands against the host; env are further variables.
func (r *rig) runCommands(page, text string, env ...string) {
	r.t.Helper()
	bin, err := filepath.Abs(bin)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", text)
	cmd.Dir = filepath.Dir(r.docsEtc())
	cmd.Env = append(append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "AIRLOCK_ADDR="+filepath.Join(r.dir, "run", "airlock.sock")), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Errorf("%s: %v\n%s\n%s", page, err, text, out)
	}
}
