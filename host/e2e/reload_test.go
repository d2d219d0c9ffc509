package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// report is what the tests read of a reload's answer.
type report struct {
	Changes []struct {
		Path, Change, Effect, At, Note string
	} `json:"changes"`
	RulesTold int      `json:"rules_told"`
	Draining  []string `json:"draining"`
	Warnings  []string `json:"warnings"`
	Error     string   `json:"error"`
}

func (p report) effect(path string) string {
	for _, c := range p.Changes {
		if c.Path == path {
			return c.Change + " " + c.Effect
		}
	}
	return ""
}

// edit replaces texts in the configuration; the host does not know yet.
func (r *rig) edit(pairs ...string) {
	r.t.Helper()
	text, err := os.ReadFile(r.conf)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(string(text), pairs[i]) {
			r.t.Fatalf("the configuration has no %q", pairs[i])
		}
	}
	write(r.t, r.conf, strings.NewReplacer(pairs...).Replace(string(text)), 0o600)
}

// reload asks for a reload and gives its report.
func (r *rig) reload(want int) (p report) {
	r.t.Helper()
	if code := r.call(http.MethodPost, "/api/v1/reload", nil, &p); code != want {
		r.t.Fatalf("reload: %d, want %d: %+v", code, want, p)
	}
	return p
}

// kinds are the kinds of a task's events, oldest first.
func (r *rig) kinds(id string) (kinds []string) {
	r.t.Helper()
	var page struct {
		Events []struct{ Kind string }
		Next   uint64
	}
	if code := r.call(http.MethodGet, "/tasks/"+escape(id)+"/events", nil, &page); code != http.StatusOK {
		r.t.Fatalf("events of %s: %d", id, code)
	}
	for _, e := range page.Events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func howMany(list []string, what string) int {
	n := 0
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

// Rules change while an approval waits and another mission just runs: both are
// told, the approval is judged anew, and what the new rules allow runs.
func TestRulesChangeWhileAnApprovalWaits(t *testing.T) {
	t.Parallel()
	r := governedRig(t, `
  approve {
    rule "pushes" {
      tool = "Push"
    }
  }
`)
	asks := map[string]any{"capabilities": []string{"runtime:custom:protocol"}}
	r.give(map[string]any{"mission_id": "m", "executor_filter": asks, "completion": "x", "objective": asking + `
ask 1 Push '{"b":"main"}'
ask 2 Danger '{}'
ask 3 Write '{}'
`})
	r.dispatch("bystander", "while [ ! -e go ]; do sleep 0.02; done")
	first := r.pending("m", "")
	r.reaches("bystander", "running")
	before := r.task("m").Epoch

	// Another reason only: it still waits, under a new epoch and a new id.
	r.edit(`tool = "Push"`, "tool = \"Push\"\n      reason = \"ask me\"")
	p := r.reload(http.StatusOK)
	if p.RulesTold != 2 || p.effect("governance.approve.rule.pushes.reason") != "added applied" {
		t.Errorf("report %+v", p)
	}
	second := r.pending("m", first)
	if e := r.task("m").Epoch; e != before+1 {
		t.Errorf("epoch %d, want %d", e, before+1)
	}
	if code, _ := r.send("/tasks/m/approval", map[string]any{"decision_id": first, "action": "approve_once"}); code != http.StatusConflict {
		t.Errorf("an approval from before: %d, want a conflict", code)
	}
	if again := r.reload(http.StatusOK); len(again.Changes) != 0 || again.RulesTold != 0 {
		t.Errorf("a second reload: %+v", again)
	}

	// The rules turn round: Push is allowed, Write is not any more.
	r.edit(`tool = "Push"`, `tool = "Pull"`, `tool   = "Danger"`, `tool   = "Write"`)
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
		t.Fatalf("mission %+v", m)
	}
	if got := r.lines("effects"); !slices.Equal(got, []string{`1:{"b":"main"}`, `2:{}`}) {
		t.Errorf("effects %q", got)
	}
	if code, _ := r.send("/tasks/m/approval", map[string]any{"decision_id": second, "action": "approve_once"}); code != http.StatusConflict {
		t.Errorf("an approval from before the SIGHUP: %d, want a conflict", code)
	}
	for _, id := range []string{"m", "bystander"} {
		if n := howMany(r.kinds(id), "rules_changed"); n != 2 {
			t.Errorf("%s has %d rules_changed events, want 2", id, n)
		}
	}
	write(t, r.work+"/go", "", 0o644)
	r.reaches("bystander", "done")
	r.verify("m")
	r.verify("bystander")
}

// A file that cannot be used leaves everything as it is, and says where.
func TestABrokenFileChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", "while [ ! -e go ]; do sleep 0.02; done")
	r.reaches("m", "running")
	whole, err := os.ReadFile(r.conf)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ old, new, want string }{
		"syntax":           {`governance {`, `governance {{`, "airlock.hcl:"},
		"unknown name":     {`slots      = 64`, `slotz      = 64`, `Did you mean "slots"?`},
		"an agent's block": {`slots      = 64`, `slots      = 0`, "airlock.hcl:"},
		"plugin's words":   {`config {}`, "config {\n no_such = 1\n}", "airlock.hcl:"},
		"a loose token":    {`operator.token`, `loose.token`, "airlock.hcl:"},
	} {
		write(t, r.dir+"/loose.token", strings.Repeat("k", 40), 0o644)
		r.edit(test.old, test.new, `default = "allow"`, `default = "deny"`)
		var p report
		if code := r.call(http.MethodPost, "/api/v1/reload", nil, &p); code != http.StatusUnprocessableEntity || !strings.Contains(p.Error, test.want) {
			t.Errorf("%s: %d %q", name, code, p.Error)
		}
		if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		write(t, r.conf, string(whole), 0o600)
	}
	var ready struct {
		Ready   bool
		Trouble []string
	}
	r.until("the reloads by signal were refused too", func() bool { return strings.Count(r.log.String(), "the old one stays") >= 6 })
	if code := r.call(http.MethodGet, "/readyz", nil, &ready); code != http.StatusOK || !ready.Ready || len(ready.Trouble) != 1 {
		t.Errorf("readyz: %d %+v", code, ready)
	}
	if n := howMany(r.kinds("m"), "rules_changed"); n != 0 {
		t.Errorf("the rules of a refused configuration were told %d times", n)
	}
	write(t, r.work+"/go", "", 0o644)
	r.reaches("m", "done")
	if p := r.reload(http.StatusOK); len(p.Changes) != 0 {
		t.Errorf("the old file: %+v", p)
	}
	ready.Trouble = nil
	if r.call(http.MethodGet, "/readyz", nil, &ready); len(ready.Trouble) != 0 {
		t.Errorf("trouble after a good reload: %q", ready.Trouble)
	}
}

// Agents, instances and operators come and go under live missions: those keep
// what they started with, and what they use stays until they have ended.
func TestAgentsAndPluginsChangeUnderLiveMissions(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{slots: 1, agent: "warm = 1", orc: orchestrator.Options{AllowAgentID: true}, extra: `
isolation "host-supervisor" "second" {
  config {}
}
agent "other" {
  isolation = isolation.host-supervisor.second
  runtime   = runtime.command.shell
  slots     = 1
  workspace {
    source = "{{work}}"
    mode   = "read-write"
  }
}
`})
	const waits = "while [ ! -e go-$AIRLOCK_MISSION ]; do sleep 0.02; done; ulimit -n > /dev/null"
	r.dispatchTo("agent-01", "a1", waits)
	r.dispatchTo("agent-01", "a2", waits) // has no slot
	r.dispatchTo("other", "o1", waits)
	r.dispatchTo("other", "o2", waits)
	r.reaches("a1", "running")
	r.reaches("o1", "running")

	text, err := os.ReadFile(r.conf)
	if err != nil {
		t.Fatal(err)
	}
	conf := string(text)
	from := strings.Index(conf, `isolation "host-supervisor" "second"`)
	to := strings.Index(conf, `agent "other" {`)
	end := to + strings.Index(conf[to:], "\n}\n") + 3
	conf = conf[:from] + conf[end:]
	conf = strings.NewReplacer(`slots      = 1`, `slots      = 2`, `warm = 1`, "warm = 0\n  resources {\n    memory = \"512MiB\"\n  }",
		`name     = "e2e"`, `name     = "renamed"`, `operator "e2e"`, "operator \"more\" {\n  token_file = \""+r.dir+"/more.token\"\n}\noperator \"e2e\"").Replace(conf)
	write(t, r.dir+"/more.token", strings.Repeat("m0re-", 10), 0o600)
	write(t, r.conf, conf, 0o600)
	if diff, code := r.cli("validate", "--diff", "--no-plugins"); code != 0 || !strings.Contains(diff, "a restart is needed:\n  ~ name: \"e2e\" -> \"renamed\"") {
		t.Errorf("validate --diff: %d %s", code, diff)
	}
	p := r.reload(http.StatusOK)
	for path, want := range map[string]string{
		"agent.agent-01.slots": "changed applied", "agent.agent-01.resources.memory": "added next_mission",
		"agent.other": "removed next_mission", "isolation.host-supervisor.second": "removed applied",
		"name": "changed restart_needed", "operator.more": "added applied",
	} {
		if got := p.effect(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if !slices.Equal(p.Draining, []string{"isolation.host-supervisor.second"}) {
		t.Errorf("draining %q", p.Draining)
	}
	r.reaches("a2", "running") // the second slot
	if code, body := r.tryDispatch(map[string]any{"mission_id": "o3", "objective": "true", "completion": "x",
		"executor_filter": map[string]any{"agent_id": "other"}}); code == http.StatusAccepted {
		t.Errorf("a mission for an agent that is gone: %d %s", code, body)
	}
	if code := r.callAs(strings.Repeat("m0re-", 10), http.MethodGet, "/api/v1/agents", nil, nil); code != http.StatusOK {
		t.Errorf("the new operator: %d", code)
	}
	for _, id := range []string{"o1", "o2"} { // o2 was taken in before, and runs in the removed place
		write(t, r.work+"/go-"+id, "", 0o644)
		if m := r.reaches(id, "done", "failed"); m.State != "done" {
			t.Errorf("%s: %+v", id, m)
		}
	}
	r.until("the removed instance is gone", func() bool {
		var list struct{ Plugins []struct{ Ref string } }
		r.call(http.MethodGet, "/api/v1/plugins", nil, &list)
		return !slices.ContainsFunc(list.Plugins, func(p struct{ Ref string }) bool { return p.Ref == "isolation.host-supervisor.second" })
	})
	for _, id := range []string{"a1", "a2"} {
		write(t, r.work+"/go-"+id, "", 0o644)
		r.reaches(id, "done")
	}
	if left := r.reload(http.StatusOK); len(left.Changes) != 1 || left.Changes[0].Path != "name" || left.Changes[0].Effect != "restart_needed" {
		t.Errorf("what is left: %+v", left)
	}
	var agents struct{ Agents []struct{ Name string } }
	r.call(http.MethodGet, "/api/v1/agents", nil, &agents)
	if len(agents.Agents) != 1 {
		t.Errorf("agents %+v", agents)
	}
}

// A key is rotated while a mission lives: its next call has the new one.
func TestAReloadRotatesTheGatewaysKey(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys []string
	upstream := listenHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("X-Api-Key"))
		mu.Unlock()
		answered(w)
	})
	s := withModel(t, upstream, "")
	_, file, _ := strings.Cut(s.extra, "file:")
	file, _, _ = strings.Cut(file, `"`)
	r := newRig(t, s)
	r.dispatch("m", r.armed(`
		$P call one "$AIRLOCK_GATEWAY_MODEL_1_URL" '{"model":"m","messages":[]}'
		while [ ! -e go ]; do sleep 0.02; done
		$P call two "$AIRLOCK_GATEWAY_MODEL_1_URL" '{"model":"m","messages":[]}'`))
	r.until("the first call is made", func() bool { mu.Lock(); defer mu.Unlock(); return len(keys) == 1 })
	write(t, file, "another-key\n", 0o600)
	p := r.reload(http.StatusOK)
	if p.effect("gateway.model-1.header.x-api-key.value") != "changed applied" {
		t.Errorf("report %+v", p)
	}
	if raw, err := json.Marshal(p); err != nil || strings.Contains(string(raw), "another-key") || strings.Contains(r.log.String(), "another-key") {
		t.Errorf("the key is told: %s %v", raw, err)
	}
	write(t, r.work+"/go", "", 0o644)
	r.reaches("m", "done")
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(keys, []string{apiKey, "another-key"}) {
		t.Errorf("keys %q", keys)
	}
}
