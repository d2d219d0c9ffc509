package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAStopWhileTheCellIsMadeSaysThatNothingWasStarted: the driver is still at
// work on the cell, gives it up, and knows nothing of it afterwards.
func TestAStopWhileTheCellIsMadeSaysThatNothingWasStarted(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "alfake")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "airlock-isolation-slow"), "./sdk/fake/testdata/isolation")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the fake driver: %v\n%s", err, text)
	}
	for _, name := range []string{"airlock-isolation-host-supervisor", "airlock-runtime-command"} {
		text, err := os.ReadFile(filepath.Join(bin, "plugins", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(text), 0o755)
	}
	r := newRig(t, settings{plugins: dir, extra: `
isolation "slow" "s" {
  config {
    faults = ["Create=hang"]
  }
}
agent "slow" {
  isolation = isolation.slow.s
  runtime   = runtime.command.shell
}
`})
	if code := r.call(http.MethodPost, "/api/v1/missions", map[string]any{"mission_id": "m", "agent_id": "slow", "objective": "true"}, nil); code/100 != 2 {
		t.Fatalf("dispatch: %d", code)
	}
	r.until("the cell is being made", func() bool {
		var m struct {
			Waiting string `json:"waiting_for"`
		}
		r.call(http.MethodGet, "/api/v1/missions/m", nil, &m)
		return m.Waiting == "cell"
	})
	code, receipt := r.send("/tasks/m/control?wait=60s", map[string]any{"action": "stop"})
	isolation, _ := receipt["isolation"].(map[string]any)
	if code != http.StatusOK || receipt["final"] != true || isolation["result"] != "nothing_started" {
		t.Errorf("stop: %d %v", code, receipt)
	}
	if got := r.shown("m"); got != "aborted" {
		t.Errorf("it is %s", got)
	}
}
