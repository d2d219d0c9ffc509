package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const goneRules = `
    rule "asks-before-rm" {
      tool   = "run_command"
      when   = args.executable == "rm"
      effect = "pause"
    }
`

// goneFlow is a workload that gives its calls up: it is told in the files of
// its workspace when to go on, and tells there how far it is.
func goneFlow() string {
	url := os.Getenv("AIRLOCK_MCP_URL")
	plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	hasty := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Second}
	ctx, err := mcpCall(plain, url, "", "get_mission_context", `{}`)
	var ids missionIDs
	if err != nil || json.Unmarshal(ctx.Output, &ids) != nil {
		return fmt.Sprintf("context: %v %s", err, ctx.text)
	}
	finish := func(want string) string {
		var last mcpAnswer
		for range 1200 {
			if last, err = mcpCall(plain, url, "", "finish_coding_task", fmt.Sprintf(`{"project":%q,"session_id":%q}`, ids.Project, ids.Session)); err == nil && strings.Contains(last.text, want) {
				return last.text
			}
			time.Sleep(100 * time.Millisecond)
		}
		return fmt.Sprintf("never %s: %v %s", want, err, last.text)
	}
	tell := func(name, text string) {
		_ = os.WriteFile(name+".new", []byte(text), 0o644)
		_ = os.Rename(name+".new", name)
	}
	if _, err := mcpCall(hasty, url, "", "run_command", fmt.Sprintf(`{"project":%q,"executable":"sleep","args":["600"]}`, ids.Project)); err == nil {
		return "the sleep was answered"
	}
	tell("blocked", finish(`invocation_outcome_unknown`))
	tell("free", finish(`"blocking":false`))
	// This one waits for a human, and is given up.
	if _, err := mcpCall(hasty, url, "", "run_command", fmt.Sprintf(`{"project":%q,"executable":"rm","args":["x"]}`, ids.Project)); err == nil {
		return "the call was answered without a human"
	}
	tell("given-up", "yes")
	// This one waits when the host is killed.
	a, err := mcpCall(plain, url, "", "run_command", fmt.Sprintf(`{"project":%q,"executable":"rm","args":["y"]}`, ids.Project))
	if err == nil && a.Success {
		return "the call was answered over a kill: " + a.text
	}
	for range 1200 {
		if _, err := os.Stat("go"); err == nil {
			return "done"
		}
		time.Sleep(100 * time.Millisecond)
	}
	return "never told to go on"
}

func (r *rig) questions() (list []asked) {
	r.t.Helper()
	var all struct {
		Questions []asked `json:"questions"`
	}
	r.call(http.MethodGet, "/api/v1/hitl", nil, &all)
	return all.Questions
}

// TestCallsOverMCPWhoseCallerIsGone: what nobody waits for is asked of nobody,
// and what nobody knows the end of is an operator's to say.
func TestCallsOverMCPWhoseCallerIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{policy: goneRules})
	const id = "gone"
	r.dispatch(id, r.armed("$P mcp-gone answer"))
	told := func(name string) (text string) {
		r.until("the workload tells of "+name, func() bool {
			b, err := os.ReadFile(filepath.Join(r.work, name))
			text = string(b)
			return err == nil
		})
		return text
	}
	if text := told("blocked"); !strings.Contains(text, `"blocking":true`) {
		t.Errorf("finish after a call that was cut off: %s", text)
	}
	s := r.task(id)
	if len(s.Unresolved) != 1 {
		t.Fatalf("status %+v", s)
	}
	var call struct {
		ID string `json:"invocation_id"`
	}
	if err := json.Unmarshal(s.Unresolved[0], &call); err != nil {
		t.Fatal(err)
	}
	if code, a := r.send("/tasks/"+id+"/resolve", map[string]any{"invocation_id": call.ID, "outcome": "failed", "explanation": "it was a sleep"}); code >= 300 {
		t.Fatalf("resolve: %d %v", code, a)
	}
	if text := told("free"); !strings.Contains(text, `"blocking":false`) {
		t.Errorf("finish after the operator's word: %s", text)
	}
	told("given-up")
	r.until("nobody is asked about a call that was given up", func() bool {
		for _, q := range r.questions() {
			if strings.Contains(q.Prompt, "run_command") && strings.Contains(q.Context, `"x"`) {
				return false
			}
		}
		return true
	})
	r.until("the second call waits", func() bool { return len(r.task(id).Pending) == 1 && len(r.questions()) == 1 })
	r.end(syscall.SIGKILL)
	r.start()
	r.until("nobody is asked about a call that went with the host", func() bool {
		return len(r.task(id).Pending) == 0 && len(r.questions()) == 0
	})
	write(t, filepath.Join(r.work, "go"), "", 0o644)
	r.reaches(id, "done")
	if text, err := os.ReadFile(filepath.Join(r.work, "answer")); err != nil || string(text) != "done" {
		t.Errorf("the workload: %s %v", text, err)
	}
	r.verify(id)
}

// TestAQuestionOfAStoppedTaskIsWithdrawn: a harness's question ends with its
// task's stop, and with the host that its call hung on.
func TestAQuestionOfAStoppedTaskIsWithdrawn(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	ask := func(id string) chan error {
		base, token := r.harnessTask(id)
		over := make(chan error, 1)
		go func() {
			c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			_, err := mcpCall(c, base+"/mcp", token, "ask_operator", `{"question":"may I?"}`)
			over <- err
		}()
		r.until("the question is there", func() bool { return len(r.questions()) == 1 })
		return over
	}
	over := ask("stopped")
	if code, a := r.send("/tasks/stopped/control?wait=30", map[string]any{"action": "stop"}); code >= 300 {
		t.Fatalf("stop: %d %v", code, a)
	}
	r.until("the question is withdrawn by the stop", func() bool { return len(r.questions()) == 0 })
	<-over
	over = ask("killed")
	r.end(syscall.SIGKILL)
	<-over
	r.start()
	r.until("the question is withdrawn by the restart", func() bool { return len(r.questions()) == 0 })
	r.verify("stopped")
	r.verify("killed")
}
