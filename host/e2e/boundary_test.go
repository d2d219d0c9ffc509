package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// protocolPlugins is a plugin directory with a runtime whose agent asks before
// each call (testdata/protocol) and a revoker that grants (testdata/granting).
var protocolPlugins = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "alplug")
	if err != nil {
		return "", err
	}
	for out, pkg := range map[string]string{"airlock-runtime-protocol": "./testdata/protocol", "airlock-revoker-fake": "./testdata/granting"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, out), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build the test's plugins: %w\n%s", err, text)
		}
	}
	for _, name := range []string{"airlock-isolation-host-supervisor", "airlock-runtime-command"} {
		text, err := os.ReadFile(filepath.Join(bin, "plugins", name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			return "", err
		}
	}
	return dir, os.Chmod(dir, 0o755)
})

// policyRules: one tool is blocked, one call is rewritten.
const policyRules = `
    rule "no-danger" {
      tool   = "Danger"
      effect = "deny"
      reason = "too dangerous"
    }
    rule "dry-run-first" {
      tool    = "deploy"
      effect  = "warn"
      rewrite = { dry_run = true }
    }
`

// governedRig has an agent "governed" whose calls are held at its own protocol.
func governedRig(t *testing.T, rules string) *rig {
	t.Helper()
	dir, err := protocolPlugins()
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, settings{plugins: dir, governance: rules, policy: policyRules, extra: `
runtime "protocol" "asks" {
  config {}
}
agent "governed" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.protocol.asks
  workspace {
    source = "{{work}}"
    mode   = "read-write"
  }
}
`})
}

// asking is an agent's script: each call is one line in the workspace's log when
// it runs.
const asking = `ask() { echo "PROPOSE $1 $2 $3"; read word id rest; echo "$word:$1:$rest" >> answers; if [ "$word" = GO ]; then echo "$1:$rest" >> effects; echo "DONE $1 ok"; fi; }
`

// taskStatus is what the tests read of GET /tasks/{id}/status.
type taskStatus struct {
	State   string `json:"state"`
	Epoch   uint64 `json:"epoch"`
	Pending []struct {
		DecisionID string `json:"decision_id"`
		ProposalID string `json:"proposal_id"`
		Tool       string `json:"tool_name"`
	} `json:"pending_approvals"`
	Running    []json.RawMessage `json:"running"`
	Unresolved []json.RawMessage `json:"unresolved"`
	Counters   struct {
		Proposed, Allowed, Blocked, Executed, Completed, Failed int
	} `json:"counters"`
}

func (r *rig) task(id string) (s taskStatus) {
	r.t.Helper()
	if code := r.call(http.MethodGet, "/tasks/"+id+"/status", nil, &s); code != http.StatusOK {
		r.t.Fatalf("status of %s: %d", id, code)
	}
	return s
}

func (r *rig) send(path string, body any) (int, map[string]any) {
	r.t.Helper()
	answer := map[string]any{}
	return r.call(http.MethodPost, path, body, &answer), answer
}

// verify exports a task's journal and has it verified.
func (r *rig) verify(id string) {
	r.t.Helper()
	file := filepath.Join(r.dir, id+".jsonl")
	for _, args := range [][]string{{"journal", "export", id, "-o", file}, {"journal", "verify", file}} {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "AIRLOCK_ADDR="+filepath.Join(r.dir, "run", "airlock.sock"))
		if text, err := cmd.CombinedOutput(); err != nil {
			r.t.Errorf("airlock %v: %v\n%s", args, err, text)
		}
	}
}

func (r *rig) give(body map[string]any) {
	r.t.Helper()
	if code, text := r.tryDispatch(body); code != http.StatusAccepted {
		r.t.Fatalf("dispatch: %d %s", code, text)
	}
}

// pending waits until a task has one approval that waits, and gives its id.
func (r *rig) pending(task, not string) string {
	r.t.Helper()
	var id string
	r.until("an approval waits", func() bool {
		s := r.task(task)
		if len(s.Pending) == 1 && s.Pending[0].DecisionID != not {
			id = s.Pending[0].DecisionID
		}
		return id != ""
	})
	return id
}

func TestEveryCallIsDecidedBeforeItRuns(t *testing.T) {
	t.Parallel()
	r := governedRig(t, `
  approve {
    rule "pushes" {
      tool = "Push"
    }
  }
`)
	r.give(map[string]any{"mission_id": "m", "executor_filter": map[string]any{"capabilities": []string{"runtime:custom:protocol"}}, "completion": "x", "objective": asking + `
ask 1 Write '{"n":1}'
ask 2 Danger '{}'
ask 3 deploy '{"env":"prod"}'
ask 4 Push '{"b":"main"}'
ask 5 Push '{"b":"other"}'
`})
	first := r.pending("m", "")
	if got := r.lines("effects"); len(got) != 2 {
		t.Errorf("before the approval ran %q", got)
	}
	if code, a := r.send("/tasks/m/approval", map[string]any{"decision_id": first, "action": "approve_once"}); code != http.StatusOK || a["status"] != "ALLOW" {
		t.Fatalf("approval: %d %v", code, a)
	}
	second := r.pending("m", first)
	if code, _ := r.send("/tasks/m/approval", map[string]any{"decision_id": first, "action": "approve_once"}); code != http.StatusConflict {
		t.Errorf("the same approval twice: %d", code)
	}
	if code, a := r.send("/tasks/m/approval", map[string]any{"decision_id": second, "action": "reject", "explanation": "not today"}); code != http.StatusOK || a["status"] != "BLOCK" {
		t.Fatalf("rejection: %d %v", code, a)
	}
	m := r.reaches("m", "done", "failed", "aborted")
	if m.State != "done" {
		t.Fatalf("mission %+v", m)
	}
	want := []string{`1:{"n":1}`, `3:{"env":"prod","dry_run":true}`, `4:{"b":"main"}`}
	if got := r.lines("effects"); !slices.Equal(got, want) {
		t.Errorf("effects %q, want %q", got, want)
	}
	s := r.task("m")
	// The launch is a call too.
	if c := s.Counters; c.Proposed != 6 || c.Executed != 4 || c.Completed != 4 || c.Failed != 0 || len(s.Running) != 0 {
		t.Errorf("counters %+v", s)
	}
	r.verify("m")
}

func TestAnApprovalSurvivesAKilledHost(t *testing.T) {
	t.Parallel()
	r := governedRig(t, `
  approve {
    rule "pushes" {
      tool = "Push"
    }
  }
`)
	r.give(map[string]any{"mission_id": "m", "executor_filter": map[string]any{"capabilities": []string{"runtime:custom:protocol"}}, "completion": "x", "objective": asking + `
ask 1 Write '{}'
ask 2 Push '{}'
ask 3 Write '{}'
`})
	before := r.pending("m", "")
	r.end(syscall.SIGKILL)
	r.start()
	after := r.pending("m", before)
	if code, _ := r.send("/tasks/m/approval", map[string]any{"decision_id": before, "action": "approve_once"}); code != http.StatusConflict {
		t.Errorf("the old decision: %d, want a conflict", code)
	}
	if got := r.lines("effects"); !slices.Equal(got, []string{"1:{}"}) {
		t.Errorf("before the approval ran %q", got)
	}
	if code, a := r.send("/tasks/m/approval", map[string]any{"decision_id": after, "action": "approve_once"}); code != http.StatusOK {
		t.Fatalf("approval: %d %v", code, a)
	}
	if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
		t.Fatalf("mission %+v", m)
	}
	if got := r.lines("effects"); !slices.Equal(got, []string{"1:{}", "2:{}", "3:{}"}) {
		t.Errorf("effects %q", got)
	}
	r.verify("m")
}

func TestAStopLeavesAWaitingCallUndone(t *testing.T) {
	t.Parallel()
	r := governedRig(t, `
  approve {
    rule "pushes" {
      tool = "Push"
    }
  }
`)
	r.give(map[string]any{"mission_id": "m", "executor_filter": map[string]any{"capabilities": []string{"runtime:custom:protocol"}}, "completion": "x", "objective": asking + "ask 1 Push '{}'"})
	d := r.pending("m", "")
	code, receipt := r.send("/tasks/m/control?wait=30", map[string]any{"action": "stop", "reason": "enough"})
	if code != http.StatusOK || receipt["final"] != true || receipt["access_revocation"] != "not_configured" {
		t.Fatalf("stop: %d %v", code, receipt)
	}
	if iso, _ := receipt["isolation"].(map[string]any); iso["result"] == "unproven" || iso["result"] == nil {
		t.Errorf("proof %v", receipt["isolation"])
	}
	if code, _ := r.send("/tasks/m/approval", map[string]any{"decision_id": d, "action": "approve_once"}); code != http.StatusConflict {
		t.Errorf("an approval after the stop: %d", code)
	}
	if m := r.reaches("m", "done", "failed", "aborted"); m.State != "aborted" {
		t.Errorf("mission %+v", m)
	}
	if got := r.lines("effects"); got != nil {
		t.Errorf("ran %q", got)
	}
	r.verify("m")
}
