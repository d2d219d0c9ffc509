package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mcpAnswer is a tool's structured content.
type mcpAnswer struct {
	Success bool            `json:"success"`
	Error   *string         `json:"error"`
	Output  json.RawMessage `json:"output"`
	status  int
	text    string
}

// control is what came of a composite call.
func (a mcpAnswer) control() (c struct {
	Main, Before struct {
		State    string `json:"execution_state"`
		Success  bool
		Replayed bool
		Revision int64
	}
}) {
	var o struct{ Control json.RawMessage }
	_ = json.Unmarshal(a.Output, &o)
	_ = json.Unmarshal(o.Control, &c)
	return c
}

// mcpCall calls a tool as revision 2026-07-28.
func mcpCall(c *http.Client, url, token, tool, args string) (a mcpAnswer, err error) {
	const revision = "2026-07-28"
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + revision +
		`","io.modelcontextprotocol/clientCapabilities":{}},"name":"` + tool + `","arguments":` + args + `}}`
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": revision,
		"Mcp-Method": "tools/call", "Mcp-Name": tool} {
		req.Header.Set(k, v)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var rpc struct {
		Result struct {
			StructuredContent json.RawMessage `json:"structuredContent"`
		} `json:"result"`
	}
	_ = json.Unmarshal(text, &rpc)
	_ = json.Unmarshal(rpc.Result.StructuredContent, &a)
	a.status, a.text = resp.StatusCode, string(text)
	return a, err
}

// missionIDs are what get_mission_context tells.
type missionIDs struct {
	Project string `json:"project"`
	Goal    string `json:"goal_id"`
	Session string `json:"session_id"`
	Rev     int64  `json:"goal_revision"`
}

func (m missionIDs) progress(revision int64, key string) string {
	return fmt.Sprintf(`"_wc":{"control":{"before":{"goal_progress":{"goal_id":%q,"expected_revision":%d,"summary":"SENTINEL-summary","idempotency_key":%q}}}}`, m.Goal, revision, key)
}

// cellFlow is the workload of the test below: it finds the endpoint by its
// environment and has no token.
func cellFlow() string {
	url := os.Getenv("AIRLOCK_MCP_URL")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ctx, err := mcpCall(c, url, "", "get_mission_context", `{}`)
	if err != nil || !ctx.Success {
		return fmt.Sprintf("context: %v %s", err, ctx.text)
	}
	var ids missionIDs
	if err := json.Unmarshal(ctx.Output, &ids); err != nil {
		return err.Error()
	}
	run, err := mcpCall(c, url, "", "run_command", fmt.Sprintf(`{"project":%q,"executable":"sh","args":["-c","pwd; echo made > by-command; exit 0"],%s}`, ids.Project, ids.progress(ids.Rev, "k1")))
	if err != nil {
		return err.Error()
	}
	denied, err := mcpCall(c, url, "", "run_command", fmt.Sprintf(`{"project":%q,"executable":"rm","args":["-rf","/"]}`, ids.Project))
	if err != nil {
		return err.Error()
	}
	text, _ := json.Marshal([]mcpAnswer{run, denied})
	return string(text)
}

const mcpPolicy = `
    rule "no-rm" {
      tool   = "run_command"
      when   = args.executable == "rm"
      effect = "deny"
      reason = "nothing is removed"
    }
`

// An agent in a cell calls a tool with a control envelope through its cell
// link: no token, its own mission, governed and journalled.
func TestMCPFromACell(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{policy: mcpPolicy})
	const id = "from-a-cell"
	r.dispatch(id, r.armed("$P mcp answer"))
	r.reaches(id, "done")
	text, err := os.ReadFile(filepath.Join(r.work, "answer"))
	if err != nil {
		t.Fatal(err)
	}
	var got []mcpAnswer
	if err := json.Unmarshal(text, &got); err != nil || len(got) != 2 {
		t.Fatalf("%s", text)
	}
	if c := got[0].control(); !got[0].Success || c.Main.State != "succeeded" || !c.Before.Success || c.Before.Revision != 2 {
		t.Errorf("%s", text)
	}
	if _, err := os.Stat(filepath.Join(r.work, "by-command")); err != nil {
		t.Error("the command did not run in the workspace")
	}
	if got[1].Success || !strings.HasPrefix(*got[1].Error, "permission_denied") {
		t.Errorf("a call that a rule denies: %s", text)
	}
	var raw json.RawMessage
	r.call("GET", "/tasks/"+id+"/events", nil, &raw)
	events := string(raw)
	if strings.Count(events, `"run_command"`) < 3 || strings.Contains(events, "_wc") || strings.Contains(events, `idempotency_key`) {
		t.Errorf("the journal: %s", events)
	}
}

// An agent outside of a cell uses the endpoint of the REST listener; a kill -9
// of the host loses nothing that was answered.
func TestMCPFromAHarness(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	base, token := r.harnessTask("task/1")
	c := &http.Client{}
	defer c.CloseIdleConnections()
	do := func(tool, args string) mcpAnswer {
		t.Helper()
		a, err := mcpCall(c, base+"/mcp", token, tool, args)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var ids missionIDs
	if a := do("get_mission_context", `{}`); json.Unmarshal(a.Output, &ids) != nil || ids.Goal == "" {
		t.Fatalf("%d %s", a.status, a.text)
	}
	if a := do("list_goals", `{`+ids.progress(ids.Rev, "k1")+`}`); !a.Success || a.control().Before.Revision != ids.Rev+1 {
		t.Errorf("%s", a.text)
	}
	if a := do("run_command", fmt.Sprintf(`{"project":%q,"executable":"true"}`, ids.Project)); a.Success || !strings.HasPrefix(*a.Error, "no_cell") {
		t.Errorf("%s", a.text)
	}
	answered := make(chan mcpAnswer, 1)
	go func() {
		a, _ := mcpCall(c, base+"/mcp", token, "ask_operator", `{"question":"may I?"}`)
		answered <- a
	}()
	r.until("the question is there and answered", func() bool {
		var list struct {
			Questions []struct {
				ID     string `json:"hitl_id"`
				Prompt string `json:"prompt"`
			} `json:"questions"`
		}
		var raw json.RawMessage
		r.call("GET", "/api/v1/hitl", nil, &raw)
		if json.Unmarshal(raw, &list) != nil || len(list.Questions) == 0 {
			_ = json.Unmarshal(raw, &list.Questions)
		}
		for _, q := range list.Questions {
			if q.Prompt == "may I?" {
				return r.call("POST", "/api/v1/hitl/"+q.ID+"/respond", map[string]string{"text": "you may"}, nil) == 204
			}
		}
		return false
	})
	if a := <-answered; !a.Success || !strings.Contains(string(a.Output), "you may") {
		t.Errorf("%s", a.text)
	}
	if resp, err := c.Get(base + "/mcp"); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	if a, err := mcpCall(c, base+"/mcp", "0000", "list_goals", `{}`); err != nil || a.status != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d %v", a.status, err)
	}
	last := 0
	for range 30 {
		a, err := mcpCall(c, base+"/mcp", strings.Repeat("0", 64), "list_goals", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		last = a.status
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("after 30 wrong tokens: %d", last)
	}
	// A token that is replaced is void, and the new one is good, here too.
	var replaced struct{ Token string }
	if status := r.call("POST", "/tasks/task%2F1/token", map[string]any{"scopes": []string{"propose"}}, &replaced); status != http.StatusCreated {
		t.Fatalf("a new token: %d", status)
	}
	if a := do("list_goals", `{}`); a.status != http.StatusUnauthorized && a.status != http.StatusTooManyRequests {
		t.Errorf("the old token: %d %s", a.status, a.text)
	}
	if token = replaced.Token; do("list_goals", `{}`).status != http.StatusForbidden {
		t.Error("a token without a scope of the endpoint is let in")
	}
	r.call("POST", "/tasks/task%2F1/token", map[string]any{"scopes": []string{"propose", "mcp"}}, &replaced)
	if token = replaced.Token; !do("list_goals", `{}`).Success {
		t.Error("the new token is not good")
	}
	r.end(syscall.SIGKILL)
	r.start()
	base, _ = r.harnessTask("task/2") // where the host listens now
	if a := do("get_goal", `{"goal_id":"`+ids.Goal+`"}`); !a.Success || !strings.Contains(string(a.Output), fmt.Sprintf(`"revision":%d`, ids.Rev+1)) {
		t.Errorf("after a kill: %d %s", a.status, a.text)
	}
	if strings.Contains(r.log.String(), "SENTINEL") {
		t.Error("a summary is in the log")
	}
}
