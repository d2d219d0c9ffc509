package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/store"
)

var noFilter = store.MissionFilter{Limit: 100}

func TestDispatchAndLists(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	for i := range 5 {
		call(t, h, apitest.AliceToken, "POST", "/api/v1/missions", fmt.Sprintf(`{"objective":"x","mission_id":"m%d","agent_id":"agent-0%d"}`, i, 1+i%2)).want(t, 202)
	}
	again := call(t, h, apitest.AliceToken, "POST", "/api/v1/missions", `{"agent_id":"agent-01","mission_id":"m0","objective":"x","completion":null}`).want(t, 202).object(t)
	if again["duplicate"] != true || again["differs"] != false {
		t.Errorf("the same again = %v", again)
	}
	other := call(t, h, apitest.AliceToken, "POST", "/api/v1/missions", `{"mission_id":"m0","objective":"y"}`).want(t, 202).object(t)
	if other["differs"] != true {
		t.Errorf("another payload = %v", other)
	}
	if err := h.Engine.End("m0", 0); err != nil {
		t.Fatal(err)
	}
	call(t, h, apitest.AliceToken, "POST", "/api/v1/missions", `{"mission_id":"m0","objective":"y"}`).want(t, 409)

	var ids []string
	for cursor := ""; ; {
		page := call(t, h, apitest.VicToken, "GET", "/api/v1/missions?limit=2&cursor="+cursor, "").want(t, 200).object(t)
		for _, m := range page["missions"].([]any) {
			ids = append(ids, m.(map[string]any)["mission_id"].(string))
		}
		next, more := page["next"].(string)
		if !more {
			break
		}
		cursor = next
	}
	if got := strings.Join(ids, " "); got != "m4 m3 m2 m1 m0" {
		t.Errorf("pages = %s", got)
	}
	for query, want := range map[string]int{
		"state=done": 1, "state=running": 4, "state=done,running": 5, "state=failed": 0, "agent=agent-02": 2, "live=1": 4, "live=1&agent=agent-01": 2,
	} {
		page := call(t, h, apitest.VicToken, "GET", "/api/v1/missions?"+query, "").want(t, 200).object(t)
		if got := len(page["missions"].([]any)); got != want {
			t.Errorf("%s: %d missions, want %d", query, got, want)
		}
	}
	// rob sees three of five, two at a time.
	page := call(t, h, apitest.RobToken, "GET", "/api/v1/missions?limit=2", "").want(t, 200).object(t)
	if len(page["missions"].([]any)) != 2 || page["next"] == nil {
		t.Errorf("rob's page = %v", page)
	}
	for query, field := range map[string]string{"state=idle": "state", "limit=0": "limit", "limit=x": "limit", "live=maybe": "live"} {
		if got := call(t, h, apitest.VicToken, "GET", "/api/v1/missions?"+query, "").want(t, 400).object(t); got["field"] != field {
			t.Errorf("%s: %v", query, got)
		}
	}
}

func TestVerbsRecordTheOperatorAndNobodyElse(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	call(t, h, apitest.AliceToken, "POST", "/api/v1/missions/m1/pause", `{"reason":"lunch","actor":"root"}`).want(t, 400)
	got := call(t, h, apitest.AliceToken, "POST", "/api/v1/missions/m1/pause", `{"reason":"lunch"}`).want(t, 200).object(t)
	if got["state"] != "paused" {
		t.Errorf("pause = %v", got)
	}
	call(t, h, apitest.RobToken, "POST", "/api/v1/missions/m1/resume", "").want(t, 200)
	call(t, h, apitest.RobToken, "POST", "/api/v1/missions/m1/resume", "").want(t, 409)
	call(t, h, apitest.AliceToken, "POST", "/api/v1/missions/m1/abort", "{}").want(t, 200)
	call(t, h, apitest.AliceToken, "POST", "/api/v1/missions/m1/pause", "").want(t, 409)
	events := call(t, h, apitest.VicToken, "GET", "/tasks/m1/events", "").want(t, 200).body
	for _, want := range []string{`"actor":"alice","reason":"lunch"`, `"actor":"rob"`, `"by":"operator"`} {
		if !strings.Contains(events, want) {
			t.Errorf("%s is not in %s", want, events)
		}
	}
	if strings.Contains(events, "root") {
		t.Errorf("the body's actor is in the journal: %s", events)
	}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	if err := h.Engine.Ask("m1", "q/1", "go on? (y/n)"); err != nil {
		t.Fatal(err)
	}
	if got := call(t, h, apitest.VicToken, "GET", "/api/v1/hitl", "").want(t, 200); !strings.Contains(got.body, `"hitl_id":"q/1"`) {
		t.Errorf("questions = %s", got.body)
	}
	if got := call(t, h, apitest.AliceToken, "POST", "/api/v1/hitl/q%2F1/respond", `{"response":"y"}`).want(t, 400).object(t); got["field"] != "text" {
		t.Errorf("wrong member = %v", got)
	}
	call(t, h, apitest.AliceToken, "POST", "/api/v1/hitl/nothing/respond", `{"text":"y"}`).want(t, 404)
	if r := call(t, h, apitest.AliceToken, "POST", "/api/v1/hitl/q%2F1/respond", `{"text":"y"}`); r.status != 204 || r.body != "" {
		t.Errorf("answer = %d %q", r.status, r.body)
	}
	call(t, h, apitest.AliceToken, "POST", "/api/v1/hitl/q%2F1/respond", `{"text":"n"}`).want(t, 409)
	if got := h.Engine.Live("m1").Typed(); got != "y\n" {
		t.Errorf("typed %q", got)
	}
}

func TestEngineErrorsBecomeAnswers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err    error
		status int
		code   any
	}{
		"store down":  {fmt.Errorf("%w: disk full", engine.ErrUnavailable), 503, nil},
		"queue full":  {&engine.Refusal{Kind: engine.RefusedQueueFull, Detail: "the queue is full"}, 503, "queue_full"},
		"no agent":    {&engine.Refusal{Kind: engine.RefusedNoAgent, Detail: "no agent"}, 503, "no_agent"},
		"unhealthy":   {&engine.Refusal{Kind: engine.RefusedUnhealthyAgent, Detail: "its revoker"}, 503, "agent_unhealthy"},
		"drains":      {&engine.Refusal{Kind: engine.RefusedUnavailable, Detail: "drains"}, 503, "unavailable"},
		"invalid":     {&engine.Refusal{Kind: engine.RefusedInvalid, Detail: "bad"}, 400, "invalid"},
		"unexpected":  {errors.New("secret internals"), 500, nil},
		"not found":   {engine.ErrNotFound, 404, nil},
		"stale":       {fmt.Errorf("%w: stale", engine.ErrConflict), 409, nil},
		"without end": {fmt.Errorf("call: %w", http.ErrHandlerTimeout), 500, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := apitest.New(t)
			h.Engine.Fail = tt.err
			got := call(t, h, apitest.AliceToken, "POST", "/api/v1/missions", `{"objective":"x"}`).want(t, tt.status)
			if got.object(t)["code"] != tt.code || strings.Contains(got.body, "secret") {
				t.Errorf("answer = %s", got.body)
			}
		})
	}
}

func TestHostRoutes(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	ready := call(t, h, "", "GET", "/readyz", "").want(t, 200)
	if !strings.Contains(ready.body, "docker is not reachable") {
		t.Errorf("readyz = %s", ready.body)
	}
	down := apitest.New(t, func(o *api.Options) {
		o.Ready = func() api.Readiness { return api.Readiness{Ready: true, Store: "fsync failed"} }
		o.MetricsOpen = true
	})
	r := call(t, down, "", "GET", "/readyz", "")
	if r.status != 503 || !strings.Contains(r.body, "fsync failed") || strings.Contains(r.body, `"ready":true`) {
		t.Errorf("readyz of a broken store = %d %s", r.status, r.body)
	}
	call(t, down, "", "GET", "/livez", "").want(t, 200)
	if m := call(t, down, "", "GET", "/metrics", "").want(t, 200); !strings.Contains(m.body, `airlock_api_requests_total{route="GET /readyz",status="503"} 1`) {
		t.Errorf("metrics = %s", m.body)
	}
	if r := call(t, h, apitest.AliceToken, "POST", "/api/v1/plugins/isolation.docker.container/reload", ""); r.status != 204 || h.Plugins.Reloaded.Load() != 1 {
		t.Errorf("reload = %d", r.status)
	}
	call(t, h, apitest.AliceToken, "POST", "/api/v1/plugins/nothing/reload", "").want(t, 404)
	call(t, h, apitest.AliceToken, "POST", "/api/v1/drain", `{"deadline":"soon"}`).want(t, 400)
	if r := call(t, h, apitest.AliceToken, "POST", "/api/v1/drain", `{"deadline":"1m"}`); r.status != 204 {
		t.Errorf("drain = %d", r.status)
	}
	bad := apitest.New(t, func(o *api.Options) { o.Drain, o.Reload, o.Metrics = nil, nil, nil })
	call(t, bad, apitest.AliceToken, "POST", "/api/v1/reload", "").want(t, 422)
	call(t, bad, apitest.AliceToken, "POST", "/api/v1/drain", "").want(t, 422)
	call(t, bad, apitest.AliceToken, "GET", "/metrics", "").want(t, 404)
}
