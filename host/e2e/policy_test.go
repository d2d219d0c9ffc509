package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// policyPlugins is a plugin directory with the example's policy plugin.
var policyPlugins = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "alpol")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "airlock-policy-http"), ".")
	cmd.Dir = "../../examples/plugin-policy-http" // a module of its own
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the example: %w\n%s", err, text)
	}
	for _, name := range []string{"airlock-isolation-host-supervisor", "airlock-runtime-command", "airlock-runtime-claude-code"} {
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

// judgeServer answers by the tool's name.
func judgeServer(t *testing.T) *httptest.Server {
	t.Helper()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Tool string `json:"tool"`
		}
		text, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(text, &asked)
		w.Header().Set("Content-Type", "application/json")
		finding := func(outcome string) {
			fmt.Fprintf(w, `{"findings":[{"rule":"by-name","outcome":%q,"reason":"the judge says %s"}]}`, outcome, outcome)
		}
		switch {
		case strings.HasPrefix(asked.Tool, "Bad"):
			finding("BLOCK")
		case strings.HasPrefix(asked.Tool, "Warned"):
			finding("ALLOW")
		case strings.HasPrefix(asked.Tool, "Broken"):
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasPrefix(asked.Tool, "Slow"):
			select {
			case <-r.Context().Done():
			case <-end:
			}
		default:
			fmt.Fprint(w, `{"findings":[]}`)
		}
	}))
	t.Cleanup(func() { close(end); s.Close() })
	return s
}

// judgedRig asks a judge at url about each call.
func judgedRig(t *testing.T, url, onFailure string) *rig {
	t.Helper()
	dir, err := policyPlugins()
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, settings{plugins: dir, policy: fmt.Sprintf(`
    rule "never" {
      tool   = "Denied"
      effect = "deny"
      reason = "never"
    }
    rule "careful" {
      tool   = "Warned"
      effect = "warn"
    }
    plugin "http" {
      timeout    = "3s"
      on_failure = %q
      config {
        url = %q
      }
    }
`, onFailure, url)})
}

// judged is what the tests read of an answer to a proposal.
type judged struct {
	Decision struct {
		Status string `json:"status"`
		Reason string `json:"reason"`
	} `json:"decision"`
	DecisionID string `json:"decision_id"`
}

func (r *rig) proposeAs(token, task, tool string) (a judged) {
	r.t.Helper()
	body := map[string]any{"tool_name": tool, "tool_args": map[string]any{"n": 1}}
	if code := r.callAs(token, http.MethodPost, "/tasks/"+task+"/proposals", body, &a); code != http.StatusOK {
		r.t.Fatalf("propose %s: %d", tool, code)
	}
	return a
}

// proposes makes a harness task and asks about one call of each tool; it gives
// the outcomes by tool. What may run is dispatched and completed, what may not
// is refused.
func (r *rig) proposes(tools ...string) (got map[string]string, token string) {
	r.t.Helper()
	_, token = r.harnessTask("h")
	got = map[string]string{}
	for _, tool := range tools {
		a := r.proposeAs(token, "h", tool)
		got[tool] = a.Decision.Status
		answer := map[string]any{}
		code := r.callAs(token, http.MethodPost, "/tasks/h/dispatches", map[string]any{"decision_id": a.DecisionID, "tool_name": tool, "tool_args": map[string]any{"n": 1}}, &answer)
		if may := a.Decision.Status == "ALLOW" || a.Decision.Status == "WARN"; may != (code == http.StatusCreated) {
			r.t.Errorf("%s is %s (%s), and its dispatch answers %d %v", tool, a.Decision.Status, a.Decision.Reason, code, answer)
		} else if may {
			done := fmt.Sprintf("/tasks/h/dispatches/%v/completion", answer["invocation_id"])
			if code := r.callAs(token, http.MethodPost, done, map[string]any{"outcome": "succeeded"}, nil); code != http.StatusNoContent {
				r.t.Errorf("completion of %s: %d", tool, code)
			}
		}
	}
	r.verify("h")
	return got, token
}

func (r *rig) expect(got, want map[string]string) {
	r.t.Helper()
	for tool, status := range want {
		if got[tool] != status {
			r.t.Errorf("%s is %q, want %q", tool, got[tool], status)
		}
	}
}

// TestAPolicyPluginTightensAndNeverLoosens: BLOCK counts; ALLOW of what the
// host's rules deny or warn about changes nothing; an error and a judge that
// hangs are no opinion, and fail_closed blocks.
func TestAPolicyPluginTightensAndNeverLoosens(t *testing.T) {
	t.Parallel()
	r := judgedRig(t, judgeServer(t).URL, "fail_closed")
	got, _ := r.proposes("Good", "Bad", "Denied", "Warned", "Broken", "Slow", "Good2")
	r.expect(got, map[string]string{"Good": "ALLOW", "Bad": "BLOCK", "Denied": "BLOCK", "Warned": "WARN", "Broken": "BLOCK", "Slow": "BLOCK", "Good2": "ALLOW"})
}

// TestAPolicyPluginsFailureIsRuledByTheConfiguration: the judge is not there.
// What the plugin's on_failure lets pass is still held to the host's rules.
func TestAPolicyPluginsFailureIsRuledByTheConfiguration(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	r := judgedRig(t, gone.URL, "fail_open")
	got, _ := r.proposes("Good", "Denied")
	r.expect(got, map[string]string{"Good": "ALLOW", "Denied": "BLOCK"})
}

// TestADeadPolicyPluginIsNoOpinion: its process hangs; a call is blocked
// meanwhile, and passes once the host has launched the plugin anew.
func TestADeadPolicyPluginIsNoOpinion(t *testing.T) {
	t.Parallel()
	r := judgedRig(t, judgeServer(t).URL, "fail_closed")
	got, token := r.proposes("Good")
	r.expect(got, map[string]string{"Good": "ALLOW"})
	pids := r.pluginPids("airlock-policy-http")
	if len(pids) != 1 {
		t.Fatalf("processes of the plugin: %v", pids)
	}
	signal(t, pids[0], syscall.SIGSTOP)
	r.until("it stands still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pids[0]))
		return err != nil || strings.Contains(string(stat), ") T ")
	})
	a := r.proposeAs(token, "h", "Good") // unless the host has replaced it by then
	if blocked := a.Decision.Status == "BLOCK" && strings.Contains(a.Decision.Reason, "on_failure"); !blocked && slices.Equal(r.pluginPids("airlock-policy-http"), pids) {
		t.Errorf("with its plugin stopped, a call is %+v", a)
	}
	r.until("the plugin is launched anew", func() bool { return r.proposeAs(token, "h", "Good").Decision.Status == "ALLOW" })
	r.verify("h")
}

func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}
