package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

// harness is the agent's side of a task.
type harness struct {
	t         *testing.T
	url       string
	token     string
	id        string
	transport *http.Transport
}

func newHarness(t *testing.T, g *apitest.Governed, id string) *harness {
	t.Helper()
	h := &harness{t: t, url: g.REST + "/tasks", token: apitest.AliceToken, id: id, transport: &http.Transport{}}
	t.Cleanup(h.transport.CloseIdleConnections)
	got := h.post("", `{"task_id":"`+id+`","objective":"refunds"}`)
	h.url, h.token = got["url"].(string), got["token"].(string)
	return h
}

func (h *harness) post(path, body string) map[string]any {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+h.token)
	resp, err := (&http.Client{Transport: h.transport}).Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		h.t.Fatalf("%s: %d %s %v", path, resp.StatusCode, text, err)
	}
	got := map[string]any{}
	if len(text) > 0 && json.Unmarshal(text, &got) != nil {
		h.t.Fatalf("%s: %s", path, text)
	}
	return got
}

// propose gives the decision's id.
func (h *harness) propose(tool, args string) string {
	h.t.Helper()
	return h.post("/proposals", `{"tool_name":"`+tool+`","tool_args":`+args+`}`)["decision_id"].(string)
}

func (h *harness) call(decision, tool, args, outcome string) {
	h.t.Helper()
	id := h.post("/dispatches", `{"decision_id":"`+decision+`","tool_name":"`+tool+`","tool_args":`+args+`}`)["invocation_id"].(string)
	h.post("/dispatches/"+id+"/completion", `{"outcome":"`+outcome+`"}`)
}

// T9: an operator reads a task back and answers, all over the command line, with
// the environment that seed 003 names.
func TestT9_CLIReadsBack(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, apitest.Refunds)
	h := newHarness(t, g, "order-task")
	env := map[string]string{"SIDECAR_ENDPOINT": h.url, "SIDECAR_OPERATOR_TOKEN": apitest.AliceToken}
	sh := &shell{t, env, filepath.Join(t.TempDir(), "none.sock")}
	var out, errs buffer
	followed := make(chan int, 1)
	go func() { followed <- sh.start(t.Context(), strings.NewReader(""), &out, &errs, "status", "--follow") }()
	eventually(t, "the first status", func() bool { return strings.Contains(out.String(), "journal") })

	h.call(h.propose("echo", `{"n":1}`), "echo", `{"n":1}`, "succeeded")
	h.call(h.propose("echo", `{"n":2}`), "echo", `{"n":2}`, "failed")
	h.propose("delete_all", `{}`)
	first := h.propose("refund", `{"amount":850}`)
	sh.run("status").want(t, 0).has(t, "order-task", "RUNNING", "1 completed", "1 failed", "airlock approve "+first, "big-refunds")
	snapshot := sh.run("status", "--json").want(t, 0)
	if snapshot.object(t)["task_id"] != "order-task" || strings.Count(snapshot.out, "\n") < 20 {
		t.Errorf("not a formatted snapshot: %s", snapshot.out)
	}
	r := sh.run("approve", first, "approve_once", "--explanation", "fine", "--json").want(t, 0).object(t)
	h.call(r["resolved_decision_id"].(string), "refund", `{"amount":850}`, "succeeded")
	sh.run("approve", first, "reject").want(t, ExitConflict).has(t, "already")
	sh.run("approve", "none", "reject").want(t, ExitNotFound).has(t, `"none"`)
	second := h.propose("refund", `{"amount":900}`)
	sh.run("approve", second, "ask_agent_to_replan").want(t, 0).has(t, "REPLAN")
	for _, word := range []string{"proposed", "blocked", "paused", "suspended", "executed", "completed", "failed"} {
		eventually(t, word, func() bool { return strings.Contains(out.String(), "  "+word+" ") })
	}
	sh.run("control", "stop", "--wait", "30s").want(t, 0).has(t, "nothing was revoked anywhere")
	sh.run("control", "restart").want(t, 0).has(t, "is running")
	if strings.Contains(out.String()+errs.String(), apitest.AliceToken) {
		t.Error("the token was printed")
	}
	select {
	case code := <-followed:
		t.Errorf("the follow ended with %d: %s", code, errs.String())
	default:
	}
}

func TestApproveFindsTheTaskByTheDecision(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, apitest.Refunds)
	sh := alice(t, g.Host)
	newHarness(t, g, "other").propose("refund", `{"amount":600}`)
	h := newHarness(t, g, "t/1")
	d := h.propose("refund", `{"amount":850}`)
	sh.run("hitl", "list").want(t, 0).has(t, d, "approval", "t/1")
	sh.run("hitl", "respond", d, "approve_once").want(t, ExitConflict).has(t, "airlock approve")
	dir := t.TempDir()
	file := filepath.Join(dir, "intent.json")
	intent := `{"id":"i","goal":"less","requested_by":{"type":"human","id":"ann"},"constraints":{"max_refund":100},"authority":{},"expires":null,"metadata":{}}`
	for _, bad := range []string{"{", `{"goal":"half"}`} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		sh.run("approve", d, "modify_intent", "--intent-file", file).want(t, ExitFailed).has(t, "envelope")
	}
	if err := os.WriteFile(file, []byte(intent), 0o600); err != nil {
		t.Fatal(err)
	}
	sh.run("approve", d, "modify_intent").want(t, ExitFailed).has(t, "--intent-file")
	sh.run("approve", d, "reject", "--intent-file", file).want(t, ExitFailed).has(t, "--intent-file")
	sh.run("approve", d, "reject", "--fingerprint", "00").want(t, ExitConflict)
	sh.run("approve", d, "dance").want(t, ExitFailed).has(t, "approve_once")
	sh.with("AIRLOCK_TOKEN", apitest.VicToken).run("approve", d, "reject").want(t, ExitNotAllowed)
	sh.run("approve", d, "modify_intent", "--intent-file", file).want(t, 0).has(t, "t/1", "BLOCK")
	sh.run("approve", d, "reject").want(t, ExitConflict) // the task says what became of it
	sh.run("approve", "no-such-decision", "reject").want(t, ExitNotFound).has(t, "--task")
	sh.run("approve", d, "reject", "--task", "t/1").want(t, ExitConflict)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	h := newHarness(t, g, "t")
	d := h.propose("echo", `{}`)
	inv := h.post("/dispatches", `{"decision_id":"`+d+`","tool_name":"echo","tool_args":{}}`)["invocation_id"].(string)
	alice(t, g.Host).run("resolve", "t", inv, "failed").want(t, ExitConflict)
	g.Reopen(t)
	sh := alice(t, g.Host)
	sh.run("status", "t").want(t, 0).has(t, "STOPPED", "airlock resolve t "+inv)
	sh.run("control", "restart", "t").want(t, ExitConflict).has(t, "resolve")
	sh.run("resolve", inv, "failed").want(t, ExitFailed).has(t, "SIDECAR_ENDPOINT")
	sh.run("resolve", "t", "none", "failed").want(t, ExitNotFound)
	sh.run("resolve", "t", inv, "perhaps").want(t, ExitFailed).has(t, "outcome")
	sh.with("SIDECAR_ENDPOINT", g.REST+"/tasks/t").run("resolve", inv, "failed", "--explanation", "seen").want(t, 0).has(t, "resolved: failed")
	sh.run("control", "restart", "t").want(t, 0).has(t, "is running")
}

// A receipt says neither more nor less than is known, and so does the exit code.
func TestReceipts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		receipt string
		waited  bool
		code    int
		says    string
	}{
		"acknowledged":      {`{"final":true,"access_revocation":"acknowledged","issuers":{"a":{"result":"acknowledged"}}}`, true, ExitOK, "acknowledged by every issuer"},
		"under way":         {`{"final":false}`, true, ExitTimedOut, "not known yet"},
		"nobody has waited": {`{"final":false}`, false, ExitOK, "not known yet"},
		"waived":            {`{"final":true,"access_revocation":"partial_failure","issuers":{"a":{"result":"acknowledged"},"b":{"result":"waived"}}}`, true, ExitOK, "NOT all of it is known to be revoked: waived for b"},
		"waived and failed": {`{"final":true,"access_revocation":"partial_failure","issuers":{"a":{"result":"failed"},"b":{"result":"waived"}}}`, true, ExitFailed, "an issuer failed"},
	} {
		var out bytes.Buffer
		err := showReceipt(&out, []byte(c.receipt), "t", false, c.waited)
		code := ExitOK
		if e := (*exitError)(nil); errors.As(err, &e) {
			code = e.code
		}
		if code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: exit code %d, %v\n%s", name, code, err, out.String())
		}
	}
}

// A stop that left access behind must not look like success to a script.
func TestReceiptOfAPartialStop(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := showReceipt(&out, []byte(`{"stop_id":"s","final":true,"access_revocation":"partial_failure","issuers":{"a":{"result":"acknowledged"},"b":{"result":"failed","detail":"503"}},"running":["i"]}`), "t", false, true)
	var e *exitError
	if !errors.As(err, &e) || e.code != ExitFailed || !strings.Contains(out.String(), "NOT all") || !strings.Contains(out.String(), "b failed 503") || !strings.Contains(out.String(), "1 calls were admitted") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
