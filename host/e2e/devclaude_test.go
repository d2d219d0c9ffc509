package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/sdk/fake/claudecli"
)

// TestDevShowsAGovernedClaudeMission runs what the README says: no account, the
// real CLI, and every one of its calls decided on.
func TestDevShowsAGovernedClaudeMission(t *testing.T) {
	t.Parallel()
	claude, remove, err := claudecli.Visible(claudecli.Need(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	page, err := os.ReadFile("../../docs/claude-code.md")
	if err != nil {
		t.Fatal(err)
	}
	// The page's own line, but for where the programs and files are.
	line := regexp.MustCompile(`(?m)^bin/airlock (dev .*--claude /usr/local/bin/claude .*)$`).FindStringSubmatch(string(page))
	if line == nil {
		t.Fatal("docs/claude-code.md does not say how to run it")
	}
	args := strings.Fields(strings.NewReplacer("/usr/local/bin/claude", claude, "examples/", "../../examples/").Replace(line[1]))
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "airlock"), append(args, "--json", "--timeout", "5m")...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "ANTHROPIC_") })
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.String())
	}
	var decisions, calls []string
	var last string
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var ev struct {
			Event, Kind string
			Data        struct {
				Tokens    int64 `json:"tokens_total"`
				Artifacts []struct{ Path string }
			}
			Payload struct {
				Tool       string `json:"tool_name"`
				Invocation string `json:"invocation_id"`
				Decision   struct{ Status, Reason string }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			t.Fatalf("%v in %s", err, lines.Bytes())
		}
		switch {
		case ev.Kind == "decision":
			decisions = append(decisions, ev.Payload.Tool+" "+ev.Payload.Decision.Status)
		case ev.Kind == "completed" && ev.Payload.Invocation != "":
			calls = append(calls, ev.Payload.Invocation)
		case ev.Event != "":
			last = ev.Event
			if last == "mission.completed" && (ev.Data.Tokens == 0 || len(ev.Data.Artifacts) == 0) {
				t.Errorf("%s", lines.Bytes())
			}
		}
	}
	want := "airlock.launch ALLOW,Bash ALLOW,Write ALLOW,Edit ALLOW,Bash BLOCK,Bash ALLOW"
	if got := strings.Join(decisions, ","); got != want || last != "mission.completed" {
		t.Errorf("decisions %s, then %s\n%s\n%s", got, last, out, stderr.String())
	}
	if len(calls) < 4 {
		t.Errorf("%d calls were completed: %s", len(calls), out)
	}
}
