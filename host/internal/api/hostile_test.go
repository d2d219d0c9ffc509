package api_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

func TestBodiesAreClosed(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	big := strings.Repeat("x", 1<<20)
	tests := []struct {
		name, body string
		status     int
		field      string
	}{
		{"unknown member", `{"objective":"x","priority":1}`, 400, "priority"},
		{"actor", `{"objective":"x","actor":"root"}`, 400, "actor"},
		{"other case", `{"objective":"x","Agent_ID":"a"}`, 400, "Agent_ID"},
		{"duplicate", `{"objective":"x","objective":"y"}`, 400, "objective"},
		{"escaped duplicate", `{"objective":"x","\u006fbjective":"y"}`, 400, "objective"},
		{"nested duplicate", `{"objective":"x","metadata":{"a":[{"b":1,"b":2}]}}`, 400, "metadata.a[0].b"},
		{"wrong type", `{"objective":5}`, 400, "objective"},
		{"wrong type of bool", `{"objective":"x","long_running":"yes"}`, 400, "long_running"},
		{"wrong type of list", `{"objective":"x","capabilities":["a",null]}`, 400, "capabilities"},
		{"metadata not an object", `{"objective":"x","metadata":[]}`, 400, "metadata"},
		{"missing", `{"agent_id":"agent-01"}`, 400, "objective"},
		{"null where required", `{"objective":null}`, 400, "objective"},
		{"empty objective", `{"objective":""}`, 400, "objective"},
		{"long id", `{"objective":"x","mission_id":"` + strings.Repeat("é", 301) + `"}`, 400, "mission_id"},
		{"control character in an id", `{"objective":"x","mission_id":"a\u0000b"}`, 400, "mission_id"},
		{"not an object", `[]`, 400, ""},
		{"a number", `5`, 400, ""},
		{"two values", `{"objective":"x"}{}`, 400, ""},
		{"cut off", `{"objective":"x"`, 400, ""},
		{"not UTF-8", "{\"objective\":\"\xff\"}", 400, ""},
		{"deep", `{"objective":"x","metadata":{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}}`, 400, ""},
		{"too large", `{"objective":"` + big + `"}`, 413, ""},
		{"unknown agent", `{"objective":"x","agent_id":"nobody"}`, 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := call(t, h, apitest.AliceToken, "POST", "/api/v1/missions", tt.body).want(t, tt.status).object(t)
			field, _ := got["field"].(string)
			if field != tt.field || !strings.Contains(got["error"].(string), tt.field) {
				t.Errorf("field %q in %v, want %q", field, got, tt.field)
			}
		})
	}
	t.Cleanup(func() {
		if list, _, _ := h.Engine.Missions(t.Context(), noFilter); len(list) != 0 {
			t.Errorf("refused bodies started %d missions", len(list))
		}
	})
}

func TestContentType(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	for kind, status := range map[string]int{
		"application/json": 202, "application/json; charset=UTF-8": 202, "Application/JSON": 202,
		"text/plain": 415, "application/x-www-form-urlencoded": 415, "application/json; charset=utf-16": 415,
		"": 415, "application/jsonx": 415, ";": 415,
	} {
		call(t, h, apitest.AliceToken, "POST", "/api/v1/missions", `{"objective":"x"}`, "Content-Type: "+kind).want(t, status)
	}
}

func TestForeignOriginAndHostAreRefused(t *testing.T) {
	t.Parallel()
	h := apitest.New(t, func(o *api.Options) { o.Hosts = []string{"box.example"} })
	u, _ := url.Parse(h.REST)
	tests := []struct {
		header string
		status int
	}{
		{"Origin: http://evil.example", 403},
		{"Origin: null", 403},
		{"Origin: https://" + u.Host + ".evil.example", 403},
		{"Origin: http://127.0.0.1:1", 403},
		{"Origin: " + h.REST, 200},
		{"Origin: http://localhost:" + u.Port(), 200},
		{"Host: evil.example", 403},
		{"Host: 127.0.0.1.evil.example", 403},
		{"Host: 10.0.0.1", 403},
		{"Host: 169.254.169.254", 403},
		{"Host: localhost:" + u.Port(), 200},
		{"Host: [::1]:8122", 200},
		{"Host: LOCALHOST.", 200},
		{"Host: box.example:8122", 200},
		{"Sec-Fetch-Site: cross-site", 403},
		{"Sec-Fetch-Site: same-origin", 200},
	}
	for _, tt := range tests {
		for _, path := range []string{"/api/v1/missions", "/livez"} {
			r := call(t, h, apitest.AliceToken, "GET", path, "", tt.header).want(t, tt.status)
			for name := range r.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: there is CORS: %s", tt.header, name)
				}
			}
		}
	}
	call(t, h, "", "POST", "/dispatch", `{}`, "Origin: http://evil.example").want(t, 403)
	if h.Dispatched.Load() != 0 {
		t.Error("a cross-origin dispatch got through")
	}
	call(t, h, "", "OPTIONS", "/api/v1/missions", "", "Origin: "+h.REST, "Access-Control-Request-Method: POST").want(t, http.StatusMethodNotAllowed)
}

func TestTokenInTheURLIsRefused(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	for _, q := range []string{"token", "access_token"} {
		call(t, h, "", "GET", "/api/v1/missions?"+q+"="+apitest.AliceToken, "").want(t, 400)
	}
	if strings.Contains(h.Logs.String(), apitest.AliceToken) {
		t.Error("the token is in the log")
	}
}

func TestIDsOfAnyKind(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	ids := []string{
		"a/../b", ".", "..", "/", "//x//", strings.Repeat("😀", 300), "a%2Fb", "a b?c#d;e=f&g", "%", `"quoted"`, "日本語/ミッション", "pause", "-rf",
	}
	encode := func(id string) string {
		if strings.Trim(id, ".") == "" {
			return strings.ReplaceAll(id, ".", "%2E")
		}
		return url.PathEscape(id)
	}
	for _, id := range ids {
		body := fmt.Sprintf(`{"objective":"x","mission_id":%q}`, id)
		if got := call(t, h, apitest.AliceToken, "POST", "/api/v1/missions", body).want(t, 202).object(t); got["mission_id"] != id {
			t.Fatalf("dispatched %q, got %v", id, got)
		}
		p := encode(id)
		if got := call(t, h, apitest.AliceToken, "GET", "/api/v1/missions/"+p, "").want(t, 200).object(t); got["mission_id"] != id {
			t.Errorf("mission %q = %v", id, got)
		}
		if got := call(t, h, apitest.AliceToken, "GET", "/tasks/"+p+"/status", "").want(t, 200).object(t); got["task_id"] != id {
			t.Errorf("status of %q = %v", id, got)
		}
		if got := call(t, h, apitest.AliceToken, "POST", "/api/v1/missions/"+p+"/pause", "").want(t, 200).object(t); got["state"] != "paused" || got["mission_id"] != id {
			t.Errorf("pause of %q = %v", id, got)
		}
		call(t, h, apitest.AliceToken, "GET", "/api/v1/sessions/"+encode("pty-"+id)+"/log", "").want(t, 200)
	}
	// A dot that was not encoded names the same mission: there is no cleaning.
	if got := raw(t, h, "GET /api/v1/missions/.. HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+apitest.AliceToken+"\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("unencoded dots: %s", got)
	}
	call(t, h, apitest.AliceToken, "GET", "/api/v1/missions/a%2F..%2Fc", "").want(t, 404)
}

// raw sends bytes and gives the status line.
func raw(t *testing.T, h *apitest.Host, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(h.REST, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	return line
}

func TestDoubleSlashDispatchIsServedNotRedirected(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	for i, path := range []string{"//dispatch", "/dispatch", "/api/v1/sessions/a%2Fb/dispatch"} {
		got := raw(t, h, "POST "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}")
		if !strings.HasPrefix(got, "HTTP/1.1 202") || h.Dispatched.Load() != int64(i+1) {
			t.Errorf("%s: %s, %d reached the executor", path, got, h.Dispatched.Load())
		}
	}
}

func TestSlowBodyIsGivenUp(t *testing.T) {
	t.Parallel()
	h := apitest.New(t, func(o *api.Options) { o.BodyTimeout = 100 * time.Millisecond })
	got := raw(t, h, "POST /api/v1/missions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\nContent-Type: application/json\r\nAuthorization: Bearer "+apitest.AliceToken+"\r\n\r\n{")
	if !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("a body that never came: %s", got)
	}
	got = raw(t, h, "POST /api/v1/missions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
	if !strings.HasPrefix(got, "HTTP/1.1 401") {
		t.Errorf("a body that never came, without a credential: %s", got)
	}
}

func TestPanicIsAnAnswerWithoutItsStack(t *testing.T) {
	t.Parallel()
	h := apitest.New(t, func(o *api.Options) {
		o.Ready = func() api.Readiness { panic("secret detail") }
	})
	r := call(t, h, "", "GET", "/readyz", "").want(t, 500)
	if strings.Contains(r.body, "secret") || strings.Contains(r.body, "goroutine") {
		t.Errorf("the answer gives it away: %s", r.body)
	}
	if !strings.Contains(h.Logs.String(), "secret detail") {
		t.Error("the log does not tell of it")
	}
	call(t, h, "", "GET", "/livez", "").want(t, 200)
}

func TestWrongCredentialsAreSlowedDownAndNobodyIsLockedOut(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	last := 0
	for i := range 30 {
		r := call(t, h, fmt.Sprintf("%032d", i), "GET", "/api/v1/missions", "")
		if r.status != 401 && r.status != 429 {
			t.Fatalf("status %d", r.status)
		}
		if last = r.status; last == 429 && r.header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}
	if last != 429 {
		t.Errorf("after 30 wrong tokens: %d", last)
	}
	call(t, h, apitest.AliceToken, "GET", "/api/v1/missions", "").want(t, 200)
	for _, header := range []string{
		"Authorization: " + apitest.AliceToken, "Authorization: Basic " + apitest.AliceToken, "Authorization: Bearer",
		"Authorization: Bearer " + apitest.AliceToken + "x", "Authorization: Bearer " + apitest.AliceToken[1:],
	} {
		if got := call(t, h, "", "GET", "/api/v1/missions", "", header).status; got != 429 && got != 401 {
			t.Errorf("%s: %d", header, got)
		}
	}
}
