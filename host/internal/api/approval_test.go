package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

// envelope is a complete intent envelope.
func envelope(maxRefund string) string {
	return `{"id":"i1","goal":"be kind","requested_by":{"type":"human","id":"ann"},"constraints":{"max_refund":` + maxRefund +
		`},"authority":{"refund":true},"expires":null,"metadata":{}}`
}

// waiting proposes a refund that waits for a human.
func (a *agent) waiting(amount int) decided {
	a.t.Helper()
	d := a.propose("refund", fmt.Sprintf(`{"amount":%d}`, amount))
	if d.Decision.Status != "PAUSE" {
		a.t.Fatalf("decision = %+v", d)
	}
	return d
}

func (a *agent) answer(decision, action, more string) reply {
	a.t.Helper()
	return a.do("POST", "/approval", `{"decision_id":"`+decision+`","action":"`+action+`"`+more+`}`)
}

func TestAnApprovalIsTakenOnceAndFromTheOperatorOnly(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"refunds"}`)
	d := a.waiting(850)
	if got := a.answer(d.DecisionID, "approve_once", `,"actor":"root"`).want(t, 400).object(t); got["field"] != "actor" {
		t.Errorf("an actor in the body = %v", got)
	}
	a.answer(d.DecisionID, "approve_once", `,"fingerprint":"00"`).code(t, 409, "fingerprint_mismatch")
	if got := a.answer(d.DecisionID, "dance", "").want(t, 400).object(t); got["field"] != "action" {
		t.Errorf("unknown action = %v", got)
	}
	a.answer("none", "reject", "").want(t, 404)
	a.answer(d.DecisionID, "reject", `,"modified_intent":`+envelope("1")).want(t, 400)
	first := a.answer(d.DecisionID, "approve_once", `,"fingerprint":"`+d.Fingerprint+`"`).want(t, 200).object(t)
	a.answer(d.DecisionID, "approve_once", "").code(t, 409, "resolved")
	a.answer(d.DecisionID, "reject", "").code(t, 409, "resolved")
	resolved := first["resolved_decision_id"].(string)
	a.dispatch(resolved, "refund", `{"amount":851}`).code(t, 409, "fingerprint_mismatch")
	a.dispatch(resolved, "refund", `{"amount":850}`).want(t, 201)
	a.dispatch(resolved, "refund", `{"amount":850}`).code(t, 409, "consumed")
	if _, text := a.events(); !strings.Contains(text, `"actor":"alice"`) || strings.Contains(text, `"root"`) {
		t.Errorf("events = %s", text)
	}
}

func TestTheFiveAnswers(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"refunds"}`)
	for action, status := range map[string]string{"approve_once": "ALLOW", "reject": "BLOCK", "ask_agent_to_replan": "REPLAN"} {
		d := a.waiting(700)
		rep := a.answer(d.DecisionID, action, `,"explanation":"so it is"`).want(t, 200).object(t)
		if rep["status"] != status {
			t.Errorf("%s = %v", action, rep)
		}
		if got := a.get("/decisions/" + rep["resolved_decision_id"].(string)).decided(t); got.Decision.Status != status {
			t.Errorf("%s: decision = %+v", action, got)
		}
	}
	d, other := a.waiting(850), a.waiting(900)
	for _, bad := range []string{
		"", `,"modified_intent":{}`, `,"modified_intent":{"goal":"x"}`, `,"modified_intent":` + strings.Replace(envelope("1"), "constraints", "constraint", 1),
		`,"modified_intent":` + strings.Replace(envelope("1"), "human", "god", 1), `,"modified_intent":` + strings.Replace(envelope("1"), `"expires":null`, `"expires":"2030-01-01T00:00:00"`, 1),
	} {
		a.answer(d.DecisionID, "modify_intent", bad).code(t, 422, "invalid_envelope")
	}
	if st := a.status(); len(st.Pending) != 2 || st.Intent.Goal != "" {
		t.Fatalf("after refused envelopes = %+v", st)
	}
	rep := a.answer(d.DecisionID, "modify_intent", `,"modified_intent":`+envelope("500")).want(t, 200).object(t)
	if rep["status"] != "BLOCK" { // the bindings stay: 850 is above the new cap
		t.Errorf("judged again = %v", rep)
	}
	st := a.status()
	if st.Intent.Goal != "be kind" || float64(st.Epoch) != rep["epoch"] {
		t.Errorf("status = %+v", st)
	}
	a.answer(other.DecisionID, "approve_once", "").code(t, 409, "stale_epoch") // voided before the operator was answered
	a.do("POST", "/intent", `{"intent":`+envelope("10000")+`}`).want(t, 200)
	d = a.waiting(1000)
	if rep := a.answer(d.DecisionID, "stop_agent", "").want(t, 200).object(t); rep["resolved_decision_id"] != "" {
		t.Errorf("stop_agent = %v", rep)
	}
	eventually(t, "the stop", func() bool { return a.status().State == "STOPPED" })
}

// T10: what an approval led to points at what it answered.
func TestT10_CausalLinks(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"refunds"}`)
	d := a.waiting(850)
	a.do("POST", "/control", `{"action":"pause","freeze":false}`).want(t, 200)
	a.do("POST", "/control", `{"action":"resume"}`).want(t, 200)
	again := a.post("/proposals", `{"proposal_id":"`+d.ProposalID+`","tool_name":"refund","tool_args":{"amount":850}}`).decided(t)
	if again.DecisionID == d.DecisionID || again.Decision.CausalLink == nil || *again.Decision.CausalLink != d.DecisionID {
		t.Fatalf("judged again = %+v", again)
	}
	a.answer(d.DecisionID, "approve_once", "").code(t, 409, "stale_epoch")
	rep := a.answer(again.DecisionID, "approve_once", "").want(t, 200).object(t)
	final := a.get("/decisions/" + rep["resolved_decision_id"].(string)).decided(t)
	if final.Decision.CausalLink == nil || *final.Decision.CausalLink != again.DecisionID {
		t.Errorf("resolved = %+v", final)
	}
	child := a.post("/proposals", `{"tool_name":"echo","tool_args":{},"parent_decision_id":"`+final.DecisionID+`","parent_plan_step":3}`).decided(t)
	if child.Decision.CausalLink != nil {
		t.Errorf("a parent is no cause: %+v", child)
	}
	if _, text := a.events(); !strings.Contains(text, `"parent_decision_id":"`+final.DecisionID+`","parent_plan_step":3`) {
		t.Errorf("events = %s", text)
	}
}

// T11: nobody answers: REPLAN, also under fail_open, and never a dispatch.
func TestT11_ApprovalTimeout(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds+"\napproval_timeout = \"200ms\"\napproval_hold = \"100ms\"\n"), `{"objective":"refunds"}`)
	d := a.post("/proposals", `{"tool_name":"refund","tool_args":{"amount":850},"wait_s":60}`).decided(t)
	if d.Decision.Status != "REPLAN" || d.Decision.CausalLink == nil {
		t.Fatalf("decision = %+v", d)
	}
	a.dispatch(d.DecisionID, "refund", `{"amount":850}`).code(t, 409, "not_allowed")
	a.dispatch(*d.Decision.CausalLink, "refund", `{"amount":850}`).code(t, 409, "not_allowed")
	a.answer(*d.Decision.CausalLink, "approve_once", "").code(t, 409, "resolved")
	if st := a.status(); st.Counters["executed"] != 0 || len(st.Pending) != 0 {
		t.Errorf("status = %+v", st)
	}
}

func TestAnApprovalIsNoQuestion(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, apitest.Refunds)
	a := task(t, g, `{"objective":"refunds"}`)
	d := a.waiting(850)
	list := call(t, g.Host, apitest.VicToken, "GET", "/api/v1/hitl", "").want(t, 200).body
	if !strings.Contains(list, `"hitl_id":"`+d.DecisionID+`"`) || !strings.Contains(list, `"source":"approval"`) {
		t.Errorf("questions = %s", list)
	}
	r := call(t, g.Host, apitest.AliceToken, "POST", "/api/v1/hitl/"+d.DecisionID+"/respond", `{"text":"approve_once"}`)
	r.code(t, 409, "approval")
	if !strings.Contains(r.body, "airlock approve "+d.DecisionID) {
		t.Errorf("there is no hint: %s", r.body)
	}
	if st := a.status(); len(st.Pending) != 1 {
		t.Errorf("the answer was taken: %+v", st)
	}
}

func TestAnotherIntentVoidsWhatWasDecided(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, apitest.Refunds), `{"objective":"refunds","intent":`+envelope("100")+`}`)
	if d := a.propose("refund", `{"amount":200}`); d.Decision.Status != "BLOCK" {
		t.Errorf("above the cap = %+v", d)
	}
	d := a.propose("refund", `{"amount":50}`)
	before := a.status().Epoch
	st := a.do("POST", "/intent", `{"intent":`+envelope("300")+`}`).asStatus(t)
	if st.Epoch != before+1 {
		t.Errorf("epoch %d after %d", st.Epoch, before)
	}
	a.dispatch(d.DecisionID, "refund", `{"amount":50}`).code(t, 409, "stale_epoch")
	if d := a.propose("refund", `{"amount":200}`); d.Decision.Status != "ALLOW" {
		t.Errorf("under the new cap = %+v", d)
	}
	a.do("POST", "/intent", `{"intent":{"goal":"half"}}`).code(t, 422, "invalid_envelope")
	a.do("POST", "/intent", `{"intent":`+envelope("1")+`,"actor":"me"}`).want(t, 400)
	if st := a.do("PUT", "/plan", `{"plan":[{"tool_name":"refund"},{"tool_name":"echo"}]}`).asStatus(t); len(st.Plan) != 2 {
		t.Errorf("plan = %+v", st)
	}
	a.do("PUT", "/plan", `{"plan":{}}`).want(t, 400)
}
