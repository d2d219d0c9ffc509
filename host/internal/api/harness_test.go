package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/store"
)

func TestACallOfAHarnessFromProposalToCompletion(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"refunds","plan":[{"tool_name":"refund"}]}`)
	d := a.propose("refund", `{"amount":20}`)
	if d.Decision.Status != "ALLOW" || d.Decision.Point != "tool_call" || d.Decision.CausalLink != nil || d.Fingerprint == "" || d.Decision.Findings == nil {
		t.Fatalf("decision = %+v", d)
	}
	if again := a.get("/decisions/" + d.DecisionID).decided(t); again.DecisionID != d.DecisionID || again.Decision.Status != "ALLOW" {
		t.Errorf("read back = %+v", again)
	}
	inv, _ := a.dispatch(d.DecisionID, "refund", `{ "amount" : 20 }`).want(t, 201).object(t)["invocation_id"].(string)
	if st := a.status(); len(st.Running) != 1 || st.Running[0].InvocationID != inv || st.Counters["completed"] != 0 || len(st.Plan) != 1 {
		t.Errorf("status = %+v", st)
	}
	if got := a.get("/dispatches/"+inv).want(t, 200).object(t); got["state"] != "started" || got["cancel_requested_at"] != nil {
		t.Errorf("invocation = %v", got)
	}
	a.post("/dispatches/"+inv+"/completion", `{"outcome":"maybe"}`).want(t, 400)
	if r := a.complete(inv, "succeeded"); r.status != 204 || r.body != "" {
		t.Fatalf("completion = %d %s", r.status, r.body)
	}
	a.complete(inv, "succeeded").code(t, 409, "settled")
	if got := a.get("/dispatches/"+inv).want(t, 200).object(t); got["state"] != "succeeded" {
		t.Errorf("invocation = %v", got)
	}
	if st := a.status(); st.Counters["completed"] != 1 || st.Counters["executed"] != 1 || len(st.Running) != 0 {
		t.Errorf("status = %+v", st)
	}
	a.dispatch(d.DecisionID, "refund", `{"amount":20}`).code(t, 409, "consumed")
	for _, path := range []string{"/decisions/none", "/dispatches/none"} {
		a.get(path).want(t, 404)
	}
	a.complete("none", "failed").want(t, 404)
	a.dispatch("none", "refund", `{}`).want(t, 404)
}

func TestWhatMayNotRunIsRefusedWithItsCode(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, apitest.Refunds)
	a := task(t, g, `{"objective":"refunds"}`)
	blocked := a.propose("delete_all", `{}`)
	if blocked.Decision.Status != "BLOCK" || blocked.Decision.Risk != nil {
		t.Errorf("decision = %+v", blocked)
	}
	a.dispatch(blocked.DecisionID, "delete_all", `{}`).code(t, 409, "not_allowed")
	d := a.propose("refund", `{"amount":1}`)
	a.dispatch(d.DecisionID, "refund", `{"amount":2}`).code(t, 409, "fingerprint_mismatch")
	a.dispatch(d.DecisionID, "refund2", `{"amount":1}`).code(t, 409, "fingerprint_mismatch")
	a.post("/proposals", `{"proposal_id":"`+d.ProposalID+`","tool_name":"refund","tool_args":{"amount":2}}`).code(t, 409, "changed")
	if same := a.post("/proposals", `{"proposal_id":"`+d.ProposalID+`","tool_name":"refund","tool_args":{"amount":1}}`).decided(t); same.DecisionID != d.DecisionID {
		t.Errorf("the same proposal again = %+v", same)
	}
	a.do("POST", "/control", `{"action":"pause"}`).want(t, 200)
	a.dispatch(d.DecisionID, "refund", `{"amount":1}`).code(t, 409, "paused")
	a.do("POST", "/control", `{"action":"resume"}`).want(t, 200)
	a.dispatch(d.DecisionID, "refund", `{"amount":1}`).code(t, 409, "stale_epoch")

	d = a.propose("refund", `{"amount":3}`)
	g.Store.Fail(store.ErrFull)
	a.dispatch(d.DecisionID, "refund", `{"amount":3}`).code(t, 409, "journal_unavailable")
	a.post("/proposals", `{"tool_name":"refund","tool_args":{}}`).code(t, 503, "journal_unavailable")
	g.Store.Fail(nil)
	a.dispatch(d.DecisionID, "refund", `{"amount":3}`).want(t, 201)
	a.do("POST", "/control?wait=0", `{"action":"stop"}`).want(t, 200)
	a.post("/proposals", `{"tool_name":"refund","tool_args":{}}`).code(t, 409, "stopped")
	a.dispatch(d.DecisionID, "refund", `{"amount":3}`).code(t, 409, "stopped")
	if kinds, _ := a.events(); strings.Count(strings.Join(kinds, " "), "executed") != 1 {
		t.Errorf("kinds = %v", kinds)
	}
}

// The arguments that are judged, stored and fingerprinted are those that came,
// byte for byte: no number and no string is spelled anew.
func TestArgumentsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"x"}`)
	const args = `{"n":1e400,"big":123456789012345678901234567890,"zero":-0.0,"nfd":"e\u0301 é","é":1,"esc":"\u003c\/","z":1,"a":2}`
	d := a.propose("cap", args)
	if d.Decision.Status != "WARN" || !bytes.Contains(d.UpdatedArgs, []byte(args[:len(args)-1])) || !bytes.Contains(d.UpdatedArgs, []byte(`"dry_run":true`)) {
		t.Fatalf("decision = %+v %s", d, d.UpdatedArgs)
	}
	plain := a.propose("echo", args)
	a.dispatch(plain.DecisionID, "echo", strings.Replace(args, "1e400", "1E400", 1)).code(t, 409, "fingerprint_mismatch")
	a.dispatch(plain.DecisionID, "echo", strings.Replace(args, `e\u0301`, `\u00e9`, 1)).code(t, 409, "fingerprint_mismatch")
	a.dispatch(plain.DecisionID, "echo", args).want(t, 201)
	a.dispatch(d.DecisionID, "cap", string(d.UpdatedArgs)).want(t, 201)
	var page struct {
		Events []struct {
			Kind    string          `json:"kind"`
			Payload json.RawMessage `json:"payload"`
		} `json:"events"`
	}
	if err := json.Unmarshal([]byte(a.do("GET", "/events", "").body), &page); err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		if e.Kind == "proposed" && !bytes.Contains(e.Payload, []byte(`"big":123456789012345678901234567890`)) {
			t.Errorf("journalled = %s", e.Payload)
		}
	}
}

func TestBodiesOfTheHarnessAreClosed(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, ""), `{"objective":"x"}`)
	tests := []struct{ name, path, body, field string }{
		{"unknown", "/proposals", `{"tool_name":"x","tool_args":{},"actor":"me"}`, "actor"},
		{"no tool", "/proposals", `{"tool_args":{}}`, "tool_name"},
		{"empty tool", "/proposals", `{"tool_name":"","tool_args":{}}`, "tool_name"},
		{"no args", "/proposals", `{"tool_name":"x"}`, "tool_args"},
		{"args are a list", "/proposals", `{"tool_name":"x","tool_args":[]}`, "tool_args"},
		{"twice in args", "/proposals", `{"tool_name":"x","tool_args":{"a":{"b":1,"\u0062":2}}}`, "tool_args.a.b"},
		{"deep args", "/proposals", `{"tool_name":"x","tool_args":{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`, "tool_args"},
		{"wait", "/proposals", `{"tool_name":"x","tool_args":{},"wait_s":3601}`, "wait_s"},
		{"negative wait", "/proposals", `{"tool_name":"x","tool_args":{},"wait_s":-1}`, "wait_s"},
		{"wait as text", "/proposals", `{"tool_name":"x","tool_args":{},"wait_s":"1"}`, "wait_s"},
		{"step", "/proposals", `{"tool_name":"x","tool_args":{},"parent_plan_step":1.5}`, "parent_plan_step"},
		{"metadata", "/proposals", `{"tool_name":"x","tool_args":{},"metadata":1}`, "metadata"},
		{"kind", "/access", `{"kind":"door","issuer":"i","ref":"r"}`, "kind"},
		{"no ref", "/access", `{"kind":"session","issuer":"i"}`, "ref"},
		{"empty issuer", "/access", `{"kind":"session","issuer":"","ref":"r"}`, "issuer"},
		{"duration", "/dispatches/i/completion", `{"outcome":"failed","duration_ms":-1}`, "duration_ms"},
		{"outcome", "/dispatches/i/completion", `{"outcome":"definitely_not_started"}`, "outcome"},
	}
	for _, tt := range tests {
		if got := a.post(tt.path, tt.body).want(t, 400).object(t); got["field"] != tt.field {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	a.get("/dispatches/i?wait_s=soon").want(t, 400)
	if kinds, _ := a.events(); len(kinds) != 1 {
		t.Errorf("refused bodies are in the journal: %v", kinds)
	}
}

func TestAHeldProposalIsAnsweredWithWhatResolvedIt(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"refunds"}`)
	held := make(chan reply, 1)
	go func() {
		held <- a.post("/proposals", `{"proposal_id":"p1","tool_name":"refund","tool_args":{"amount":850},"wait_s":60}`)
	}()
	var pending string
	eventually(t, "the approval", func() bool {
		if st := a.status(); len(st.Pending) == 1 {
			pending = st.Pending[0].DecisionID
		}
		return pending != ""
	})
	a.dispatch(pending, "refund", `{"amount":850}`).code(t, 409, "not_allowed")
	rep := a.do("POST", "/approval", `{"decision_id":"`+pending+`","action":"approve_once","explanation":"fine"}`).want(t, 200).object(t)
	if rep["accepted"] != true || rep["decision_id"] != pending || rep["status"] != "ALLOW" || rep["sequence"].(float64) == 0 {
		t.Fatalf("reply = %v", rep)
	}
	d := (<-held).decided(t)
	if d.DecisionID != rep["resolved_decision_id"] || d.Decision.Status != "ALLOW" || d.Decision.CausalLink == nil || *d.Decision.CausalLink != pending {
		t.Fatalf("held answer = %+v", d)
	}
	if old := a.get("/decisions/" + pending).decided(t); old.ResolvedBy != d.DecisionID || old.Decision.Status != "PAUSE" {
		t.Errorf("the old decision = %+v", old)
	}
	a.dispatch(d.DecisionID, "refund", `{"amount":850}`).want(t, 201)
}

// A request that is held ends with its client and with the host; the decision
// goes on waiting.
func TestAHeldProposalLetsGo(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, apitest.Refunds)
	a := task(t, g, `{"objective":"refunds"}`)
	const body = `{"proposal_id":"p1","tool_name":"refund","tool_args":{"amount":850},"wait_s":`
	if d := a.post("/proposals", body+`0.05}`).decided(t); d.Decision.Status != "PAUSE" || !d.Decision.Escalation {
		t.Fatalf("after the wait = %+v", d)
	}
	done := make(chan reply, 1)
	go func() { done <- a.post("/proposals", body+`3600}`) }()
	time.Sleep(10 * time.Millisecond) // not needed for the test to be right: only so that the request is often held already
	g.Server.Close()
	if d := (<-done).decided(t); d.Decision.Status != "PAUSE" {
		t.Errorf("at the end of the host = %+v", d)
	}
}

func TestAHarnessLearnsThatItShouldCancel(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, ""), `{"objective":"x"}`)
	d := a.propose("sleep", `{}`)
	inv, _ := a.dispatch(d.DecisionID, "sleep", `{}`).want(t, 201).object(t)["invocation_id"].(string)
	told := make(chan reply, 1)
	go func() { told <- a.get("/dispatches/" + inv + "?wait_s=60") }()
	a.do("POST", "/control?wait=0", `{"action":"stop"}`).want(t, 200)
	if got := (<-told).want(t, 200).object(t); got["state"] != "started" || got["cancel_requested_at"] == nil {
		t.Fatalf("invocation = %v", got)
	}
	if r := a.complete(inv, "failed"); r.status != 204 {
		t.Fatalf("completion after the stop = %d %s", r.status, r.body)
	}
	if st := a.status(); st.Counters["failed"] != 1 || st.Counters["completed"] != 0 {
		t.Errorf("status = %+v", st)
	}
}

func TestAccessIsRecorded(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, ""), `{"objective":"x"}`)
	if r := a.post("/access", `{"kind":"session","issuer":"issuer","ref":"s1"}`); r.status != 204 {
		t.Fatalf("access = %d %s", r.status, r.body)
	}
	if r := a.post("/access", `{"kind":"delegation","issuer":"issuer","ref":"d1","parent":"s1"}`); r.status != 204 {
		t.Fatalf("access = %d %s", r.status, r.body)
	}
	if st := a.status(); len(st.Access.Access) != 2 || st.Access.State != "granted" {
		t.Errorf("status = %+v", st)
	}
}

// T8: one token, one task; an operator is no harness and a harness no operator.
func TestT8_AuthAndOneTaskNotReachingAnother(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, apitest.Refunds)
	a, b := task(t, g, `{"task_id":"a","objective":"x"}`), task(t, g, `{"task_id":"b","objective":"x"}`)
	d := a.propose("echo", `{}`)
	harness := []struct{ method, path, body string }{
		{"POST", "/proposals", `{"tool_name":"echo","tool_args":{}}`},
		{"GET", "/decisions/" + d.DecisionID, ""},
		{"POST", "/dispatches", `{"decision_id":"` + d.DecisionID + `","tool_name":"echo","tool_args":{}}`},
		{"GET", "/dispatches/x", ""},
		{"POST", "/dispatches/x/completion", `{"outcome":"failed"}`},
		{"POST", "/access", `{"kind":"session","issuer":"i","ref":"r"}`},
	}
	for _, h := range harness {
		call(t, g.Host, b.token, h.method, "/tasks/a"+h.path, h.body).want(t, 404)
		call(t, g.Host, "", h.method, "/tasks/a"+h.path, h.body).want(t, 401)
		call(t, g.Host, a.token, h.method, "/tasks/none"+h.path, h.body).want(t, 404)
		call(t, g.Host, apitest.AliceToken, h.method, "/tasks/a"+h.path, h.body).code(t, 403, "task_token")
		call(t, g.Host, strings.Repeat("x", 40), h.method, "/tasks/a"+h.path, h.body)
	}
	operator := []struct{ method, path, body string }{
		{"GET", "/status", ""}, {"GET", "/events", ""}, {"GET", "/export", ""}, {"POST", "/control", `{"action":"stop"}`},
		{"POST", "/approval", `{"decision_id":"x","action":"reject"}`}, {"POST", "/intent", `{"intent":{}}`}, {"PUT", "/plan", `{"plan":[]}`},
		{"POST", "/resolve", `{"invocation_id":"x","outcome":"failed"}`},
	}
	for _, o := range operator {
		for _, token := range []string{a.token, "", strings.Repeat("x", 40)} {
			if r := call(t, g.Host, token, o.method, "/tasks/a"+o.path, o.body); r.status != 401 && r.status != 429 {
				t.Errorf("%s %s with %.4s…: %d %s", o.method, o.path, token, r.status, r.body)
			}
		}
		if o.method != "GET" {
			call(t, g.Host, apitest.VicToken, o.method, "/tasks/a"+o.path, o.body).want(t, 403)
		}
		// rob sees agent-01 only; a harness's task is nobody's agent's.
		call(t, g.Host, apitest.RobToken, o.method, "/tasks/a"+o.path, o.body).want(t, 404)
		call(t, g.Host, apitest.AliceToken, o.method, "/tasks/none"+o.path, o.body).want(t, 404)
	}
	call(t, g.Host, apitest.RobToken, "POST", "/tasks", `{"objective":"x"}`).want(t, 403)
	call(t, g.Host, apitest.VicToken, "POST", "/tasks", `{"objective":"x"}`).want(t, 403)
	if kinds, text := b.events(); len(kinds) != 1 || strings.Contains(text+g.Logs.String(), a.token) {
		t.Errorf("b's journal = %v, or a token is in a record", kinds)
	}
	scoped := task(t, g, `{"objective":"x","scopes":["propose"]}`)
	d = scoped.propose("echo", `{}`)
	scoped.dispatch(d.DecisionID, "echo", `{}`).code(t, 403, "scope")
	call(t, g.Host, apitest.AliceToken, "POST", "/tasks", `{"objective":"x","scopes":["root"]}`).want(t, 400)
}

func TestTaskTokensOutliveARestart(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"task_id":"a/../b é","objective":"x"}`)
	a.propose("echo", `{}`)
	g.Reopen(t)
	if st := a.status(); st.State != "STOPPED" {
		t.Errorf("status = %+v", st)
	}
	a.post("/proposals", `{"tool_name":"echo","tool_args":{}}`).code(t, 409, "stopped")
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	a.propose("echo", `{}`)
}

// F6: a call that has ended is over in this process although its end cannot be
// written; the harness is told that it is not. The end is written once the
// journal is back, and a host that restarts before knows it as unresolved.
func TestAnEndThatCannotBeWrittenStillEndsTheCall(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"objective":"x"}`)
	running := func() string {
		d := a.propose("echo", `{}`)
		id, _ := a.dispatch(d.DecisionID, "echo", `{}`).want(t, 201).object(t)["invocation_id"].(string)
		return id
	}
	first := running()
	g.Store.Fail(store.ErrFull)
	a.complete(first, "succeeded").code(t, 503, "journal_unavailable")
	if st := a.status(); len(st.Running) != 0 || len(st.Audit) == 0 || st.Counters["completed"] != 0 {
		t.Errorf("status while the journal is away = %+v", st)
	}
	if got := a.get("/dispatches/"+first+"?wait_s=20").want(t, 200).object(t); got["state"] != "succeeded" {
		t.Errorf("the call is %v", got)
	}
	g.Store.Fail(nil)
	eventually(t, "the end is written", func() bool { return a.status().Counters["completed"] == 1 })
	a.complete(first, "succeeded").code(t, 409, "settled")

	second := running()
	g.Store.Fail(store.ErrFull)
	a.complete(second, "failed").code(t, 503, "journal_unavailable")
	g.Reopen(t)
	if st := a.status(); len(st.Running) != 0 || len(st.Unresolved) != 1 || st.Unresolved[0].InvocationID != second || st.Counters["failed"] != 0 {
		t.Errorf("after a restart without it = %+v", st)
	}
}

// observing is mode observe: verdicts are recorded and do not hold a call.
const observing = "\nmode = \"observe\"\n  policy {\n    default = \"allow\"\n    rule \"never\" {\n      tool = \"never\"\n      effect = \"deny\"\n      reason = \"never\"\n    }\n  }"

// F8: what observes does not run without its record either.
func TestABrokenJournalRefusesInObserveModeToo(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, observing)
	a := task(t, g, `{"objective":"x"}`)
	blocked := a.propose("never", `{}`)
	if blocked.Decision.Status != "BLOCK" {
		t.Fatalf("decided = %+v", blocked)
	}
	g.Store.Fail(store.ErrFull)
	a.dispatch(blocked.DecisionID, "never", `{}`).code(t, 409, "journal_unavailable")
	a.post("/proposals", `{"tool_name":"other","tool_args":{}}`).code(t, 503, "journal_unavailable")
	g.Store.Fail(nil)
	a.dispatch(blocked.DecisionID, "never", `{}`).want(t, 201) // the same call, with its record
	if st := a.status(); st.Counters["executed"] != 1 {
		t.Errorf("status = %+v", st)
	}
}

// C5: a stop is honoured in both modes, and so are pause, use and fingerprint.
func TestBothModesHonourAStop(t *testing.T) {
	t.Parallel()
	for name, block := range map[string]string{"govern": "", "observe": observing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := task(t, apitest.Govern(t, block), `{"objective":"x"}`)
			used := a.propose("echo", `{}`)
			a.dispatch(used.DecisionID, "echo", `{}`).want(t, 201)
			a.dispatch(used.DecisionID, "echo", `{}`).code(t, 409, "consumed")
			d := a.propose("echo", `{"n":1}`)
			a.dispatch(d.DecisionID, "echo", `{"n":2}`).code(t, 409, "fingerprint_mismatch")
			a.do("POST", "/control", `{"action":"pause"}`).want(t, 200)
			a.dispatch(d.DecisionID, "echo", `{"n":1}`).code(t, 409, "paused")
			a.do("POST", "/control", `{"action":"resume"}`).want(t, 200)
			a.dispatch(d.DecisionID, "echo", `{"n":1}`).code(t, 409, "stale_epoch")
			d = a.propose("echo", `{"n":3}`)
			a.do("POST", "/control?wait=0", `{"action":"stop"}`).want(t, 200)
			a.dispatch(d.DecisionID, "echo", `{"n":3}`).code(t, 409, "stopped")
			a.post("/proposals", `{"tool_name":"echo","tool_args":{}}`).code(t, 409, "stopped")
			if st := a.status(); st.Counters["executed"] != 1 {
				t.Errorf("status = %+v", st)
			}
		})
	}
}

// An id that was dispatched is good for no second call, however many came after
// it, and over a restart of the host.
func TestAProposalIsDispatchedOnceForEver(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"task_id":"t","objective":"x"}`)
	propose := func(id string) decided {
		return a.post("/proposals", `{"proposal_id":"`+id+`","tool_name":"pay","tool_args":{"n":1}}`).decided(t)
	}
	first := propose("once")
	a.dispatch(first.DecisionID, "pay", `{"n":1}`).want(t, 201)
	for i := range 70 { // a task itself remembers 64
		d := propose(fmt.Sprint("other-", i))
		inv, _ := a.dispatch(d.DecisionID, "pay", `{"n":1}`).want(t, 201).object(t)["invocation_id"].(string)
		a.complete(inv, "succeeded").want(t, 204)
	}
	check := func(when string) {
		t.Helper()
		again := propose("once")
		if again.DecisionID != first.DecisionID {
			t.Errorf("%s: decided anew: %+v", when, again)
		}
		if got := a.dispatch(again.DecisionID, "pay", `{"n":1}`); got.status != 409 && got.status != 404 {
			t.Errorf("%s: dispatched again: %+v", when, got)
		}
		a.post("/proposals", `{"proposal_id":"once","tool_name":"pay","tool_args":{"n":2}}`).code(t, 409, "changed")
	}
	check("in the same process")
	g.Reopen(t)
	running := a.status().Unresolved
	if len(running) != 1 {
		t.Fatalf("unresolved = %+v", running)
	}
	a.do("POST", "/resolve", `{"invocation_id":"`+running[0].InvocationID+`","outcome":"outcome_unknown"}`).want(t, 200)
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	check("after a restart")
	if st := a.status(); st.Counters["executed"] != 71 {
		t.Errorf("status = %+v", st)
	}
}

// A token that is lost or known to others is replaced; the one before is void.
func TestAHarnessGetsAnotherToken(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"task_id":"t","objective":"x","scopes":["propose","dispatch"]}`)
	got := a.do("POST", "/token", `{}`).want(t, 201).object(t)
	old := a.token
	a.token, _ = got["token"].(string)
	if a.token == "" || a.token == old || got["task_id"] != "t" || !strings.HasSuffix(got["url"].(string), "/tasks/t") {
		t.Fatalf("got %v", got)
	}
	a.propose("echo", `{}`)
	a.post("/access", `{"kind":"session","issuer":"i","ref":"r"}`).code(t, 403, "scope") // scopes stay
	call(t, g.Host, old, "POST", a.path+"/proposals", `{"tool_name":"echo","tool_args":{}}`).want(t, 404)
	call(t, g.Host, a.token, "POST", a.path+"/token", `{}`).want(t, 401) // an operator's to ask for
	atMCP := func(when, token string, good bool, scopes int) {
		t.Helper()
		id, got, ok := g.Real.TaskOfToken(t.Context(), token)
		if ok != good || len(got) != scopes || ok && id != "t" {
			t.Errorf("%s: at the MCP endpoint the token is of %q: %v %v", when, id, got, ok)
		}
	}
	atMCP("the old token", old, false, 0)
	atMCP("without a scope there", a.token, true, 0)
	some := a.do("POST", "/token", `{"scopes":["propose","runtime:read"]}`).want(t, 201).object(t)
	a.token, _ = some["token"].(string)
	atMCP("with a scope there", a.token, true, 1)
	g.Reopen(t)
	atMCP("the old token, after a restart", old, false, 0)
	atMCP("after a restart", a.token, true, 1)
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	a.do("POST", "/token", `{"scopes":["all"]}`).want(t, 400)
	narrow := a.do("POST", "/token", `{"scopes":["propose"]}`).want(t, 201).object(t)
	a.token, _ = narrow["token"].(string)
	g.Reopen(t)
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	d := a.propose("echo", `{}`)
	a.dispatch(d.DecisionID, "echo", `{}`).code(t, 403, "scope")
	if _, text := a.events(); strings.Contains(text, a.token) || !strings.Contains(text, `"actor":"alice"`) {
		t.Errorf("events = %s", text)
	}
}
