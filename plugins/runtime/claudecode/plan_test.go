package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func planOf(t *testing.T, change func(map[string]any), req *pluginv1.PlanRequest) (*pluginv1.LaunchPlan, error) {
	t.Helper()
	cfg := defaults(t)
	if change != nil {
		change(cfg)
	}
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, found := compile(data)
	if len(found) > 0 {
		t.Fatal(found)
	}
	p := &claude{}
	p.current.Store(c)
	r, err := p.Plan(t.Context(), req)
	return r.GetPlan(), err
}

func TestThePlanHasBothGatesAndNothingOfTheWorkspace(t *testing.T) {
	t.Parallel()
	req := &pluginv1.PlanRequest{
		Mission:        &pluginv1.MissionSpec{MissionId: "m/1", Objective: "the objective", Completion: "tests pass", IntentJson: []byte(`{"goal":"g"}`)},
		Cell:           &pluginv1.CellFacts{Uid: 71234, Link: pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED},
		WorkspaceFiles: []*pluginv1.WorkspaceFile{{Path: "CLAUDE.md", Content: []byte("use tabs")}},
	}
	plan, err := planOf(t, func(c map[string]any) {
		c["model"], c["max_turns"], c["max_budget_usd"], c["append_system_prompt"], c["workspace_instructions"] = "sonnet", 7, 1.5, "be brief", true
		c["gateway"], c["mcp"], c["mcp_servers"] = "my-api", true, map[string]any{"db": map[string]any{"command": "/bin/db", "args": []string{"-x"}}}
	}, req)
	if err != nil {
		t.Fatal(err)
	}
	after := func(flag string) string {
		if i := slices.Index(plan.GetArgv(), flag); i >= 0 && i+1 < len(plan.GetArgv()) {
			return plan.GetArgv()[i+1]
		}
		return "(none)"
	}
	session, resumed, err := sessionOf(plan.GetArgv())
	if err != nil || resumed {
		t.Errorf("session %v %v", resumed, err)
	}
	for flag, want := range map[string]string{
		"--input-format": "stream-json", "--output-format": "stream-json", "--permission-mode": "default", "--permission-prompt-tool": "stdio",
		"--setting-sources": "", "--settings": `{"permissions":{"ask":["*"],"deny":["WebFetch","WebSearch"]}}`, "--session-id": session,
		"--tools": "Bash,Read,Edit,Write,Glob,Grep,AskUserQuestion", "--model": "sonnet", "--max-turns": "7", "--max-budget-usd": "1.5",
		"--mcp-config": `{"mcpServers":{"airlock":{"type":"http","url":"${AIRLOCK_MCP_URL}"},"db":{"args":["-x"],"command":"/bin/db","type":"stdio"}}}`,
	} {
		if got := after(flag); got != want {
			t.Errorf("%s %q, want %q", flag, got, want)
		}
	}
	for _, flag := range []string{"--strict-mcp-config", "--await-initialize", "--verbose", "-p"} {
		if !slices.Contains(plan.GetArgv(), flag) {
			t.Errorf("%s is missing", flag)
		}
	}
	for _, flag := range []string{"--dangerously-skip-permissions", "--allowedTools", "--bare", "--include-partial-messages"} {
		if slices.Contains(plan.GetArgv(), flag) {
			t.Errorf("%s is there", flag)
		}
	}
	for _, want := range []string{"tests pass", `{"goal":"g"}`, "be brief", "use tabs"} {
		if !strings.Contains(after("--append-system-prompt"), want) {
			t.Errorf("%q is not in the system prompt", want)
		}
	}
	if strings.Contains(strings.Join(plan.GetArgv(), " "), "the objective") {
		t.Error("the objective is an argument")
	}
	for k, want := range map[string]string{"ANTHROPIC_UNIX_SOCKET": "${AIRLOCK_GATEWAY_MY_API_SOCKET}", "CLAUDE_CONFIG_DIR": "${AIRLOCK_STATE}/claude",
		"CLAUDE_CODE_TMPDIR": "${AIRLOCK_TMP}", "ANTHROPIC_API_KEY": placeholder, "CLAUDE_CODE_MAX_RETRIES": "10"} {
		if plan.GetEnv()[k] != want {
			t.Errorf("%s=%q, want %q", k, plan.GetEnv()[k], want)
		}
	}
	if plan.GetBoundary() != pluginv1.Boundary_BOUNDARY_PROTOCOL || plan.GetOnFull() != pluginv1.OnFull_ON_FULL_BLOCK || !slices.Equal(plan.GetGateways(), []string{"my-api"}) {
		t.Errorf("plan %v", plan)
	}
	if len(plan.GetFiles()) != 1 || !plan.GetFiles()[0].GetRootOwned() || !strings.Contains(string(plan.GetFiles()[0].GetContent()), `"ask":["*"]`) {
		t.Errorf("files %v", plan.GetFiles())
	}
	for name, cell := range map[string]*pluginv1.CellFacts{"root": {Link: pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED}, "no protection": {Uid: 5}} {
		req.Cell = cell
		if plan, err := planOf(t, nil, req); err != nil || len(plan.GetFiles()) != 0 {
			t.Errorf("%s: files %v, %v", name, plan.GetFiles(), err)
		}
	}
}

func TestSessionsAreTheSameAsLongAsTheyAreThere(t *testing.T) {
	t.Parallel()
	point := func(s *state) *pluginv1.ResumePoint {
		if s == nil {
			return &pluginv1.ResumePoint{}
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return &pluginv1.ResumePoint{State: b}
	}
	sessionArgs := (&compiled{}).sessionArgs
	first, carried, err := sessionArgs("m", nil)
	if err != nil || first[0] != "--session-id" || carried != "" {
		t.Fatal(first, carried, err)
	}
	if other, _, _ := sessionArgs("n", nil); other[1] == first[1] {
		t.Error("two missions have one session")
	}
	again, carried, err := sessionArgs("m", point(nil))
	if err != nil || again[0] != "--resume" || again[1] != first[1] || carried == "" {
		t.Error(again, carried, err)
	}
	lost := &state{V: 1, Session: first[1], After: afterLost}
	anew, _, err := sessionArgs("m", point(lost))
	if err != nil || anew[0] != "--session-id" || anew[1] == first[1] {
		t.Error(anew, err)
	}
	same, _, err := sessionArgs("m", point(lost))
	if err != nil || same[1] != anew[1] {
		t.Error("a plan is not the same again", same, anew, err)
	}
	on, carried, err := sessionArgs("m", point(&state{V: 1, Session: anew[1], After: afterDeferred, Tokens: 7, Deferred: []string{"d"}}))
	if err != nil || on[0] != "--resume" || on[1] != anew[1] {
		t.Error(on, err)
	}
	if s, err := readState([]byte(carried)); err != nil || s.After != afterDeferred || s.Tokens != 7 || len(s.Deferred) != 1 {
		t.Errorf("carried %s %v", carried, err)
	}
	if _, _, err := sessionArgs("m", point(&state{V: 1, Session: "--dangerously-skip-permissions"})); err == nil {
		t.Error("a stored state can name anything as the session")
	}
}

func TestWhatCannotBePlannedIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		m    *pluginv1.MissionSpec
		want string
	}{
		"nothing to do": {&pluginv1.MissionSpec{Objective: " "}, "objective is empty"},
		"NUL":           {&pluginv1.MissionSpec{Objective: "x", Completion: "a\x00b"}, "NUL"},
		"too long":      {&pluginv1.MissionSpec{Objective: "x", Completion: strings.Repeat("x", 130<<10)}, "a command line takes"},
	} {
		if _, err := planOf(t, nil, &pluginv1.PlanRequest{Mission: c.m}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A session that goes on is told of what the host has for it in the prompt that
// it is given; one that has no prompt, or not the tools, is not, and its plan
// does not say that it was.
func TestASessionThatGoesOnIsToldOfItsWake(t *testing.T) {
	t.Parallel()
	const notice = "You were resumed: the wake wc_wake_abcdefghijklmnop waits for you."
	for name, c := range map[string]struct {
		mcp  bool
		st   string
		told bool
	}{
		"after a crash":          {true, `{"v":1,"session":"` + testSession + `"}`, true},
		"its session is lost":    {true, `{"v":1,"session":"` + testSession + `","after":"lost"}`, true},
		"a deferred call":        {true, `{"v":1,"session":"` + testSession + `","after":"deferred"}`, false},
		"without the endpoint":   {false, `{"v":1,"session":"` + testSession + `"}`, false},
		"the host keeps nothing": {true, "", true},
	} {
		plan, err := planOf(t, func(conf map[string]any) { conf["mcp"] = c.mcp }, &pluginv1.PlanRequest{Mission: &pluginv1.MissionSpec{MissionId: "m", Objective: "o"},
			Resume: &pluginv1.ResumePoint{Notice: notice, State: []byte(c.st)}, Cell: &pluginv1.CellFacts{}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(plan.GetEnv()[resumeEnv], "wc_wake_abcdefghijklmnop"); got != c.told {
			t.Errorf("%s: told %v", name, got)
		}
	}
}

// What a checkpoint keeps of a call of the host's own tools has no proof in it.
func TestACallIsDescribedWithoutItsEnvelope(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]string{"mcp__airlock__run_command": "make", "mcp__db__query": `{"_wc":{"x":"PROOF"},"consume_token":"PROOF","executable":"make"}`} {
		if got := describe(tool, []byte(`{"_wc":{"x":"PROOF"},"consume_token":"PROOF","executable":"make"}`)); got != want {
			t.Errorf("%s: %q", tool, got)
		}
	}
}
