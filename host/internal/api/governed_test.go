package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

// agent is a harness: a task and its token.
type agent struct {
	t     *testing.T
	h     *apitest.Governed
	id    string
	path  string
	token string
}

// task opens a task for a harness.
func task(t *testing.T, h *apitest.Governed, body string) *agent {
	t.Helper()
	got := call(t, h.Host, apitest.AliceToken, "POST", "/tasks", body).want(t, 201).object(t)
	a := &agent{t: t, h: h, id: got["task_id"].(string), token: got["token"].(string)}
	address := got["url"].(string)
	a.path = strings.TrimPrefix(address, h.REST)
	if !strings.HasPrefix(address, h.REST+"/tasks/") || len(a.token) != 64 {
		t.Fatalf("created = %v", got)
	}
	return a
}

// post is a call of the harness, do one of the operator.
func (a *agent) post(path, body string) reply {
	a.t.Helper()
	return call(a.t, a.h.Host, a.token, "POST", a.path+path, body)
}

func (a *agent) get(path string) reply {
	a.t.Helper()
	return call(a.t, a.h.Host, a.token, "GET", a.path+path, "")
}

func (a *agent) do(method, path, body string) reply {
	a.t.Helper()
	return call(a.t, a.h.Host, apitest.AliceToken, method, a.path+path, body)
}

// decided is the answer to a proposal.
type decided struct {
	ProposalID  string          `json:"proposal_id"`
	DecisionID  string          `json:"decision_id"`
	Epoch       uint64          `json:"epoch"`
	Fingerprint string          `json:"fingerprint"`
	UpdatedArgs json.RawMessage `json:"updated_args"`
	ResolvedBy  string          `json:"resolved_by"`
	Decision    struct {
		Status     string  `json:"status"`
		Risk       *string `json:"risk"`
		Reason     string  `json:"reason"`
		Point      string  `json:"decision_point"`
		Escalation bool    `json:"escalation_required"`
		CausalLink *string `json:"causal_link"`
		Findings   []struct {
			ID string `json:"id"`
		} `json:"findings"`
	} `json:"decision"`
}

func (r reply) decided(t *testing.T) decided {
	t.Helper()
	var d decided
	if err := json.Unmarshal([]byte(r.want(t, 200).body), &d); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return d
}

// propose asks for a call.
func (a *agent) propose(tool, args string) decided {
	a.t.Helper()
	return a.post("/proposals", `{"tool_name":"`+tool+`","tool_args":`+args+`}`).decided(a.t)
}

func (a *agent) dispatch(decision, tool, args string) reply {
	a.t.Helper()
	return a.post("/dispatches", `{"decision_id":"`+decision+`","tool_name":"`+tool+`","tool_args":`+args+`}`)
}

func (a *agent) complete(invocation, outcome string) reply {
	a.t.Helper()
	return a.post("/dispatches/"+invocation+"/completion", `{"outcome":"`+outcome+`","result":{"ok":true},"duration_ms":7}`)
}

// status is the task as an operator sees it.
type status struct {
	State    string         `json:"state"`
	Reason   string         `json:"state_reason"`
	Epoch    uint64         `json:"epoch"`
	Counters map[string]int `json:"counters"`
	Pending  []struct {
		DecisionID string `json:"decision_id"`
	} `json:"pending_approvals"`
	Running []struct {
		InvocationID string  `json:"invocation_id"`
		Cancel       *string `json:"cancel_requested"`
	} `json:"running"`
	Unresolved []struct {
		InvocationID string `json:"invocation_id"`
	} `json:"unresolved"`
	Intent struct {
		Goal string `json:"goal"`
	} `json:"intent"`
	Plan   []any `json:"plan"`
	Access struct {
		State  string `json:"state"`
		Access []any  `json:"access"`
	} `json:"revocation"`
	Audit []string `json:"audit_errors"`
	Head  struct {
		Sequence uint64 `json:"sequence"`
	} `json:"head"`
}

func (a *agent) status() status {
	a.t.Helper()
	return a.do("GET", "/status", "").asStatus(a.t)
}

func (r reply) asStatus(t *testing.T) status {
	t.Helper()
	var s status
	if err := json.Unmarshal([]byte(r.want(t, 200).body), &s); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return s
}

// events are the kinds of a task's journal and its text.
func (a *agent) events() (kinds []string, text string) {
	a.t.Helper()
	r := a.do("GET", "/events", "").want(a.t, http.StatusOK)
	var page struct {
		Events []struct {
			Kind string `json:"kind"`
		} `json:"events"`
	}
	if err := json.Unmarshal([]byte(r.body), &page); err != nil {
		a.t.Fatal(err)
	}
	for _, e := range page.Events {
		kinds = append(kinds, e.Kind)
	}
	return kinds, r.body
}

// code checks a refusal's status and code.
func (r reply) code(t *testing.T, status int, code string) {
	t.Helper()
	if got := r.want(t, status).object(t); got["code"] != code {
		t.Fatalf("code = %v, want %s: %s", got["code"], code, r.body)
	}
}
