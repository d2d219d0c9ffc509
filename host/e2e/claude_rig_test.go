package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/fake/claudecli"
	"github.com/airlock-host/airlock/sdk/fake/messages"
)

// claudeRules are the rules of the missions with the real Claude Code CLI: one
// command is blocked, one is rewritten, one waits for a human.
const (
	claudeApprove = `
  approval_hold = "15s"
  approve {
    rule "pushes" {
      tool = "Bash"
      when = matches("push", args.command)
    }
  }
`
	claudePolicy = `
    rule "no-danger" {
      tool   = "Bash"
      when   = matches("danger", args.command)
      effect = "deny"
      reason = "too dangerous"
    }
    rule "dry-run-first" {
      tool    = "Bash"
      when    = matches("^deploy", args.command)
      effect  = "warn"
      rewrite = { command = "echo deployed dry >> calls" }
    }
`
)

// claudeSetup is what a host with the real CLI needs.
type claudeSetup struct {
	api    *messages.Server
	binary string // as cells of the host-supervisor see it
	blocks string // the gateway in HCL
}

// setUpClaude starts the stand-in of the Messages API, which takes apiKey alone.
func setUpClaude(t *testing.T) *claudeSetup {
	t.Helper()
	binary, err := filepath.EvalSymlinks(claudecli.Need(t))
	if err != nil {
		t.Fatal(err)
	}
	binary, remove, err := claudecli.Visible(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	api, err := messages.Serve("127.0.0.1:0", messages.Options{Bodies: true, Check: func(key string) error {
		if key != apiKey {
			return fs.ErrPermission
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, apiKey+"\n", 0o600)
	return &claudeSetup{api: api, binary: binary, blocks: fmt.Sprintf(`
gateway "anthropic" {
  upstream    = %q
  allow_paths = ["/v1/messages*"]
  price "*" {
    input  = 3
    output = 15
  }
  header "x-api-key" {
    value = secret("file:%s")
  }
}
`, api.URL, key)}
}

// claudeRig is a host whose agent "claude" is the real CLI in cells of the
// host-supervisor, each with a uid of its own from the range.
func claudeRig(t *testing.T, uids string, s settings) (*rig, *messages.Server) {
	t.Helper()
	c := setUpClaude(t)
	s.governance, s.policy, s.orc = s.governance+claudeApprove, s.policy+claudePolicy, optionsWithAgentID()
	s.extra += fmt.Sprintf(`
uid_range = %s
runtime "claude-code" "claude" {
  config {
    binary = %q
  }
}
agent "claude" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.claude-code.claude
  gateways  = [gateway.anthropic]
  slots     = 4
  workspace {
    source = "{{work}}"
    mode   = "read-write"
  }
}
`, uids, c.binary) + c.blocks
	return triedOut(t, s, "claude"), c.api
}

// verdict is what a plugin has found out about the gates of the CLI: of the
// tests of this package one has them tried out, and the others' plugins
// remember it, as they would after a restart.
var verdict struct {
	sync.Mutex
	text []byte
}

// triedOut is a rig whose instances of claude-code take missions.
func triedOut(t *testing.T, s settings, instances ...string) *rig {
	t.Helper()
	verdict.Lock()
	defer verdict.Unlock()
	file := func(r *rig, instance string) string {
		return filepath.Join(r.dir, "data", "plugins", "runtime.claude-code."+instance, "canaries.json")
	}
	before := s.before
	s.before = func(r *rig) {
		if before != nil {
			before(r)
		}
		for _, i := range instances {
			if verdict.text == nil {
				break
			}
			if err := os.MkdirAll(filepath.Dir(file(r, i)), 0o711); err != nil {
				t.Fatal(err)
			}
			write(t, file(r, i), string(verdict.text), 0o600)
		}
	}
	r := newRig(t, s)
	for end := time.Now().Add(4 * deadline); len(r.unwell()) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not all agents become healthy: %v\n%s", r.unwell(), r.log)
		}
	}
	if text, err := os.ReadFile(file(r, instances[0])); err != nil {
		t.Errorf("the plugin remembers nothing: %v", err)
	} else {
		verdict.text = text
	}
	return r
}

// unwell are the agents that take no mission, with their reasons.
func (r *rig) unwell() map[string]string {
	var list struct {
		Agents []struct {
			Name, Reason string
			Healthy      bool
		} `json:"agents"`
	}
	bad := map[string]string{}
	if r.call(http.MethodGet, "/api/v1/agents", nil, &list) != http.StatusOK {
		bad["host"] = "it does not answer"
	}
	for _, a := range list.Agents {
		if !a.Healthy {
			bad[a.Name] = a.Reason
		}
	}
	return bad
}

// claude gives a script to an agent that is the CLI.
func (r *rig) claude(agent, id, script string) {
	r.t.Helper()
	r.until("the orchestrator takes the mission", func() bool {
		code, _ := r.tryDispatchTo(agent, id, script)
		return code == http.StatusAccepted
	})
}

func (r *rig) approve(task, decision string) {
	r.t.Helper()
	if code, a := r.send("/tasks/"+task+"/approval", map[string]any{"decision_id": decision, "action": "approve_once"}); code != http.StatusOK || a["status"] != "ALLOW" {
		r.t.Fatalf("approval: %d %v", code, a)
	}
}

// callEvent is what the tests read of an event about a call.
type callEvent struct {
	Kind    string `json:"kind"`
	Payload struct {
		Proposal   string          `json:"proposal_id"`
		Decision   string          `json:"decision_id"`
		Invocation string          `json:"invocation_id"`
		Resolved   string          `json:"resolved_decision_id"`
		Tool       string          `json:"tool_name"`
		Args       json.RawMessage `json:"tool_args"`
		Outcome    string          `json:"outcome"`
		Record     struct {
			Status string `json:"status"`
		} `json:"decision"`
	} `json:"payload"`
}

func (r *rig) callEvents(id string) (all []callEvent) {
	r.t.Helper()
	for after := 0; ; {
		var page struct {
			Events []callEvent `json:"events"`
			Next   int         `json:"next"`
		}
		if code := r.call(http.MethodGet, fmt.Sprintf("/tasks/%s/events?after=%d", escape(id), after), nil, &page); code != http.StatusOK {
			r.t.Fatalf("events of %q: %d", id, code)
		}
		if len(page.Events) == 0 {
			return all
		}
		all, after = append(all, page.Events...), page.Next
	}
}

// wholeCalls reads every call of a task out of its journal: proposed, decided
// so that it may run, dispatched, and ended, in this order and each once. It
// gives "TOOL OUTCOME" of those that were dispatched, in order, and the statuses of the
// others.
func (r *rig) wholeCalls(id string) (ran, not []string) {
	r.t.Helper()
	type decision struct{ proposal, status string }
	proposed, decided, open := map[string]string{}, map[string]decision{}, map[string]string{}
	dispatched, last := map[string]bool{}, map[string]string{}
	at := map[string]int{}
	for _, ev := range r.callEvents(id) {
		p := &ev.Payload
		switch {
		case ev.Kind == "proposed":
			proposed[p.Proposal] = p.Tool
		case ev.Kind == "decision":
			if proposed[p.Proposal] == "" {
				r.t.Errorf("%s: a decision on %q, which was not proposed", id, p.Proposal)
			}
			decided[p.Decision], last[p.Proposal] = decision{p.Proposal, p.Record.Status}, p.Record.Status
		case ev.Kind == "executed":
			d := decided[p.Decision]
			if d.proposal != p.Proposal || d.status != "ALLOW" && d.status != "WARN" {
				r.t.Errorf("%s: %s was dispatched by the decision %+v", id, p.Tool, d)
			}
			if dispatched[p.Proposal] {
				r.t.Errorf("%s: %s (%s) was dispatched twice", id, p.Tool, p.Proposal)
			}
			dispatched[p.Proposal], open[p.Invocation] = true, p.Tool
			at[p.Invocation] = len(ran)
			ran = append(ran, p.Tool)
		case (ev.Kind == "completed" || ev.Kind == "failed") && p.Invocation != "":
			if open[p.Invocation] == "" {
				r.t.Errorf("%s: the end of %s, which was not dispatched or had ended", id, p.Invocation)
				continue
			}
			ran[at[p.Invocation]] += " " + p.Outcome
			delete(open, p.Invocation)
		}
	}
	for _, tool := range open {
		r.t.Errorf("%s: the journal does not say how %s ended", id, tool)
	}
	for p, tool := range proposed {
		if !dispatched[p] {
			not = append(not, tool+" "+last[p])
		}
	}
	slices.Sort(not)
	return ran, not
}

// claudeSessions are the sessions of Claude Code that a mission has had, from
// what the API was asked; marker is a word of the mission's script.
func claudeSessions(api *messages.Server, marker string) (ids []string) {
	for _, q := range api.Requests() {
		if strings.Contains(string(q.Body), marker) && !slices.Contains(ids, q.Session) {
			ids = append(ids, q.Session)
		}
	}
	return ids
}
