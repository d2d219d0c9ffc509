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
	"strings"
	"sync"
	"testing"
)

// TestASecondPlaceGetsSignedHeads: governance.head.url fails first; the host is
// ready all the same and says what is the matter, missions run, and the heads
// come once it is back.
func TestASecondPlaceGetsSignedHeads(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	down, seen := true, map[string]uint64{}
	place := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text, _ := io.ReadAll(req.Body)
		mu.Lock()
		defer mu.Unlock()
		if down {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		var body struct {
			Records []struct {
				Sig   []byte
				Heads []struct {
					TaskID   string `json:"task_id"`
					Sequence uint64 `json:"sequence"`
				}
			}
		}
		if err := json.Unmarshal(text, &body); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for _, rec := range body.Records {
			for _, h := range rec.Heads {
				if len(rec.Sig) == 0 {
					t.Error("a head without a signature")
				}
				seen[h.TaskID] = max(seen[h.TaskID], h.Sequence)
			}
		}
	}))
	defer place.Close()
	r := newRig(t, settings{headURL: place.URL})
	r.give(map[string]any{"mission_id": "m", "executor_filter": map[string]any{}, "completion": "x", "objective": "echo hello"})
	r.reaches("m", "done")
	var ready struct {
		Ready bool
		Heads string
	}
	r.until("the trouble is told", func() bool {
		code := r.call(http.MethodGet, "/readyz", nil, &ready)
		return code == http.StatusOK && strings.Contains(ready.Heads, "governance.head.url")
	})
	mu.Lock()
	down = false
	mu.Unlock()
	var status struct {
		Head struct{ Sequence uint64 }
	}
	r.until("the last head is there", func() bool {
		r.call(http.MethodGet, "/tasks/m/status", nil, &status)
		mu.Lock()
		defer mu.Unlock()
		return status.Head.Sequence > 0 && seen["m"] == status.Head.Sequence
	})
	r.until("the trouble is over", func() bool {
		ready.Heads = ""
		return r.call(http.MethodGet, "/readyz", nil, &ready) == http.StatusOK && ready.Heads == ""
	})
}

// TestDecisionsExport: one line for each decision of a task, each with the six
// fields, and nothing where the format is unknown.
func TestDecisionsExport(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{policy: `
    rule "never" {
      tool   = "Denied"
      effect = "deny"
      reason = "never"
    }
`})
	r.proposes("Good", "Denied", "Good")
	file := filepath.Join(r.dir, "decisions.jsonl")
	run := func(args ...string) (string, error) {
		cmd := exec.Command(program, append([]string{"journal", "export", "h", "-o", file}, args...)...)
		cmd.Env = append(os.Environ(), "AIRLOCK_ADDR="+filepath.Join(r.dir, "run", "airlock.sock"))
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	if text, err := run("--format", "xml"); err == nil {
		t.Errorf("an unknown format: %s", text)
	}
	if text, err := run("--format", "decisions", "--agent-id", "deployment-7"); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var l struct {
			Decision     map[string]any `json:"decision"`
			EvidenceLink struct {
				AgentID string `json:"agent_id"`
			} `json:"evidence_link"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || len(l.Decision) != 6 || l.EvidenceLink.AgentID != "deployment-7" {
			t.Errorf("%s: %v", line, err)
		}
		got = append(got, fmt.Sprint(l.Decision["status"]))
	}
	if want := "[ALLOW BLOCK ALLOW]"; fmt.Sprint(got) != want {
		t.Errorf("decisions %v, want %s", got, want)
	}
}
