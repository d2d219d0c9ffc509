package messages

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// post posts a body with the good key.
func post(t *testing.T, s *Server, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(text) + "…" + err.Error()
	}
	return resp.StatusCode, string(text)
}

func body(stream bool, messages ...string) string {
	return fmt.Sprintf(`{"model":"m","max_tokens":1000,"stream":%t,"messages":[%s]}`, stream, strings.Join(messages, ","))
}

func user(text string) string {
	raw, _ := json.Marshal(map[string]string{"role": "user", "content": text})
	return string(raw)
}

func TestAStreamHasTheAPIsEventsInTheirOrder(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", Options{})
	code, text := post(t, s, "/v1/messages", body(true, user("usage 10 20 30 40\nthink deep\nsay hello there\nbash ls -l")))
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	var kinds []string
	said := map[string]string{}
	for event := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		kind, data, _ := strings.Cut(event, "\n")
		var e struct {
			Type    string
			Index   int
			Message struct {
				ID, Role string
				Content  []any
				Usage    Usage
			}
			Block struct{ Type, ID, Name string } `json:"content_block"`
			Delta struct {
				Type, Text, Thinking string
				JSON                 string `json:"partial_json"`
				Stop                 string `json:"stop_reason"`
			}
			Usage Usage
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &e); err != nil || "event: "+e.Type != kind {
			t.Fatalf("%v in %s", err, event)
		}
		if n := len(kinds); n == 0 || kinds[n-1] != e.Type {
			kinds = append(kinds, e.Type)
		}
		said[e.Delta.Type] += e.Delta.Text + e.Delta.Thinking + e.Delta.JSON
		switch e.Type {
		case "message_start":
			if m := e.Message; m.Role != "assistant" || !strings.HasPrefix(m.ID, "msg_") || m.Usage != (Usage{Input: 10, Output: 1, CacheRead: 30, CacheWrite: 40}) || m.Content == nil {
				t.Errorf("%+v", m)
			}
		case "message_delta":
			if e.Delta.Stop != "tool_use" || e.Usage.Output != 20 {
				t.Errorf("%s", data)
			}
		case "content_block_start":
			said[e.Block.Type] += e.Block.Name
		}
	}
	block := "content_block_start,content_block_delta,content_block_stop,"
	want := "message_start,content_block_start,ping,content_block_delta,content_block_stop," + block + block + "message_delta,message_stop"
	if got := strings.Join(kinds, ","); got != want {
		t.Errorf("events %s", got)
	}
	if said["thinking_delta"] != "deep" || said["text_delta"] != "hello there" || said["tool_use"] != "Bash" || !strings.Contains(said["input_json_delta"], `"command":"ls -l"`) {
		t.Errorf("%q", said)
	}
}

func TestWhatTheAPIRefusesIsRefusedInItsShape(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", Options{})
	call := `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_x_1","name":"Bash","input":{}}]}`
	for name, c := range map[string]struct {
		path, body, kind, text string
		code                   int
	}{
		"no such path":         {"/v1/models/x", "{}", "not_found_error", "Not found", 404},
		"no JSON":              {"/v1/messages", "{", "invalid_request_error", "no request", 400},
		"no model":             {"/v1/messages", `{"max_tokens":1,"messages":[]}`, "invalid_request_error", "model", 400},
		"no max_tokens":        {"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, "invalid_request_error", "max_tokens", 400},
		"no messages":          {"/v1/messages", body(false), "invalid_request_error", "at least one", 400},
		"another role":         {"/v1/messages", body(false, `{"role":"tool","content":"x"}`), "invalid_request_error", "messages.0.role", 400},
		"a call left open":     {"/v1/messages", body(false, user("x"), call, user("y")), "invalid_request_error", "toolu_x_1", 400},
		"a result of nothing":  {"/v1/messages", body(false, `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_y"}]}`), "invalid_request_error", "toolu_y", 400},
		"a scripted overload":  {"/v1/messages", body(false, user("overload")), "overloaded_error", "Overloaded", 529},
		"a scripted 403":       {"/v1/messages", body(true, user("error 403")), "permission_error", "403", 403},
		"a scripted rate":      {"/v1/messages", body(true, user("error 429")), "rate_limit_error", "429", 429},
		"a scripted 502":       {"/v1/messages", body(true, user("error 502")), "api_error", "502", 502},
		"counting needs model": {"/v1/messages/count_tokens", `{"messages":[]}`, "invalid_request_error", "model", 400},
	} {
		code, text := post(t, s, c.path, c.body)
		var e struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil || code != c.code || e.Type != "error" || e.Error.Type != c.kind || !strings.Contains(e.Error.Message, c.text) {
			t.Errorf("%s: %d %s %v", name, code, text, err)
		}
	}
	resp, err := http.Post(s.URL+"/v1/messages", "application/json", strings.NewReader(body(false, user("say x"))))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %d", resp.StatusCode)
	}
}

func TestTheConversationSaysHowFarTheScriptHasCome(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", Options{})
	result := func(id string) string {
		return fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":[{"type":"text","text":"out of %s"}]}]}`, id, id)
	}
	call := func(id string) string {
		return fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":"first"},{"type":"tool_use","id":%q,"name":"Bash","input":{}}]}`, id)
	}
	says := func(text string) string { return strings.Replace(user(text), `"user"`, `"assistant"`, 1) }
	script := user("say first\nbash one\nbash two\nreport")
	for name, c := range map[string]struct {
		messages []string
		want     string
	}{
		"at the beginning":         {[]string{script}, `"command":"one"`},
		"after a call":             {[]string{script, call("toolu_a_2"), result("toolu_a_2")}, `"command":"two"`},
		"at the end":               {[]string{script, call("toolu_a_2"), result("toolu_a_2"), call("toolu_b_3"), result("toolu_b_3")}, `"text":"out of toolu_b_3"`},
		"with a system message":    {[]string{script, `{"role":"system","content":"say no"}`, call("toolu_a_3"), result("toolu_a_3")}, `"text":"out of toolu_a_3"`},
		"a second script":          {[]string{user("say a"), says("a"), user("say b")}, `"text":"b"`},
		"a cut answer comes again": {[]string{script, says("fir"), user("go on")}, `"command":"one"`},
		"after another stop":       {[]string{user("stop max_tokens a\nsay b"), says("a"), user("resume")}, `"text":"b"`},
		"reminders do not count":   {[]string{user("<system-reminder>\nsay no\n</system-reminder>\nsay yes")}, `"text":"yes"`},
		"a wrong step says so":     {[]string{user("ask Which?|one")}, `two options or more`},
		"cut to max_tokens":        {[]string{user("say " + strings.Repeat("x", 8000))}, `"stop_reason":"max_tokens"`},
	} {
		code, text := post(t, s, "/v1/messages", body(false, c.messages...))
		if code != http.StatusOK || !strings.Contains(text, c.want) && !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), c.want) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
}

func TestAFaultIsGivenAsOftenAsItSays(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", Options{})
	script := body(true, user("break 1\nfail 1\nerror 500 1\nsay whole"))
	for i, want := range []string{"…", "event: error", "500", "event: message_stop"} {
		if _, text := post(t, s, "/v1/messages", script); !strings.Contains(text, want) {
			t.Errorf("%d: %s", i, text)
		}
	}
	if code, text := post(t, s, "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"break"}]}`); code != 200 || !strings.Contains(text, "input_tokens") {
		t.Errorf("%d %s", code, text)
	}
	var cuts []string
	for _, q := range s.Requests() {
		cuts = append(cuts, fmt.Sprint(q.Status, q.Cut))
	}
	if got := strings.Join(cuts, " "); got != "200break 200fail 500 200 200" {
		t.Errorf("log %s", got)
	}
}

func TestItListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	if s, err := Serve("0.0.0.0:0", Options{}); err == nil {
		s.Close()
		t.Error("it listens for everybody")
	}
}
