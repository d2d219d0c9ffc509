package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// plan is what the tests read of a plan.
type plan struct {
	Would, Agent, Isolation, Runtime string
	Cell                             struct {
		MemoryBytes uint64 `json:"memory_bytes"`
		Network     string
		Workspace   string
		Source      string
	}
	Budget struct {
		MaxTokens int64 `json:"max_tokens"`
		Wall      string
	}
	Governance struct {
		RulesDigest string `json:"rules_digest"`
		Approvals   []struct{ Name string }
	}
	Intent  *struct{ Goal string }
	Others  []struct{ Agent, Why string }
	Refusal *struct {
		Status int
		Code   string
	}
}

// opened is the opening of a task's journal, as far as a plan says it.
type opened struct {
	Agent, Isolation, Runtime string
	Rules                     string `json:"rules_digest"`
	Intent                    *struct{ Goal string }
	Spec                      struct {
		Cell struct {
			MemoryBytes uint64 `json:"memory_bytes"`
			Network     string
			Workspace   struct{ Mode, Source string }
		}
		Wall      int64
		MaxTokens int64 `json:"max_tokens"`
	}
}

// A plan says what the dispatch after it does, the refusals too.
func TestThePlanIsWhatHappens(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{slots: 1, agent: "queue = 1", governance: "approve {\n rule \"pushes\" {\n tool = \"Push\"\n }\n }",
		orc: orchestrator.Options{AllowAgentID: true}, extra: `
agent "other" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  slots     = 1
  queue     = 0
  resources {
    memory = "512MiB"
  }
  intent {
    goal = "be small"
  }
  governance {
    budget {
      wall       = "1h"
      max_tokens = 1000
    }
  }
}
`})
	const waits = "while [ ! -e go ]; do sleep 0.02; done"
	for i, step := range []struct {
		id, agent string
		would     string // with the plan
		status    int    // of the dispatch
	}{
		{"a", "", "start", 202},          // the first agent
		{"b", "", "start", 202},          // its slot is taken: the other one
		{"c", "", "queue", 202},          // nobody has a slot: the queue of the first
		{"d", "", "refuse", 503},         // every queue is full
		{"e", "other", "refuse", 503},    // its own is
		{"f", "nobody", "refuse", 404},   // there is none
		{"a", "", "duplicate", 202},      // known
		{"a", "other", "duplicate", 202}, // known with another payload
	} {
		body := map[string]any{"mission_id": step.id, "objective": waits, "completion": "x"}
		if step.agent != "" {
			body["agent_id"] = step.agent
		}
		var p plan
		if code := r.call(http.MethodPost, "/api/v1/missions/plan", body, &p); code != http.StatusOK || p.Would != step.would {
			t.Errorf("step %d: plan %d %+v, want %s", i, code, p, step.would)
		}
		var answer struct{ Code string }
		code := r.call(http.MethodPost, "/api/v1/missions", body, &answer)
		if code != step.status {
			t.Errorf("step %d: dispatch %d, want %d", i, code, step.status)
		}
		if step.would == "refuse" {
			if p.Refusal == nil || p.Refusal.Status != code || p.Refusal.Code != answer.Code {
				t.Errorf("step %d: the plan's refusal is %+v, the dispatch's %d %s", i, p.Refusal, code, answer.Code)
			}
			continue
		}
		if p.Refusal != nil {
			t.Errorf("step %d: refusal %+v", i, p.Refusal)
		}
		if step.would == "duplicate" {
			continue
		}
		o := r.opening(step.id)
		if p.Agent != o.Agent || p.Isolation != o.Isolation || p.Runtime != o.Runtime || p.Governance.RulesDigest != o.Rules ||
			p.Cell.MemoryBytes != o.Spec.Cell.MemoryBytes || p.Cell.Network != o.Spec.Cell.Network || p.Cell.Workspace != o.Spec.Cell.Workspace.Mode ||
			p.Cell.Source != o.Spec.Cell.Workspace.Source || p.Budget.MaxTokens != o.Spec.MaxTokens || (p.Budget.Wall == "") != (o.Spec.Wall == 0) ||
			(p.Intent == nil) != (o.Intent == nil) || p.Intent != nil && p.Intent.Goal != o.Intent.Goal {
			t.Errorf("step %d: plan %+v, opening %+v", i, p, o)
		}
		if len(p.Others) != 1 || p.Others[0].Why == "" || p.Others[0].Agent == p.Agent || len(p.Governance.Approvals) != 1 {
			t.Errorf("step %d: others %+v, approvals %+v", i, p.Others, p.Governance.Approvals)
		}
		if step.would == "start" {
			r.is(step.id, "running")
		}
	}
	if out, code := r.cli("mission", "plan", "true", "--agent", "nobody"); code != 2 || !strings.Contains(out, "would be refused") {
		t.Errorf("mission plan: %d %s", code, out)
	}
	if out, code := r.cli("mission", "dispatch", "other", "--id", "a"); code != 3 {
		t.Errorf("a known id with another payload: %d %s", code, out)
	}
	write(t, r.work+"/go", "", 0o644)
	r.call(http.MethodPost, "/api/v1/missions/b/abort", map[string]any{}, nil) // its workspace is its own
	r.is("a", "done")
	r.is("c", "done")
}

// is waits until the host says so; the orchestrator knows nothing of a mission
// that was dispatched here.
func (r *rig) is(id, state string) {
	r.t.Helper()
	r.until(id+" is "+state, func() bool { return r.view(id).State == state })
}

func (r *rig) opening(id string) (o opened) {
	r.t.Helper()
	var page struct {
		Events []struct {
			Kind    string
			Payload opened
		}
	}
	if code := r.call(http.MethodGet, "/tasks/"+escape(id)+"/events", nil, &page); code != http.StatusOK || len(page.Events) == 0 || page.Events[0].Kind != "task_opened" {
		r.t.Fatalf("events of %s: %d %+v", id, code, page)
	}
	return page.Events[0].Payload
}

// Every number that an operator looks at moves when what it is of happens.
func TestMetricsMove(t *testing.T) {
	t.Parallel()
	r := governedRig(t, "approve {\n rule \"pushes\" {\n tool = \"Push\"\n }\n }")
	r.give(map[string]any{"mission_id": "m", "executor_filter": map[string]any{"capabilities": []string{"runtime:custom:protocol"}}, "completion": "x", "objective": asking + `
ask 1 Write '{"n":1}'
ask 2 Danger '{}'
ask 3 Push '{}'
`})
	id := r.pending("m", "")
	text := r.metrics()
	for _, want := range []string{`airlock_questions_waiting 1`, `airlock_missions{state="hitl-required"} 1`, `airlock_agent_running{agent="governed"} 1`,
		`airlock_plugin_up{plugin="isolation.host-supervisor.host",state="healthy"} 1`, `airlock_ready 1`, `airlock_orchestrator_connected 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("while it waits: no %s", want)
		}
	}
	if out, code := r.cli("approve", id, "approve_once"); code != 0 {
		t.Fatalf("approve: %d %s", code, out)
	}
	r.reaches("m", "done")
	if out, code := r.cli("approve", id, "approve_once"); code != 3 {
		t.Errorf("a decision that was answered: exit code %d %s", code, out)
	}
	if out, code := r.cli("approve", "no-such-decision", "reject"); code != 2 {
		t.Errorf("a decision that never was: exit code %d %s", code, out)
	}
	r.dispatch("stopped", "sleep 600")
	r.reaches("stopped", "running")
	r.call(http.MethodPost, "/api/v1/missions/stopped/abort", map[string]any{"reason": "enough"}, nil)
	r.reaches("stopped", "aborted")
	r.reload(http.StatusOK)
	text = r.metrics()
	for _, want := range []string{
		`airlock_missions_accepted_total\{agent="governed",origin="orchestrator"\} 1`, `airlock_missions_ended_total\{agent="governed",reason="",state="done"\} 1`,
		`airlock_missions_ended_total\{agent="agent-01",reason="operator",state="aborted"\} 1`, `airlock_decisions_total\{outcome="BLOCK"\} 1`,
		`airlock_calls_total\{outcome="succeeded"\} [1-9]`, `airlock_approvals_total\{action="approve_once"\} 1`, `airlock_stops_total\{by="operator"\} 1`,
		`airlock_mission_start_seconds_count\{agent="governed"\} 1`, `airlock_mission_duration_seconds_count\{agent="governed",state="done"\} 1`,
		`airlock_journal_events_total\{kind="ended"\} 2`, `airlock_reloads_total\{result="applied"\} 1`, `airlock_api_requests_total\{[^}]*metrics[^}]*\} [1-9]`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("at the end: no %s", want)
		}
	}
	if strings.Contains(text, "enough") {
		t.Error("what an operator wrote is a label")
	}
	events, _ := r.cli("journal", "events", "m")
	for _, want := range []string{"status=BLOCK", "status=ALLOW", "outcome=succeeded"} {
		if !strings.Contains(events, want) {
			t.Errorf("journal events does not say %s:\n%s", want, events)
		}
	}
}

func (r *rig) metrics() string {
	r.t.Helper()
	resp, err := r.api.Get("http://localhost/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("metrics: %d %v", resp.StatusCode, err)
	}
	return string(text)
}

// The mission's trace arrives, and what runs in the cell knows its id.
func TestTracesReachAReceiver(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	spans := map[string]*tracev1.Span{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var data tracev1.TracesData
		if err := proto.Unmarshal(body, &data); err != nil {
			t.Errorf("what came is no trace: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range data.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					spans[s.GetName()] = s
				}
			}
		}
	}))
	t.Cleanup(receiver.Close)
	r := newRig(t, settings{extra: "telemetry {\n  otlp_endpoint = \"" + receiver.URL + "\"\n}\n"})
	r.give(map[string]any{"mission_id": "m", "completion": "x", "objective": `echo "$TRACEPARENT" > traceparent`,
		"metadata": map[string]any{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}})
	r.reaches("m", "done")
	r.until("the trace is there", func() bool { mu.Lock(); defer mu.Unlock(); return spans["mission"] != nil })
	mu.Lock()
	defer mu.Unlock()
	root := spans["mission"]
	if hex.EncodeToString(root.GetTraceId()) != "4bf92f3577b34da6a3ce929d0e0e4736" || hex.EncodeToString(root.GetParentSpanId()) != "00f067aa0ba902b7" {
		t.Errorf("the trace is not the dispatcher's: %v", root)
	}
	if got := r.lines("traceparent"); len(got) != 1 || got[0] != "00-4bf92f3577b34da6a3ce929d0e0e4736-"+hex.EncodeToString(root.GetSpanId())+"-01" {
		t.Errorf("TRACEPARENT in the cell: %q", got)
	}
	for _, name := range []string{"queue", "start", "session", "call airlock.launch"} {
		s := spans[name]
		if s == nil || string(s.GetTraceId()) != string(root.GetTraceId()) || string(s.GetParentSpanId()) != string(root.GetSpanId()) || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("span %s: %v", name, s)
		}
	}
}

// A bundle can be sent to a stranger.
func TestTheBundleHasNoSecrets(t *testing.T) {
	t.Parallel()
	s := withModel(t, listenHTTP(t, func(w http.ResponseWriter, _ *http.Request) { answered(w) }), "")
	r := newRig(t, s)
	r.give(map[string]any{"mission_id": "m", "completion": "canary-completion", "objective": "echo canary-objective; read x", "metadata": map[string]any{"k": "canary-metadata"}})
	r.reaches("m", "running")
	file := filepath.Join(r.dir, "bundle.tar.gz")
	if out, code := r.cli("debug", "bundle", "-o", file); code != 0 {
		t.Fatalf("debug bundle: %d %s", code, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v", info, err)
	}
	parts := untar(t, file)
	for _, name := range []string{"README.txt", "readyz.json", "agents.json", "plugins.json", "missions.json", "questions.json", "orchestrator.json", "config.json", "metrics.txt", "machine.txt"} {
		if len(parts["airlock-debug/"+name]) == 0 {
			t.Errorf("there is no %s", name)
		}
	}
	for name, text := range parts {
		for _, secret := range []string{"canary", apiKey, strings.Repeat("k3y-", 10)} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q in it", name, secret)
			}
		}
	}
	var list struct{ Missions []map[string]any }
	if err := json.Unmarshal([]byte(parts["airlock-debug/missions.json"]), &list); err != nil || len(list.Missions) != 1 || list.Missions[0]["mission_id"] != "m" || list.Missions[0]["state"] != "running" {
		t.Errorf("missions %v %v", list, err)
	}
	if out, code := r.cli("bench", "-n", "3", "--concurrency", "1,3"); code != 0 || strings.Count(out, `"figure":"live_`) != 10 {
		t.Errorf("bench: %d %s", code, out)
	}
	if out, code := r.cli("top", "--once"); code != 0 || !strings.Contains(out, "running 1") {
		t.Errorf("top: %d %s", code, out)
	}
}

func untar(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for tr := tar.NewReader(zip); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		parts[h.Name] = string(text)
	}
}
