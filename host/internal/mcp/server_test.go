package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/mcp/tools"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := crashChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// domain is a service of which only what these tests call is there; the rest is
// tested against the real one.
type domain struct {
	workflow.Service
	checkpoints atomic.Int64
}

func (d *domain) CheckpointGoal(_ context.Context, by workflow.Caller, in workflow.CheckpointGoal) (workflow.GoalResult, error) {
	if in.ExpectedRevision != 3 {
		return workflow.GoalResult{}, &workflow.Error{Kind: "goal_revision_changed", Message: "the goal has moved", Recovery: workflow.Reobserve, Revision: 3}
	}
	d.checkpoints.Add(1)
	return workflow.GoalResult{Goal: workflow.GoalView{Summary: workflow.GoalSummary{GoalID: in.GoalID, Revision: 4}}, StateChanged: true}, nil
}

func (d *domain) ListGoals(_ context.Context, by workflow.Caller, _ workflow.ListGoals) (workflow.GoalPage, error) {
	return workflow.GoalPage{Goals: []workflow.GoalSummary{{GoalID: string(by.Owner)}}}, nil
}

func (d *domain) Open(workflow.Owner, workflow.NewCall) (*workflow.Call, error) {
	return &workflow.Call{ID: "wc_inv_abcdefghijklmnop"}, nil
}
func (d *domain) Refuse(context.Context, *workflow.Call, *workflow.PhaseOutcome, *workflow.PhaseOutcome) error {
	return nil
}
func (d *domain) Intend(context.Context, *workflow.Call, string) error { return nil }
func (d *domain) Settle(context.Context, *workflow.Call, workflow.MainOutcome, string) error {
	return nil
}
func (d *domain) Close(*workflow.Call) {}

// endpoint is the server with all tools, and its address.
func endpoint(t *testing.T) (*Server, *domain, string) {
	t.Helper()
	d := &domain{}
	list := tools.All(d, &tools.Effects{Now: time.Now})
	list = append(list, kernel.NewTool(kernel.Def{Name: "hidden_app", Hidden: true}, func(context.Context, kernel.By, struct{}) kernel.Result {
		return kernel.Done(nil, kernel.Unchanged)
	}))
	k, err := kernel.New(kernel.Options{Service: d, Tools: list, Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Kernel: k, Version: "test", Log: hclog.NewNullLogger(), Token: func(_ context.Context, token string) (workflow.Owner, []string, bool) {
		switch token {
		case "all":
			return "mission", tools.Scopes(), true
		case "reader":
			return "mission", []string{tools.ScopeRead}, true
		case "elsewhere":
			return "mission", nil, true
		}
		return "", nil, false
	}, Wrong: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer too many" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	srv := httptest.NewServer(s.HTTP())
	t.Cleanup(srv.Close)
	return s, d, srv.URL
}

// answer is what a request came back with.
type answer struct {
	status int
	text   string
	result json.RawMessage
	code   int
	errMsg string
	header http.Header
}

// post sends a body as the given revision.
func post(t *testing.T, url, token, revision, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if revision != "" {
		req.Header.Set("MCP-Protocol-Version", revision)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close(); http.DefaultClient.CloseIdleConnections() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, text: string(text), header: resp.Header}
	var rpc struct {
		Result json.RawMessage `json:"result"`
		Error  struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(text, &rpc)
	a.result, a.code, a.errMsg = rpc.Result, rpc.Error.Code, rpc.Error.Message
	return a
}

// call is a tools/call of the newer revision.
func call(t *testing.T, url, token, name, args string) answer {
	t.Helper()
	return post(t, url, token, Revision, callBody(Revision, name, args), "Mcp-Method", "tools/call", "Mcp-Name", name)
}

func callBody(revision, name, args string) string {
	meta := ""
	if revision == Revision {
		meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + Revision + `","io.modelcontextprotocol/clientCapabilities":{}},`
	}
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + meta + `"name":"` + name + `","arguments":` + args + `}}`
}

func listBody() string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + Revision + `","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

// maxList is how long the list of all tools may be, in bytes.
const maxList = 64 << 10

func TestTheListOfToolsIsShortAndTheCallersOwn(t *testing.T) {
	t.Parallel()
	_, _, url := endpoint(t)
	all := post(t, url, "all", Revision, listBody(), "Mcp-Method", "tools/list")
	if all.status != 200 {
		t.Fatalf("%d %s", all.status, all.text)
	}
	t.Logf("tools/list: %d bytes", len(all.text))
	if len(all.text) >= maxList {
		t.Errorf("tools/list has %d bytes, at most %d are wanted", len(all.text), maxList)
	}
	if again := post(t, url, "all", Revision, listBody(), "Mcp-Method", "tools/list"); again.text != all.text {
		t.Error("the list is not the same twice")
	}
	names := listed(t, all)
	if len(names) != 23 || names["hidden_app"] != nil {
		t.Errorf("%d tools", len(names))
	}
	for name, schema := range names {
		wc := at(schema, "properties", "_wc", "properties")
		for _, m := range []string{"control", "record", "ack", "resolve", "context"} {
			if at(wc, m) == nil {
				t.Errorf("%s: %s is not in _wc", name, m)
			}
		}
		closing := at(wc, "control", "properties", "after_success", "properties", "goal_completion") != nil
		if closing != (name == "finish_coding_task" || name == "call_runtime_tool") {
			t.Errorf("%s: closing kinds offered: %v", name, closing)
		}
	}
	some := listed(t, post(t, url, "reader", Revision, listBody(), "Mcp-Method", "tools/list"))
	if some["get_goal"] == nil || some["checkpoint_goal"] != nil || some["run_command"] != nil {
		t.Errorf("a reader sees %d tools", len(some))
	}
	old := post(t, url, "all", LegacyRevision, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	for _, word := range []string{"_wc", "sidecar", "after_success", "envelope"} {
		if strings.Contains(old.text, word) {
			t.Errorf("a legacy caller reads of %s", word)
		}
	}
	legacy := listed(t, old)
	for name, schema := range legacy {
		if at(schema, "properties", "_wc") != nil {
			t.Errorf("%s: a legacy caller sees _wc", name)
		}
	}
	if len(legacy) != 23 {
		t.Errorf("a legacy caller sees %d tools", len(legacy))
	}
}

func listed(t *testing.T, a answer) map[string]any {
	t.Helper()
	var list struct {
		Tools []struct {
			Name        string `json:"name"`
			InputSchema any    `json:"inputSchema"`
		} `json:"tools"`
		CacheScope string `json:"cacheScope"`
	}
	if err := json.Unmarshal(a.result, &list); err != nil {
		t.Fatalf("%v: %s", err, a.text)
	}
	if list.CacheScope == "public" {
		t.Error("the list may be shared, although it depends on who asks")
	}
	out := map[string]any{}
	for _, tool := range list.Tools {
		out[tool.Name] = tool.InputSchema
	}
	return out
}

func at(v any, path ...string) any {
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func TestDiscoverAdvertisesTheContract(t *testing.T) {
	t.Parallel()
	_, _, url := endpoint(t)
	a := post(t, url, "all", Revision, strings.Replace(listBody(), "tools/list", "server/discover", 1), "Mcp-Method", "server/discover")
	var d struct {
		SupportedVersions []string `json:"supportedVersions"`
		Capabilities      any      `json:"capabilities"`
	}
	if err := json.Unmarshal(a.result, &d); err != nil || a.status != 200 {
		t.Fatalf("%v: %s", err, a.text)
	}
	if len(d.SupportedVersions) != 2 {
		t.Errorf("versions %v", d.SupportedVersions)
	}
	ext := at(d.Capabilities, "extensions", ContractID)
	if at(ext, "version") != ContractVersion || at(ext, "member") != envelope.Member {
		t.Errorf("extension %v", ext)
	}
	if at(d.Capabilities, "logging") != nil {
		t.Error("logging is advertised")
	}
}

func TestWhatTheTransportRefuses(t *testing.T) {
	t.Parallel()
	_, d, url := endpoint(t)
	good := callBody(Revision, "list_goals", `{}`)
	for _, c := range []struct {
		name, token, revision, body string
		status, code                int
	}{
		{"no token", "", Revision, good, 401, -32600},
		{"a wrong token", "other", Revision, good, 401, -32600},
		{"a wrong token again and again", "too many", Revision, good, 429, -32600},
		{"a token without a scope here", "elsewhere", Revision, good, 403, -32600},
		{"a member twice in params", "all", Revision, strings.Replace(good, `"name":`, `"name":"x","name":`, 1), 400, -32700},
		{"a member twice at the root", "all", Revision, strings.Replace(good, `"id":7`, `"id":7,"id":7`, 1), 400, -32700},
		{"a member twice in the arguments", "all", Revision, callBody(Revision, "list_goals", `{"limit":1,"limit":2}`), 400, -32700},
		{"an envelope twice", "all", Revision, callBody(Revision, "list_goals", `{"_wc":{},"_wc":{}}`), 400, -32700},
		{"a batch", "all", Revision, "[" + good + "]", 400, -32600},
		{"no object", "all", Revision, `"x"`, 400, -32600},
		{"text behind", "all", Revision, good + "x", 400, -32700},
		{"too long", "all", Revision, strings.Repeat(" ", MaxBody) + good, 413, -32600},
		{"an unknown tool", "all", Revision, callBody(Revision, "list_goals", `{}`), 400, -32020}, // Mcp-Name says another
		{"an unknown revision", "all", "2031-01-01", strings.ReplaceAll(good, Revision, "2031-01-01"), 400, -32022},
	} {
		name := "list_goals"
		if c.name == "an unknown tool" {
			name = "nothing"
		}
		a := post(t, url, c.token, c.revision, c.body, "Mcp-Method", "tools/call", "Mcp-Name", name)
		if a.status != c.status || a.code != c.code {
			t.Errorf("%s: %d %d %s", c.name, a.status, a.code, a.text)
		}
		if c.status == 403 && !strings.Contains(a.header.Get("WWW-Authenticate"), `error="insufficient_scope"`) || c.status == 429 && a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v", c.name, a.header)
		}
	}
	if d.checkpoints.Load() != 0 {
		t.Error("something ran")
	}
	resp, err := http.Get(url)
	if err != nil || resp.StatusCode != 401 {
		t.Errorf("GET: %v %v", resp, err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

const (
	progress = `"before":{"goal_progress":{"goal_id":"wc_goal_abcdefghijklmnop","expected_revision":3,"summary":"s","idempotency_key":"k"}}`
	todo     = `"after_success":{"todo_completion":{"session_id":"wc_sess_abcdefghijklmnop","message_id":"wc_msg_abcdefghijklmnop","answer":"a","completion_key":"c","expected_assignment_fence":"f"}}`
)

// R1, R2, R5 and the precedence of refusals: each is a JSON-RPC error before
// anything runs, and repeats nothing of what came.
func TestWrapperRefusals(t *testing.T) {
	t.Parallel()
	_, d, url := endpoint(t)
	wrap := func(control string) string { return `{"_wc":{"control":{` + control + `}}}` }
	for name, c := range map[string]struct{ tool, args, revision, want string }{
		"a legacy revision":                {"list_goals", wrap(progress), LegacyRevision, "not available on this protocol surface"},
		"a legacy revision, empty":         {"list_goals", `{"_wc":{}}`, LegacyRevision, "not available"},
		"a legacy revision, null":          {"list_goals", `{"_wc":null}`, LegacyRevision, "not available"},
		"a retired name":                   {"list_goals", `{"recording_session_id":"SENTINEL"}`, Revision, "use _wc"},
		"no object":                        {"list_goals", `{"_wc":["SENTINEL"]}`, Revision, "must be an object"},
		"an unknown member":                {"list_goals", `{"_wc":{"SENTINEL":1}}`, Revision, "a member that it does not have"},
		"an unknown phase":                 {"list_goals", wrap(`"SENTINEL":{}`), Revision, "control is not well formed"},
		"before fine and after not":        {"list_goals", wrap(progress + `,"after_success":{"todo_completion":{"SENTINEL":1}}`), Revision, "control is not well formed"},
		"a hidden tool":                    {"hidden_app", wrap(progress), Revision, "not possible with this tool"},
		"a hidden tool, empty":             {"hidden_app", `{"_wc":{"record":"wc_sess_abcdefghijklmnop"}}`, Revision, "not possible with this tool"},
		"in the arguments of a call":       {"call_runtime_tool", `{"tool":"list_goals","arguments":` + wrap(progress) + `}`, Revision, "stands beside tool"},
		"in the arguments and beside them": {"call_runtime_tool", `{"tool":"list_goals","arguments":` + wrap(progress) + `,"_wc":{"control":{` + progress + `}}}`, Revision, "stands beside tool"},
		"a gateway of itself":              {"call_runtime_tool", `{"tool":"call_runtime_tool","arguments":{}}`, Revision, "does not call itself"},
		"a gateway with more":              {"call_runtime_tool", `{"tool":"list_goals","arguments":{},"SENTINEL":1}`, Revision, "a member that it does not have"},
		"a gateway without arguments":      {"call_runtime_tool", `{"tool":"list_goals"}`, Revision, "it is required"},
		"arguments that are no object":     {"list_goals", `[1]`, Revision, "must be an object"},
		"an argument of another type":      {"list_goals", `{"limit":"SENTINEL"}`, Revision, "limit: it must be a whole number"},
		"an argument in another case":      {"list_goals", `{"LIMIT":1}`, Revision, "a member that it does not have"},
		"an argument of null":              {"list_goals", `{"limit":null}`, Revision, "limit: it must be"},
		"an envelope in another case":      {"list_goals", `{"_WC":{}}`, Revision, "a member that it does not have"},
	} {
		a := post(t, url, "all", c.revision, callBody(c.revision, c.tool, c.args), "Mcp-Method", "tools/call", "Mcp-Name", c.tool)
		if a.code != -32602 || !strings.Contains(a.errMsg, c.want) || strings.Contains(a.text, "SENTINEL") {
			t.Errorf("%s: %d %s", name, a.code, a.text)
		}
		if want := map[string]int{Revision: 400, LegacyRevision: 200}[c.revision]; a.status != want {
			t.Errorf("%s: status %d", name, a.status)
		}
	}
	if n := d.checkpoints.Load(); n != 0 {
		t.Errorf("%d checkpoints were made", n)
	}
}

// structured is the structured content of a result.
func structured(t *testing.T, a answer) (out struct {
	Success bool            `json:"success"`
	Error   *string         `json:"error"`
	Output  json.RawMessage `json:"output"`
}, isError bool) {
	t.Helper()
	var r struct {
		StructuredContent json.RawMessage `json:"structuredContent"`
		IsError           bool            `json:"isError"`
	}
	if err := json.Unmarshal(a.result, &r); err != nil || json.Unmarshal(r.StructuredContent, &out) != nil {
		t.Fatalf("%d %s", a.status, a.text)
	}
	return out, r.IsError
}

func TestACallWithASidecar(t *testing.T) {
	t.Parallel()
	_, d, url := endpoint(t)
	for name, c := range map[string]struct{ tool, args string }{
		"direct":              {"list_goals", `{"_wc":{"control":{` + progress + `}}}`},
		"through the gateway": {"call_runtime_tool", `{"tool":"list_goals","arguments":{},"_wc":{"control":{` + progress + `}}}`},
	} {
		before := d.checkpoints.Load()
		out, isError := structured(t, call(t, url, "all", c.tool, c.args))
		if !out.Success || isError || out.Error != nil || d.checkpoints.Load() != before+1 {
			t.Errorf("%s: %+v", name, out)
		}
		want := `"control":{"main":{"success":true,"execution_state":"succeeded","state_changed":false},"before":{"kind":"goal_progress","success":true,"execution_state":"succeeded","state_changed":true,"replayed":false,"revision":4}}`
		if !strings.Contains(string(out.Output), want) {
			t.Errorf("%s: %s", name, out.Output)
		}
	}
	stale, isError := structured(t, call(t, url, "all", "list_goals", strings.Replace(`{"_wc":{"control":{`+progress+`}}}`, `:3`, `:2`, 1)))
	if stale.Success || !isError || !strings.HasPrefix(*stale.Error, "control_before_failed") || !strings.Contains(string(stale.Output), `"revision":3`) {
		t.Errorf("%+v %s", stale, stale.Output)
	}
	unknown, _ := structured(t, call(t, url, "all", "call_runtime_tool", `{"tool":"nothing","arguments":{},"_wc":{"control":{`+progress+`}}}`))
	if unknown.Success || !strings.HasPrefix(*unknown.Error, "unknown_tool") || !strings.Contains(string(unknown.Output), `"before":{"kind":"goal_progress","success":false,"execution_state":"definitely_not_started"`) {
		t.Errorf("%+v %s", unknown, unknown.Output)
	}
	if d.checkpoints.Load() != 2 {
		t.Error("a sidecar of a refused call ran")
	}
}

// R7: without an envelope a call and its output are a plain call's.
func TestACallWithoutEnvelopeIsPlain(t *testing.T) {
	t.Parallel()
	_, _, url := endpoint(t)
	plain, _ := structured(t, call(t, url, "all", "list_goals", `{}`))
	empty, _ := structured(t, call(t, url, "all", "list_goals", `{"_wc":{}}`))
	legacy, _ := structured(t, post(t, url, "all", LegacyRevision, callBody(LegacyRevision, "list_goals", `{}`)))
	if !bytes.Equal(plain.Output, empty.Output) || !bytes.Equal(plain.Output, legacy.Output) || strings.Contains(string(plain.Output), "control") {
		t.Errorf("%s\n%s\n%s", plain.Output, empty.Output, legacy.Output)
	}
	none, _ := structured(t, call(t, url, "all", "list_goals", `{"_wc":{"control":{}}}`))
	var out map[string]json.RawMessage
	_ = json.Unmarshal(none.Output, &out)
	if string(out["control"]) != `{"main":{"success":true,"execution_state":"succeeded","state_changed":false}}` {
		t.Errorf("%s", out["control"])
	}
}

// theSDKsClient is the SDK's own client, of both revisions.
func theSDKsClient(t *testing.T) {
	_, d, url := endpoint(t)
	client := &http.Client{Transport: tokenOf{"all", http.DefaultTransport.(*http.Transport).Clone()}}
	defer client.CloseIdleConnections()
	for _, revision := range []string{Revision, LegacyRevision} {
		c := sdk.NewClient(&sdk.Implementation{Name: "peer", Version: "1"}, nil)
		cs, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: client, DisableStandaloneSSE: true}, connectOptions(revision))
		if err != nil {
			t.Fatalf("%s: %v", revision, err)
		}
		list, err := cs.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 23 {
			t.Fatalf("%s: %v, %v", revision, list, err)
		}
		before := d.checkpoints.Load()
		res, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_goals", Arguments: json.RawMessage(`{"_wc":{"control":{` + progress + `}}}`)})
		if revision == LegacyRevision {
			if err == nil || d.checkpoints.Load() != before {
				t.Errorf("%s: an envelope was taken: %+v", revision, res)
			}
			if res, err = cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_goals", Arguments: map[string]any{}}); err != nil || res.IsError {
				t.Errorf("%s: %+v, %v", revision, res, err)
			}
		} else if err != nil || res.IsError || d.checkpoints.Load() != before+1 {
			t.Errorf("%s: %+v, %v", revision, res, err)
		}
		if err := cs.Close(); err != nil {
			t.Error(err)
		}
	}
}

type tokenOf struct {
	token string
	next  http.RoundTripper
}

func (o tokenOf) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+o.token)
	return o.next.RoundTrip(r)
}

func (o tokenOf) CloseIdleConnections() { o.next.(*http.Transport).CloseIdleConnections() }

func connectOptions(revision string) *sdk.ClientSessionOptions {
	return &sdk.ClientSessionOptions{ProtocolVersion: revision}
}
