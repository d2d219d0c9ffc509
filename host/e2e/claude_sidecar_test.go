package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/sdk/fake/messages"
)

// sidecarRig is a host whose agent "claude" is the real Claude Code CLI with the
// host's own MCP endpoint, against the stand-in of the Messages API.
func sidecarRig(t *testing.T) (*rig, *messages.Server) {
	t.Helper()
	c := setUpClaude(t)
	r := triedOut(t, settings{
		orc:        optionsWithAgentID(),
		governance: "\n approval_hold = \"1s\"\n approve {\n rule \"pushes\" {\n tool = \"Bash\"\n when = matches(\"push\", args.command)\n }\n }\n",
		policy: `
    rule "no-rm" {
      tool   = "*run_command"
      when   = args.executable == "rm"
      effect = "deny"
      reason = "nothing is removed"
    }
`,
		extra: fmt.Sprintf(`
isolation "host-supervisor" "claude" {
  config {
    writable = [%[1]q]
  }
}
runtime "claude-code" "claude" {
  config {
    binary = %[2]q
    mcp    = true
  }
}
agent "claude" {
  isolation = isolation.host-supervisor.claude
  runtime   = runtime.claude-code.claude
  gateways  = [gateway.anthropic]
  workspace {
    source = "{{work}}"
    mode   = "read-write"
  }
}
`, filepath.Dir(c.binary), c.binary) + c.blocks}, "claude")
	return r, c.api
}

// The real Claude Code CLI calls the host's tools with control envelopes, over
// the link of its cell: the goal moves, the call is one governed call, and what
// the envelope held is nowhere but in the goal. A mission that goes on in
// another session finds its wake, and consumes it.
func TestClaudeCodeSendsControlEnvelopes(t *testing.T) {
	t.Parallel()
	r, api := sidecarRig(t)
	call := func(executable, args, phases string) string {
		return `mcp airlock run_command {"project":"{{project}}","executable":"` + executable + `","args":` + args + `,"_wc":{"control":{` + phases + `}}}`
	}
	progress := func(revision, key, more string) string {
		return `"before":{"goal_progress":{"goal_id":"{{goal_id}}","expected_revision":"{{` + revision + `}}","summary":"SENTINEL-summary","idempotency_key":"SENTINEL-` + key + `"` + more + `}}`
	}
	r.claude("claude", "m", strings.Join([]string{
		`mcp airlock get_mission_context {}`,
		call("sh", `["-c","echo one >> calls"]`, progress("goal_revision", "k1", "")),
		call("rm", `["calls"]`, progress("revision", "k2", "")), // denied by the gate: it never comes to the endpoint
		`bash echo two >> calls`,
		`bash echo push >> calls`,
		`mcp airlock get_mission_context {}`,
		call("sh", `["-c","echo three >> calls"]`, `"before":{"wake_consume":{"agent_id":"{{agent_id}}","endpoint_id":"{{endpoint_id}}","expected_controller_generation":"{{controller_generation}}","wake_id":"{{wake_id}}","consume_token":"{{consume_token}}"}}`),
		`mcp airlock get_mission_context {}`,
		`say done`,
	}, "\n"))
	waits := r.pending("m", "")
	r.parked("m") // its cell is gone; another session follows the approval
	r.end(syscall.SIGTERM)
	r.start()
	r.approve("m", r.pending("m", waits))
	if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
		t.Fatalf("mission %+v", m)
	}
	if got := r.rows("calls"); !slices.Equal(got, []string{"one", "two", "push", "three"}) {
		t.Errorf("calls %q", got)
	}
	var controls []string
	var token string
	for _, q := range api.Requests() {
		if a := structuredIn(q.Results); a.Success || a.Error != nil {
			if a.Error != nil {
				t.Errorf("a call over MCP has failed: %s", *a.Error)
			}
			var out struct {
				Control json.RawMessage `json:"control"`
				Proofs  struct {
					Token string `json:"consume_token"`
				} `json:"proofs"`
			}
			_ = json.Unmarshal(a.Output, &out)
			if text := string(out.Control); text != "" && !slices.Contains(controls, text) {
				controls = append(controls, text)
			}
			if out.Proofs.Token != "" {
				token = out.Proofs.Token
			}
		}
	}
	want := []string{
		`{"main":{"success":true,"execution_state":"succeeded","state_changed":null},"before":{"kind":"goal_progress","success":true,"execution_state":"succeeded","state_changed":true,"replayed":false,"revision":2}}`,
		`{"main":{"success":true,"execution_state":"succeeded","state_changed":null},"before":{"kind":"wake_consume","success":true,"execution_state":"succeeded","state_changed":true,"replayed":false}}`,
	}
	if !slices.Equal(controls, want) {
		t.Errorf("controls\n%s\nwant\n%s", strings.Join(controls, "\n"), strings.Join(want, "\n"))
	}
	if token == "" {
		t.Error("the wake was not told")
	}
	// The objective is in the journal, and it is the script; nothing after it.
	var list struct {
		Events []json.RawMessage `json:"events"`
	}
	r.call("GET", "/tasks/m/events", nil, &list)
	for _, ev := range list.Events[1:] {
		for _, never := range []string{"_wc", "SENTINEL-k", token} {
			if strings.Contains(string(ev), never) {
				t.Errorf("%q is in the journal: %s", never, ev)
			}
		}
	}
	if strings.Contains(r.log.String(), "SENTINEL") || strings.Contains(r.log.String(), token) {
		t.Error("what an envelope held is in the log")
	}
	// Each call over MCP is the one that Claude Code proposed: two launches, three
	// looks, two commands, two of Bash.
	if c := r.task("m").Counters; c.Executed != 9 || c.Blocked != 1 {
		t.Errorf("counters %+v", c)
	}
	if v := r.view("m"); v.State != "done" {
		t.Errorf("mission %+v", v)
	}
	r.verify("m")
	r.withoutText(apiKey)
	r.withoutText(token)
}

// structuredIn finds a tool's structured content in what a call gave back.
func structuredIn(results string) (a mcpAnswer) {
	for line := range strings.Lines(results) {
		if json.Unmarshal([]byte(line), &a) == nil && a.Output != nil {
			return a
		}
	}
	return mcpAnswer{}
}

// withoutText looks for a secret in the host's data, the mission's own volumes
// aside: the agent may know it.
func (r *rig) withoutText(secret string) {
	r.t.Helper()
	err := filepath.WalkDir(filepath.Join(r.dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/volumes/") || strings.Contains(path, "/sessions/") {
			return nil //nolint:nilerr // files come and go
		}
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), secret) {
			r.t.Errorf("a proof is in %s", path)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}
