package api_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// A REST route has no control envelope (seed 004, acceptance W): a body with a
// `_wc` beside its members is refused, naming it, and moves neither the goal nor
// what the route is for; in arguments that are a tool's own it is data. Random
// places and envelopes, the good one among them.
func TestRESTBodiesHaveNoEnvelope(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, apitest.Refunds)
	a := task(t, g, `{"objective":"refunds"}`)
	c, err := g.Real.Workflow().Context(t.Context(), workflow.Caller{Owner: workflow.Owner(a.id)})
	if err != nil {
		t.Fatal(err)
	}
	progress := fmt.Sprintf(`{"control":{"before":{"goal_progress":{"goal_id":%q,"expected_revision":1,"summary":"s","idempotency_key":"k"}}}}`, c.GoalID)
	envelopes := []string{progress, `{}`, `null`, `[]`, `"x"`, `{"control":{}}`, `{"record":"` + c.SessionID + `"}`, `{"control":{"before":{}}}`}
	closed := map[string]string{
		"/proposals":  `{"tool_name":"refund","tool_args":{"amount":1}}`,
		"/dispatches": `{"decision_id":"none","tool_name":"refund","tool_args":{"amount":1}}`,
		"/access":     `{"kind":"session","issuer":"i","ref":"r"}`,
		"/control":    `{"action":"pause"}`,
		"/approval":   `{"decision_id":"none","action":"approve_once"}`,
		"/intent":     `{"intent":{"goal":"g"}}`,
		"/resolve":    `{"invocation_id":"none","outcome":"failed","explanation":"e"}`,
	}
	for path, good := range closed {
		for _, wc := range envelopes {
			var members map[string]json.RawMessage
			if err := json.Unmarshal([]byte(good), &members); err != nil {
				t.Fatal(err)
			}
			at := rand.IntN(len(members) + 1)
			var parts []string
			for name, value := range members {
				parts = append(parts, fmt.Sprintf("%q:%s", name, value))
			}
			parts = append(parts[:at], append([]string{`"_wc":` + wc}, parts[at:]...)...)
			body := "{" + strings.Join(parts, ",") + "}"
			send := a.post
			if strings.Contains("/control /approval /intent /resolve", path) {
				send = func(path, body string) reply { return a.do("POST", path, body) }
			}
			if r := send(path, body); r.status != 400 || !strings.Contains(r.body, "_wc") {
				t.Errorf("%s %s: %d %s", path, body, r.status, r.body)
			}
		}
	}
	if st := a.status(); st.Counters["proposed"] != 0 || len(st.Running) != 0 {
		t.Errorf("something was done: %+v", st)
	}
	// In a tool's own arguments it is data: it is judged and fingerprinted as it is.
	args := `{"amount":1,"_wc":` + progress + `}`
	d := a.propose("refund", args)
	a.dispatch(d.DecisionID, "refund", `{"amount":1}`).code(t, 409, "fingerprint_mismatch")
	a.dispatch(d.DecisionID, "refund", args).want(t, 201)
	goal, err := g.Real.Workflow().GetGoal(t.Context(), workflow.Caller{Owner: workflow.Owner(a.id)}, workflow.GetGoal{GoalID: c.GoalID})
	if err != nil || goal.Summary.Revision != 1 {
		t.Errorf("the goal moved: %+v %v", goal.Summary, err)
	}
}
