package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

func TestAPlanIsReadAndStartsNothing(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	got := call(t, h, apitest.VicToken, "POST", "/api/v1/missions/plan", `{"objective":"x"}`).want(t, http.StatusOK).object(t)
	if got["would"] != "start" || got["agent"] != "agent-01" || got["refusal"] != nil {
		t.Errorf("plan %v", got)
	}
	got = call(t, h, apitest.AliceToken, "POST", "/api/v1/missions/plan", `{"objective":"x","agent_id":"none"}`).want(t, http.StatusOK).object(t)
	refusal, _ := got["refusal"].(map[string]any)
	if got["would"] != "refuse" || refusal["status"] != 404.0 || refusal["code"] != "agent_not_connected" {
		t.Errorf("refused plan %v", got)
	}
	// An operator of some agents hears of no others.
	r := call(t, h, apitest.RobToken, "POST", "/api/v1/missions/plan", `{"objective":"x"}`).want(t, http.StatusOK)
	if strings.Contains(r.body, "agent-02") {
		t.Errorf("rob's plan %s", r.body)
	}
	call(t, h, apitest.RobToken, "POST", "/api/v1/missions/plan", `{"objective":"x","agent_id":"agent-02"}`).want(t, http.StatusNotFound)
	for body, status := range map[string]int{`{}`: 400, `{"objective":"x","objetive":1}`: 400, `{"objective":""}`: 400} {
		call(t, h, apitest.AliceToken, "POST", "/api/v1/missions/plan", body).want(t, status)
	}
	if list, _, _ := h.Engine.Missions(t.Context(), noFilter); len(list) != 0 {
		t.Errorf("plans started %d missions", len(list))
	}
}
