package e2e

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/fake/claudecli"
	"github.com/airlock-host/airlock/sdk/fake/messages"
)

// claudeRig is a host whose agent "claude" is the real Claude Code CLI, against
// the stand-in of the Messages API.
func claudeRig(t *testing.T) (*rig, *messages.Server) {
	t.Helper()
	binary, err := filepath.EvalSymlinks(claudecli.Need(t))
	if err != nil {
		t.Fatal(err)
	}
	api, err := messages.Serve("127.0.0.1:0", messages.Options{Check: func(key string) error {
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
	r := newRig(t, settings{
		governance: `
  approval_hold = "15s"
  approve {
    rule "pushes" {
      tool = "Bash"
      when = matches("push", args.command)
    }
  }
`,
		policy: `
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
  }
}
gateway "anthropic" {
  upstream    = %[3]q
  allow_paths = ["/v1/messages*"]
  price "*" {
    input  = 3
    output = 15
  }
  header "x-api-key" {
    value = secret("file:%[4]s")
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
`, filepath.Dir(binary), binary, api.URL, key)})
	// Its gates are tried out before it takes missions.
	for end := time.Now().Add(4 * deadline); ; time.Sleep(100 * time.Millisecond) {
		if slices.Contains(r.capabilities(), "runtime:claude-code") {
			return r, api
		}
		if time.Now().After(end) {
			t.Fatalf("the runtime does not become healthy\n%s", r.log)
		}
	}
}

// capabilities are what the host's healthy agents provide.
func (r *rig) capabilities() []string {
	var list struct {
		Agents []struct {
			Capabilities []string `json:"capabilities"`
		} `json:"agents"`
	}
	r.call(http.MethodGet, "/api/v1/agents", nil, &list)
	var all []string
	for _, a := range list.Agents {
		all = append(all, a.Capabilities...)
	}
	return all
}

func (r *rig) claude(id, script string) {
	r.t.Helper()
	body := map[string]any{"mission_id": id, "executor_filter": map[string]any{"capabilities": []string{"runtime:claude-code"}}, "completion": "the script is done", "objective": script}
	r.until("the orchestrator knows of the runtime", func() bool {
		code, _ := r.tryDispatch(body)
		return code == http.StatusAccepted
	})
}

func TestClaudeCodeIsGoverned(t *testing.T) {
	t.Parallel()
	r, api := claudeRig(t)
	r.claude("m", `usage 1000 50
bash echo one >> calls
write /workspace/b.txt first
edit /workspace/b.txt|first|second
read /workspace/b.txt
deploy is what comes next
bash deploy prod
bash echo danger >> calls
ask Which color?|Red|Blue
bash echo push held >> calls
bash echo push deferred >> calls
bash echo end >> calls
say done`)
	q := r.question("m")
	if !strings.Contains(q.Prompt, "Which color?") || !strings.Contains(q.Prompt, "Blue") {
		t.Errorf("question %+v", q)
	}
	if code := r.call(http.MethodPost, "/api/v1/hitl/"+q.HITLID+"/respond", map[string]any{"text": "Blue"}, nil); code != http.StatusNoContent {
		t.Fatalf("answer: %d", code)
	}
	held := r.pending("m", "")
	r.approve("m", held)
	deferred := r.pending("m", held)
	r.parked("m")
	r.end(syscall.SIGTERM)
	r.start()
	deferred = r.pending("m", deferred)
	if got := r.rows("calls"); !slices.Equal(got, []string{"one", "deployed dry", "push held"}) {
		t.Errorf("before the second approval ran %q", got)
	}
	r.approve("m", deferred)
	if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
		t.Fatalf("mission %+v", m)
	}
	if got := r.rows("calls"); !slices.Equal(got, []string{"one", "deployed dry", "push held", "push deferred", "end"}) {
		t.Errorf("calls %q", got)
	}
	if got := r.rows("b.txt"); !slices.Equal(got, []string{"second"}) {
		t.Errorf("b.txt %q", got)
	}
	// Two launches, and of the calls all but the blocked one.
	s := r.task("m")
	if c := s.Counters; c.Executed != 11 || c.Blocked < 1 || len(s.Running) != 0 || len(s.Pending) != 0 || len(s.Unresolved) != 0 {
		t.Errorf("counters %+v", s)
	}
	sessions := map[string]bool{}
	for _, q := range api.Requests() {
		sessions[q.Session] = true
		if q.Key != messages.Digest(apiKey) {
			t.Error("a model call came without the host's key")
		}
	}
	if len(sessions) != 1 {
		t.Errorf("it was not one session of Claude Code: %v", sessions)
	}
	if v := r.view("m"); v.Tokens == 0 || v.CostUSD == 0 {
		t.Errorf("usage %+v", v)
	}
	r.verify("m")
	r.withoutKey()
}

func (r *rig) approve(task, decision string) {
	r.t.Helper()
	if code, a := r.send("/tasks/"+task+"/approval", map[string]any{"decision_id": decision, "action": "approve_once"}); code != http.StatusOK || a["status"] != "ALLOW" {
		r.t.Fatalf("approval: %d %v", code, a)
	}
}

// withoutKey looks for the provider's key in all that the host has written, the
// workspace included.
func (r *rig) withoutKey() {
	r.t.Helper()
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // files come and go
		}
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), apiKey) {
			r.t.Errorf("the key is in %s", path)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if strings.Contains(r.log.String(), apiKey) {
		r.t.Error("the key is in the host's log")
	}
}
