package api_test

import (
	"fmt"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/store"
)

// X2, C7: what fail_open admitted while the journal was away counts as
// dispatched and as unresolved after a crash, although only the spool knows it,
// and its ids are good for no second call, however many come after it.
func TestWhatFailOpenAdmittedOutlivesACrash(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "\non_failure = \"fail_open\"")
	a := task(t, g, `{"task_id":"t","objective":"x"}`)
	propose := func(id string) reply {
		return a.post("/proposals", `{"proposal_id":"`+id+`","tool_name":"refund","tool_args":{"amount":500}}`)
	}
	admit := func(id string) (decision, invocation string) {
		t.Helper()
		d := propose(id).decided(t)
		inv, _ := a.dispatch(d.DecisionID, "refund", `{"amount":500}`).want(t, 201).object(t)["invocation_id"].(string)
		return d.DecisionID, inv
	}
	g.Store.Fail(store.ErrFull)
	decision, open := admit("refund-1")
	over, ended := admit("refund-2")
	a.complete(ended, "succeeded").want(t, 204)
	g.Reopen(t)

	st := a.status()
	if st.State != "STOPPED" || len(st.Running) != 0 || len(st.Unresolved) != 1 || st.Unresolved[0].InvocationID != open ||
		st.Counters["executed"] != 2 || st.Counters["completed"] != 1 {
		t.Fatalf("after the crash = %+v", st)
	}
	a.do("POST", "/control", `{"action":"restart"}`).code(t, 409, "unresolved")
	g.Reopen(t) // the gap is in the journal by now
	a.do("POST", "/control", `{"action":"restart"}`).code(t, 409, "unresolved")
	a.do("POST", "/resolve", `{"invocation_id":"`+open+`","outcome":"succeeded","explanation":"the bank has it"}`).want(t, 200)
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	for id, was := range map[string]string{"refund-1": decision, "refund-2": over} {
		if again := propose(id).decided(t); again.DecisionID != was {
			t.Errorf("%s is decided anew: %+v", id, again)
		}
		a.dispatch(was, "refund", `{"amount":500}`).code(t, 409, "consumed")
	}

	gaps := 0
	for i := range 70 { // a task itself remembers 64
		_, inv := admit(fmt.Sprint("other-", i))
		a.complete(inv, "succeeded").want(t, 204)
	}
	g.Reopen(t)
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	for _, id := range []string{"refund-1", "refund-2"} {
		propose(id).code(t, 409, "consumed")
	}
	kinds, _ := a.events()
	for _, k := range kinds {
		if k == "gap" {
			gaps++
		}
	}
	if st := a.status(); gaps != 1 || st.Counters["executed"] != 72 {
		t.Errorf("%d gaps, status = %+v", gaps, st)
	}
}
