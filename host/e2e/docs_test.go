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
	drivers, err := filepath.Glob("../../docs/drivers/*.md")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, settings{governance: harnessRules, policy: harnessPolicy, samePort: true})
	ran := 0
	for _, page := range append(append(pages, drivers...), "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			first, _, _ := strings.Cut(b[2], "\n")
			switch {
			case b[1] == "":
				t.Errorf("%s: a block does not say what it is (sh, hcl, json, text …): %s", page, first)
			case b[1] != "sh" || filepath.Base(page) == "plugin-authors.md": // that page has a test of its own
			case strings.HasPrefix(first, notRun):
			default:
				ran++
				r.runBlock(filepath.Base(page), b[2])
			}
		}
	}
	if ran < 8 {
		t.Errorf("only %d blocks of commands were run", ran)
	}
}

// runBlock runs the commands of a block as they stand there, but for names and
// places that are made up.
func (r *rig) runBlock(page, text string) {
	r.t.Helper()
	etc := filepath.Join(r.dir, "docs", "etc")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		r.t.Fatal(err)
	}
	text = strings.NewReplacer("/etc/airlock", etc, "http://127.0.0.1:8122", r.restBase(), `"make test"`, `"true"`, "bench -n 20", "bench -n 2").Replace(text)
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
	bin, err := filepath.Abs(bin)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", text)
	cmd.Dir = filepath.Dir(etc)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "AIRLOCK_ADDR="+filepath.Join(r.dir, "run", "airlock.sock"))
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Errorf("%s: %v\n%s\n%s", page, err, text, out)
	}
	if strings.Contains(text, "airlock drain") { // it takes no missions any more
		r.end(syscall.SIGTERM)
		r.start()
	}
}
