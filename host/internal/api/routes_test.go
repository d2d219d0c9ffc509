package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/mux"

	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// bodies make requests that a handler takes, where it wants a body.
var bodies = map[string]string{
	"POST /api/v1/missions":                               `{"objective":"x"}`,
	"POST /api/v1/missions/plan":                          `{"objective":"x","agent_id":"agent-01"}`,
	"POST /api/v1/hitl/{id}/respond":                      `{"text":"yes"}`,
	"POST /api/v1/ui/session":                             `{"code":"made-up"}`,
	"POST /tasks/{id}/control":                            `{"action":"pause"}`,
	"POST /tasks":                                         `{"objective":"x"}`,
	"POST /tasks/{id}/approval":                           `{"decision_id":"d","action":"reject"}`,
	"POST /tasks/{id}/intent":                             `{"intent":{"id":"i","goal":"g","requested_by":{"type":"human","id":"a"},"constraints":{}}}`,
	"PUT /tasks/{id}/plan":                                `{"plan":[]}`,
	"POST /tasks/{id}/resolve":                            `{"invocation_id":"i","outcome":"failed"}`,
	"POST /tasks/{id}/waive":                              `{"issuer":"i","explanation":"e"}`,
	"POST /tasks/{id}/token":                              `{}`,
	"POST /tasks/{id}/proposals":                          `{"tool_name":"x","tool_args":{}}`,
	"POST /tasks/{id}/dispatches":                         `{"decision_id":"d","tool_name":"x","tool_args":{}}`,
	"POST /tasks/{id}/dispatches/{invocation}/completion": `{"outcome":"failed"}`,
	"POST /tasks/{id}/access":                             `{"kind":"session","issuer":"i","ref":"r"}`,
}

// target fills the ids of a route's path in.
func target(rt api.Route, mission string) string {
	id := mission
	switch {
	case strings.HasPrefix(rt.Path, "/api/v1/sessions/"):
		id = "pty-" + mission
	case strings.HasPrefix(rt.Path, "/api/v1/hitl/"):
		id = "q-" + mission
	case strings.HasPrefix(rt.Path, "/api/v1/plugins/"):
		id = "isolation.docker.container"
	}
	return strings.NewReplacer("{id}", id, "{stop}", "stop-"+mission, "{decision}", "d-"+mission, "{invocation}", "i-"+mission).Replace(rt.Path)
}

func TestEveryRouteIsInTheTable(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	named := map[string]bool{"agents": true}
	for _, rt := range h.Server.Routes() {
		if rt.Needs == 0 {
			t.Errorf("%s %s names no credential", rt.Method, rt.Path)
		}
		named[rt.Method+" "+rt.Path] = true
	}
	for _, rt := range h.Server.WSRoutes() {
		if rt.Needs == 0 {
			t.Errorf("%s names no credential", rt.Path)
		}
		named["WS "+rt.Path] = true
	}
	seen := 0
	for _, m := range []*mux.Router{h.Server.Router(), h.Server.WSRouter()} {
		err := m.Walk(func(r *mux.Route, _ *mux.Router, _ []*mux.Route) error {
			seen++
			if !named[r.GetName()] {
				path, _ := r.GetPathTemplate()
				t.Errorf("route %s is not in the table", path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen != len(named) {
		t.Errorf("walked %d routes, the table has %d", seen, len(named))
	}
}

func TestAuthMatrixOverEveryRoute(t *testing.T) {
	t.Parallel()
	denied := []int{http.StatusUnauthorized, http.StatusTooManyRequests}
	probe := apitest.New(t)
	for _, rt := range probe.Server.Routes() {
		name := rt.Method + " " + rt.Path
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := apitest.New(t)
			h.Mission(t, "m1", "agent-01")
			if err := h.Engine.Ask("m1", "q-m1", "sure?"); err != nil {
				t.Fatal(err)
			}
			do := func(token string) int {
				return call(t, h, token, rt.Method, target(rt, "m1"), bodies[name]).status
			}
			check := func(who, token string, want ...int) {
				t.Helper()
				if got := do(token); !slices.Contains(want, got) {
					t.Errorf("%s: status %d, want %v", who, got, want)
				}
			}
			passes := func(who, token string) {
				t.Helper()
				if got := do(token); got >= 500 || slices.Contains([]int{401, 403, 429}, got) {
					t.Errorf("%s: status %d, want to pass", who, got)
				}
			}
			switch rt.Needs {
			case api.NeedNone, api.NeedExecutor, api.NeedMCP:
				passes("nobody", "")
			case api.NeedCode:
				check("nobody", "", denied...)
				check("an operator without a code", apitest.AliceToken, denied...)
			case api.NeedViewer, api.NeedMetrics:
				check("nobody", "", denied...)
				check("a stranger", strings.Repeat("x", 32), denied...)
				passes("a viewer", apitest.VicToken)
			case api.NeedOperator:
				check("nobody", "", denied...)
				check("a stranger", strings.Repeat("x", 32), denied...)
				check("a viewer", apitest.VicToken, http.StatusForbidden)
				passes("an operator", apitest.AliceToken)
			case api.NeedHost:
				check("nobody", "", denied...)
				check("a stranger", strings.Repeat("x", 32), denied...)
				check("a viewer", apitest.VicToken, http.StatusForbidden)
				check("an operator of some agents", apitest.RobToken, http.StatusForbidden)
				passes("an operator", apitest.AliceToken)
			case api.NeedTask: // T8 is about the right token
				check("nobody", "", denied...)
				check("a stranger", strings.Repeat("x", 32), denied...)
				check("another task", strings.Repeat("0a", 32), http.StatusNotFound)
				check("a viewer", apitest.VicToken, http.StatusForbidden)
				check("an operator", apitest.AliceToken, http.StatusForbidden)
			default:
				t.Errorf("the table has a credential that this test does not know: %d", rt.Needs)
			}
		})
	}
}

// With sandbox_hitl the older link's answers count without a credential: for
// questions of the orchestrator's missions, and for nothing else.
func TestAnswersWithoutACredential(t *testing.T) {
	t.Parallel()
	h := apitest.New(t, func(o *api.Options) { o.OpenAnswers = "orchestrator" })
	h.Mission(t, "m1", "agent-01")
	for id, origin := range map[string]mission.Origin{"wired": mission.OriginOrchestrator, "local": mission.OriginLocal} {
		if _, err := h.Engine.Accept(t.Context(), engine.Dispatch{MissionID: id, Origin: origin, Objective: "x", AgentID: "agent-01"}); err != nil {
			t.Fatal(err)
		}
		if err := h.Engine.Ask(id, "q-"+id, "sure?"); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(token, hitl string, want int) {
		t.Helper()
		call(t, h, token, "POST", "/api/v1/hitl/"+hitl+"/respond", `{"text":"yes"}`).want(t, want)
	}
	answer("", "q-local", http.StatusNotFound)
	answer("", "nothing", http.StatusNotFound)
	answer(strings.Repeat("x", 32), "q-wired", http.StatusUnauthorized)
	answer(apitest.VicToken, "q-wired", http.StatusForbidden)
	answer("", "q-wired", http.StatusNoContent)
	for _, rt := range h.Server.Routes() {
		if rt.Needs == api.NeedViewer || rt.Needs == api.NeedHost || rt.Needs == api.NeedOperator && !rt.Open {
			call(t, h, "", rt.Method, target(rt, "m1"), bodies[rt.Method+" "+rt.Path]).want(t, http.StatusUnauthorized)
		}
	}
}

func TestAnotherOperatorsMissionIsNotFound(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m2", "agent-02")
	if err := h.Engine.Ask("m2", "q-m2", "sure?"); err != nil {
		t.Fatal(err)
	}
	for _, rt := range h.Server.Routes() {
		if !strings.Contains(rt.Path, "{id}") || rt.Needs != api.NeedViewer && rt.Needs != api.NeedOperator {
			continue
		}
		call(t, h, apitest.RobToken, rt.Method, target(rt, "m2"), bodies[rt.Method+" "+rt.Path]).want(t, http.StatusNotFound)
	}
	for path, want := range map[string]string{
		"/api/v1/missions": `{"missions":[],"next":null}`, "/api/v1/hitl": `{"questions":[]}`,
		"/api/v1/missions?agent=agent-02": `{"missions":[],"next":null}`,
	} {
		if got := call(t, h, apitest.RobToken, "GET", path, "").want(t, 200); strings.TrimSpace(got.body) != want {
			t.Errorf("%s = %s", path, got.body)
		}
	}
	if got := call(t, h, apitest.RobToken, "GET", "/api/v1/agents", ""); strings.Contains(got.body, "agent-02") {
		t.Errorf("agents = %s", got.body)
	}
	r := call(t, h, apitest.RobToken, "POST", "/api/v1/missions", `{"objective":"x","agent_id":"agent-02"}`)
	if r.want(t, http.StatusNotFound).object(t)["code"] != "agent_not_connected" {
		t.Errorf("dispatch = %s", r.body)
	}
	// Without an agent it is put at the one that rob may see; an id that is
	// taken by a mission that rob may not see says nothing about it.
	call(t, h, apitest.RobToken, "POST", "/api/v1/missions", `{"objective":"x","mission_id":"mine"}`).want(t, http.StatusAccepted)
	if v, err := h.Engine.Mission(t.Context(), "mine"); err != nil || v.Agent != "agent-01" {
		t.Errorf("mission = %+v, %v", v, err)
	}
	call(t, h, apitest.RobToken, "POST", "/api/v1/missions", `{"objective":"x","mission_id":"m2"}`).want(t, http.StatusConflict)
}

func TestPathsOutsideTheTable(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	for _, path := range []string{"/nothing", "/api/v2/missions", "/api/v1/missions/", "/tasks/x", "//", "/api/v1//missions"} {
		call(t, h, apitest.AliceToken, "GET", path, "").want(t, http.StatusNotFound)
	}
	call(t, h, apitest.AliceToken, "PUT", "/api/v1/missions", `{}`).want(t, http.StatusMethodNotAllowed)
	for _, method := range []string{"GET", "POST"} {
		r := call(t, h, "", method, "/agents/agent-01/v1/messages:send", "")
		if r.status != http.StatusNotFound || strings.Contains(r.header.Get("Content-Type"), "json") {
			t.Errorf("%s /agents/ = %d %s", method, r.status, r.header.Get("Content-Type"))
		}
	}
}
