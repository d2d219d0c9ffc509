package executor_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

func TestDispatchChecksInTheRuledOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.dispatch("known")
	token := w.token()
	good := string(body("m"))
	refuse := func(kind engine.RefusalKind) error {
		return &engine.Refusal{Kind: kind, Agent: "agent-99", Detail: "the detail"}
	}
	named := `{"mission_id":"m","objective":"x","executor_filter":{"agent_id":"agent-99"}}`
	for _, c := range []struct {
		name, path, kind, token, body string
		refuse                        error
		status                        int
		problem                       string
	}{
		{"no token", "/dispatch", "application/json", "", good, nil, 401, "unauthorized"},
		{"wrong token of the right length", "/dispatch", "application/json", strings.Repeat("x", len(token)), good, nil, 401, "unauthorized"},
		{"token and more", "/dispatch", "application/json", token + "x", good, nil, 401, "unauthorized"},
		{"401 before 400", "/dispatch", "application/json", "x", "{", nil, 401, "unauthorized"},
		{"401 before 415", "/dispatch", "text/plain", "x", good, nil, 401, "unauthorized"},
		{"another type", "/dispatch", "text/plain", token, good, nil, 415, "unsupported-media-type"},
		{"no type", "/dispatch", "", token, good, nil, 415, "unsupported-media-type"},
		{"too large", "/dispatch", "application/json", token, `{"mission_id":"m","objective":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 413, "payload-too-large"},
		{"not JSON", "/dispatch", "application/json", token, "{", nil, 400, "invalid-dispatch"},
		{"400 before 503", "/dispatch", "application/json", token, `{"mission_id":7,"objective":"x"}`, refuse(engine.RefusedNoAgent), 400, "invalid-dispatch"},
		{"known before 503", "/dispatch", "application/json", token, string(body("known")), refuse(engine.RefusedNoAgent), 202, ""},
		{"unknown agent", "/dispatch", "application/json", token, named, refuse(engine.RefusedUnknownAgent), 404, "agent-not-connected"},
		{"unhealthy agent", "/dispatch", "application/json", token, named, refuse(engine.RefusedUnhealthyAgent), 404, "agent-not-connected"},
		{"no agent", "/dispatch", "application/json", token, good, refuse(engine.RefusedNoAgent), 503, "executor-unavailable"},
		{"queue full", "/dispatch", "application/json", token, good, refuse(engine.RefusedQueueFull), 503, "executor-unavailable"},
		{"store down", "/dispatch", "application/json", token, good, fmt.Errorf("commit: %w", engine.ErrUnavailable), 503, "executor-unavailable"},
		{"bug", "/dispatch", "application/json", token, good, fmt.Errorf("boom"), 500, "dispatch-failure"},
		{"accepted, with a charset", "/dispatch", "application/json; charset=utf-8", token, good, nil, 202, ""},
		{"two slashes", "//dispatch", "application/json", token, string(body("m2")), nil, 202, ""},
		{"sessions path", "/api/v1/sessions/a%2Fb/dispatch", "application/json", token, string(body("m3")), nil, 202, ""},
		{"sessions path without a token", "/api/v1/sessions/s/dispatch", "application/json", "", good, nil, 401, "unauthorized"},
		{"agents", "/agents/x/v1/messages:send", "application/json", token, good, nil, 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.eng.set(func() { w.eng.refuse = c.refuse })
			status, got, header := w.post(c.path, c.kind, c.token, c.body)
			if status != c.status {
				t.Fatalf("%d %v", status, got)
			}
			if c.problem != "" {
				if header.Get("Content-Type") != "application/problem+json" || got["type"] != "https://aiwg.io/problems/"+c.problem || got["status"] != float64(c.status) {
					t.Errorf("problem %v", got)
				}
				if s, _ := got["error"].(string); s == "" {
					t.Errorf("no error string in %v", got)
				}
				if strings.Contains(fmt.Sprint(got), token) {
					t.Error("the token is in the body")
				}
			}
			if c.status == 202 && (got["executor_id"] != executorID || got["status"] != "assigned" || got["mission_id"] == "" || got["estimated_start"] == "") {
				t.Errorf("answer %v", got)
			}
			if c.status == 404 && c.problem != "" && got["agent_id"] != "agent-99" {
				t.Errorf("the agent is not named: %v", got)
			}
		})
	}
	w.eng.do("m3", func(m *fakeMission) {
		if m.SessionID != "a/b" {
			t.Errorf("session id %q", m.SessionID)
		}
	})
}

func TestTheFieldIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	for text, field := range map[string]string{
		`{"objective":"x"}`:                                                             "mission_id",
		`{"mission_id":null,"objective":"x"}`:                                           "mission_id",
		`{"mission_id":"","objective":"x"}`:                                             "mission_id",
		`{"mission_id":"` + strings.Repeat("é", 301) + `","objective":"x"}`:             "mission_id",
		`{"mission_id":7,"objective":"x"}`:                                              "mission_id",
		`{"mission_id":"m"}`:                                                            "objective",
		`{"mission_id":"m","objective":["x"]}`:                                          "objective",
		`{"mission_id":"m","objective":"x","completion":1}`:                             "completion",
		`{"mission_id":"m","objective":"x","long_running":"yes"}`:                       "long_running",
		`{"mission_id":"m","objective":"x","metadata":[]}`:                              "metadata",
		`{"mission_id":"m","objective":"x","executor_filter":"a"}`:                      "executor_filter",
		`{"mission_id":"m","objective":"x","executor_filter":{"agent_id":1}}`:           "executor_filter.agent_id",
		`{"mission_id":"m","objective":"x","executor_filter":{"capabilities":["a",2]}}`: "executor_filter.capabilities",
		`{"mission_id":"m","objective":"x","executor_filter":{"capabilities":[null]}}`:  "executor_filter.capabilities",
		`{"mission_id":"m","mission_id":"n","objective":"x"}`:                           "mission_id",
		`{"mission_id":"m","objective":"x","metadata":{"a":{"b":1,"b":1}}}`:             "metadata.a.b",
	} {
		status, got, _ := w.post("/dispatch", "application/json", w.token(), text)
		if status != 400 || got["field"] != field {
			t.Errorf("%.80s: %d %v", text, status, got)
		}
	}
	for _, text := range []string{`[]`, `null`, `"x"`, `{"mission_id":"\ud800","objective":"x"}`, "{\"mission_id\":\"\xff\",\"objective\":\"x\"}", strings.Repeat(`{"metadata":`, 300) + "1" + strings.Repeat("}", 300), `{"mission_id":"m","objective":"x"} {}`} {
		if status, got, _ := w.post("/dispatch", "application/json", w.token(), text); status != 400 {
			t.Errorf("%.60s: %d %v", text, status, got)
		}
	}
	w.eng.set(func() {
		if len(w.eng.missions) != 0 {
			t.Errorf("missions were made: %v", w.eng.order)
		}
	})
}

// A caller that never sends its body holds nothing but its own connection.
func TestAMalformedOrMissingBearerIsRefusedBeforeTheBodyIsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.rest.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /dispatch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Basic eDp5\r\nContent-Length: 1000\r\n\r\n")
	buf := make([]byte, 12)
	if _, err := c.Read(buf); err != nil || string(buf) != "HTTP/1.1 401" {
		t.Fatalf("%q %v", buf, err)
	}
}

func TestOtherMethodsDispatchNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		req, _ := http.NewRequest(method, w.rest.URL+"/dispatch", nil)
		req.Header.Set("Authorization", "Bearer "+w.token())
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 405 {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
}
