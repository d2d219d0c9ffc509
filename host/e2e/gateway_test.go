package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// apiKey is what must never be seen outside of its file and the upstream.
const apiKey = "sk-canary-7f3a9e1c5b2d8046-never-in-a-cell"

// withModel are settings with a model API at a stand-in upstream.
func withModel(t *testing.T, upstream, agent string) settings {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	write(t, key, apiKey+"\n", 0o600)
	return settings{
		agent: "gateways = [gateway.model-1]\n" + agent,
		extra: fmt.Sprintf(`
gateway "model-1" {
  upstream    = "http://%s"
  allow_paths = ["/v1/messages*"]
  price "m" {
    input  = 3
    output = 15
  }
  header "x-api-key" {
    value = secret("file:%s")
  }
}`, upstream, key),
	}
}

func answered(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"type":"message","model":"m","content":[{"type":"text","text":"hello"}],"usage":{"input_tokens":1000,"output_tokens":100}}`)
}

type missionView struct {
	State       string  `json:"state"`
	StateReason string  `json:"state_reason"`
	Tokens      int64   `json:"tokens"`
	CostUSD     float64 `json:"cost_usd"`
}

func (r *rig) view(id string) missionView {
	r.t.Helper()
	var v missionView
	if code := r.call("GET", "/api/v1/missions/"+escape(id), nil, &v); code != http.StatusOK {
		r.t.Fatalf("mission %q: %d", id, code)
	}
	return v
}

func TestNetworkModeGatewayReachesWhatIsListedAndNothingElse(t *testing.T) {
	t.Parallel()
	site := listenHTTP(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.URL.Path) })
	other := listenHTTP(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "never") })
	r := newRig(t, settings{agent: fmt.Sprintf("network {\n    mode  = \"gateway\"\n    allow = [%q]\n  }", site)})
	r.dispatch("m1", r.armed(fmt.Sprintf(`
		$P get listed http://%[1]s/a; $P get other http://%[2]s/; $P get metadata http://169.254.169.254/latest; $P get self http://localhost:8122/
		$P direct direct %[1]s; $P direct forwarded "$(env | sed -n 's/^AIRLOCK_FORWARD_127_0_0_1_[0-9]*=//p')"
		$P call absent "$AIRLOCK_GATEWAY_MODEL_1_URL" {}`, site, other)))
	r.reaches("m1", "done")
	for name, want := range map[string][]string{
		"listed":    {"200 hello /a"},
		"forwarded": {"200 hello /"},
		"other":     {"403 airlock: " + other + " is not allowed", `in the attribute allow`, `"agent-01"`},
		"metadata":  {"403 airlock: 169.254.169.254:80"},
		"self":      {"403 airlock: localhost:8122"},
		"direct":    {"error", "refused"},
		"absent":    {"error"},
	} {
		got := r.result(name)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q, want %q in it", name, got, w)
			}
		}
	}
}

func TestModelCallsAreMadeWithTheHostsKeyAndCounted(t *testing.T) {
	t.Parallel()
	var good atomic.Int64
	upstream := listenHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") == apiKey && r.URL.Path == "/v1/messages" {
			good.Add(1)
		}
		answered(w)
	})
	site := listenHTTP(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "never") })
	r := newRig(t, withModel(t, upstream, ""))
	r.dispatch("m1", r.armed(fmt.Sprintf(`
		$P call model "$AIRLOCK_GATEWAY_MODEL_1_URL" '{"model":"m","max_tokens":100}'
		$P hunt hunted %s; $P direct direct %s; $P get proxied http://%[2]s/`, reversed(apiKey), site)))
	r.reaches("m1", "done")
	if got := r.result("model"); !strings.HasPrefix(got, "200 ") || good.Load() != 1 {
		t.Errorf("%q, %d calls", got, good.Load())
	}
	if got := r.result("hunted"); !strings.Contains(got, "found []") || strings.Contains(got, "looked 1 ") {
		t.Errorf("hunt: %s", got)
	}
	if got := r.result("direct"); !strings.HasPrefix(got, "error") {
		t.Errorf("mode none reached %q", got)
	}
	if got := r.result("proxied"); got != "no proxy" {
		t.Errorf("mode none has a proxy: %q", got)
	}
	if v := r.view("m1"); v.Tokens != 1100 || v.CostUSD != 0.0045 {
		t.Errorf("mission %+v", v)
	}
	var bundle json.RawMessage
	r.call("GET", "/tasks/m1/events?after=0", nil, &bundle)
	if !strings.Contains(string(bundle), "1100") {
		t.Error("the journal does not say what was used")
	}
	// What the host has written anywhere: journal, logs, cell rows, session logs.
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Base(path) == "in-cell" { // the test's own program has it
			return nil
		}
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), apiKey) {
			t.Errorf("the key is in %s", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.log.String(), apiKey) || strings.Contains(string(bundle), apiKey) {
		t.Error("the key is in the host's log or in the journal")
	}
}

func TestStatusSaysWhichModelHadNoPriceOfItsOwn(t *testing.T) {
	t.Parallel()
	upstream := listenHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"message","model":"new-model","content":[],"usage":{"input_tokens":1000,"output_tokens":100}}`)
	})
	s := withModel(t, upstream, "")
	s.extra = strings.Replace(s.extra, `price "m"`, `price "*"`, 1)
	r := newRig(t, s)
	r.dispatch("m1", r.armed(`$P call model "$AIRLOCK_GATEWAY_MODEL_1_URL" '{"model":"new-model","max_tokens":100}'`))
	r.reaches("m1", "done")
	if v := r.view("m1"); v.CostUSD != 0.0045 {
		t.Errorf("mission %+v", v)
	}
	var ready struct{ Prices []string }
	r.call("GET", "/readyz", nil, &ready)
	if got := strings.Join(ready.Prices, "\n"); got != `gateway "model-1": model "new-model" has no price of its own; the price "*" is used` {
		t.Errorf("status says %q", got)
	}
}

func TestAnotherCellsGatewayIsOutOfReach(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	upstream := listenHTTP(t, func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); answered(w) })
	s := withModel(t, upstream, "")
	dir := t.TempDir()
	s.extra += fmt.Sprintf(`
agent "poor" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  workspace {
    source = %q
    mode   = "read-write"
  }
}`, dir)
	r := newRig(t, s)
	r.dispatch("rich", r.armed(`env | grep AIRLOCK_GATEWAY > doors.new && mv doors.new doors; sleep 1000`))
	doors := map[string]string{}
	for _, line := range strings.Fields(r.result("doors")) {
		name, value, _ := strings.Cut(line, "=")
		doors[name] = value
	}
	base, socket := doors["AIRLOCK_GATEWAY_MODEL_1_URL"], doors["AIRLOCK_GATEWAY_MODEL_1_SOCKET"]
	if base == "" || socket == "" {
		t.Fatalf("doors %v", doors)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	tool, err := os.ReadFile(filepath.Join(r.work, "in-cell"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "in-cell"), string(tool), 0o755)
	body := map[string]any{"mission_id": "thief", "agent_id": "poor", "completion": "it ends",
		"objective": fmt.Sprintf(`./in-cell in-cell call stolen %s {}; ls -la %s > seen 2>&1; env > env; true`, base, socket)}
	if code := r.call("POST", "/api/v1/missions", body, nil); code != http.StatusAccepted {
		t.Fatal(code)
	}
	r.until("the thief is done", func() bool { return r.view("thief").State == "done" })
	stolen, err := os.ReadFile(filepath.Join(dir, "stolen"))
	if err != nil || !strings.HasPrefix(string(stolen), "error") || calls.Load() != 0 {
		t.Errorf("the other cell got %q, %v", stolen, err)
	}
	if env, err := os.ReadFile(filepath.Join(dir, "env")); err != nil || strings.Contains(string(env), "AIRLOCK_GATEWAY") {
		t.Errorf("%v %s", err, env)
	}
	r.call("POST", "/api/v1/missions/rich/abort", map[string]any{}, nil)
	r.reaches("rich", "aborted")
}

func TestAStopCutsTheStreamsOfTheMission(t *testing.T) {
	t.Parallel()
	started, cut := make(chan struct{}, 1), make(chan struct{}, 1)
	upstream := listenHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: ping\ndata: {}\n\n")
		w.(http.Flusher).Flush()
		started <- struct{}{}
		<-r.Context().Done()
		cut <- struct{}{}
	})
	r := newRig(t, withModel(t, upstream, ""))
	r.dispatch("m1", r.armed(`$P call model "$AIRLOCK_GATEWAY_MODEL_1_URL" '{"model":"m","max_tokens":100}'; sleep 1000`))
	<-started
	if code := r.call("POST", "/api/v1/missions/m1/abort", map[string]any{}, nil); code >= 300 || code == 0 {
		t.Fatal(code)
	}
	<-cut
	r.reaches("m1", "aborted")
}

func TestModelCallsGoOnAfterTheHostWasKilled(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	upstream := listenHTTP(t, func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); answered(w) })
	r := newRig(t, withModel(t, upstream, ""))
	r.dispatch("m1", r.armed(`
		$P call before "$AIRLOCK_GATEWAY_MODEL_1_URL" '{"model":"m","max_tokens":100}'
		until [ -e go ]; do sleep 0.05; done
		touch waiting; $P call after "$AIRLOCK_GATEWAY_MODEL_1_URL" '{"model":"m","max_tokens":100}'`))
	r.result("before")
	r.end(syscall.SIGKILL)
	write(t, filepath.Join(r.work, "go"), "", 0o644)
	r.result("waiting") // there is no host, and the call is held
	r.start()
	r.reaches("m1", "done")
	if got := r.result("after"); !strings.HasPrefix(got, "200 ") || calls.Load() != 2 {
		t.Errorf("%q, %d calls", got, calls.Load())
	}
	if v := r.view("m1"); v.Tokens != 2200 {
		t.Errorf("mission %+v", v)
	}
}

func TestTheBudgetOfAMissionHoldsAtTheGateway(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	upstream := listenHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(string(body))
		answered(w)
	})
	r := newRig(t, withModel(t, upstream, "governance {\n    budget {\n      max_tokens = 1500\n    }\n  }"))
	r.dispatch("m1", r.armed(`for i in 1 2; do $P call model$i "$AIRLOCK_GATEWAY_MODEL_1_URL" '{"model":"m","max_tokens":8000}'; done
		$P call model3 "$AIRLOCK_GATEWAY_MODEL_1_URL" '{"model":"m","max_tokens":8000}'`))
	r.reaches("m1", "done")
	if got := r.result("model2"); !strings.HasPrefix(got, "200 ") {
		t.Error(got)
	}
	if text, _ := asked.Load().(string); !strings.Contains(text, `"max_tokens":392`) { // 1500 - 1100 used - 8 of input
		t.Errorf("asked for %s", text)
	}
	if got := r.result("model3"); !strings.HasPrefix(got, "403 ") || !strings.Contains(got, "budget is spent") {
		t.Error(got)
	}
	if v := r.view("m1"); v.Tokens != 2200 {
		t.Errorf("mission %+v", v)
	}
}
