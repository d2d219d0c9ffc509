package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/journal"
)

func TestACodeOpensOneSession(t *testing.T) {
	t.Parallel()
	var skew atomic.Int64
	h := apitest.New(t, func(o *api.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	})
	made := call(t, h, apitest.VicToken, "POST", "/api/v1/ui/codes", `{}`).want(t, 201).object(t)
	code := made["code"].(string)
	if made["url"] != h.REST+"/#code="+code || len(code) != 64 {
		t.Errorf("made %v", made)
	}
	// In a query nobody takes it.
	call(t, h, "", "POST", "/api/v1/ui/session?code="+code, `{}`).want(t, 400)
	got := call(t, h, "", "POST", "/api/v1/ui/session", `{"code":"`+code+`"}`).want(t, 201).object(t)
	token := got["token"].(string)
	me := call(t, h, token, "GET", "/api/v1/whoami", "").want(t, 200).object(t)
	if me["operator"] != "vic" || me["role"] != "viewer" || me["session"] != true {
		t.Errorf("whoami %v", me)
	}
	// It is the operator's: no more, and it makes no other sessions.
	h.Mission(t, "m1", "agent-01")
	call(t, h, token, "POST", "/tasks/m1/control", `{"action":"pause"}`).want(t, 403)
	call(t, h, token, "POST", "/api/v1/ui/codes", `{}`).want(t, 403)
	// The code is used up.
	call(t, h, "", "POST", "/api/v1/ui/session", `{"code":"`+code+`"}`).want(t, 401)
	// Signed out, it is over; the operator's own token is not.
	call(t, h, token, "DELETE", "/api/v1/ui/session", "").want(t, 204)
	call(t, h, token, "GET", "/api/v1/whoami", "").want(t, 401)
	call(t, h, apitest.VicToken, "DELETE", "/api/v1/ui/session", "").want(t, 204)
	call(t, h, apitest.VicToken, "GET", "/api/v1/whoami", "").want(t, 200)

	// A code is good for a minute, a session for twelve hours.
	code = call(t, h, apitest.AliceToken, "POST", "/api/v1/ui/codes", `{}`).want(t, 201).object(t)["code"].(string)
	late := call(t, h, apitest.AliceToken, "POST", "/api/v1/ui/codes", `{}`).want(t, 201).object(t)["code"].(string)
	token = call(t, h, "", "POST", "/api/v1/ui/session", `{"code":"`+code+`"}`).want(t, 201).object(t)["token"].(string)
	skew.Store(int64(61 * time.Second))
	call(t, h, "", "POST", "/api/v1/ui/session", `{"code":"`+late+`"}`).want(t, 401)
	call(t, h, token, "GET", "/api/v1/whoami", "").want(t, 200)
	skew.Store(int64(13 * time.Hour))
	call(t, h, token, "GET", "/api/v1/whoami", "").want(t, 401)
	// No token or code is in the log.
	if text := h.Logs.String(); strings.Contains(text, code) || strings.Contains(text, token) {
		t.Error("a secret is in the log")
	}
}

func TestASessionEndsWithItsOperator(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	code := call(t, h, apitest.AliceToken, "POST", "/api/v1/ui/codes", `{}`).want(t, 201).object(t)["code"].(string)
	token := call(t, h, "", "POST", "/api/v1/ui/session", `{"code":"`+code+`"}`).want(t, 201).object(t)["token"].(string)
	call(t, h, token, "GET", "/api/v1/missions", "").want(t, 200)
	none, err := api.LoadOperators(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Server.SetOperators(none)
	call(t, h, token, "GET", "/api/v1/missions", "").want(t, 401)
}

// follow reads events of a stream until the test says that it has seen enough.
func follow(t *testing.T, h *apitest.Host, token, path string, take func(name string, data map[string]any) (enough bool), opened func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.REST+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	name := ""
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		line := in.Text()
		if opened != nil {
			opened()
			opened = nil
		}
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
		text, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var data map[string]any
		if err := json.Unmarshal([]byte(text), &data); err != nil {
			t.Fatal(err)
		}
		if take(name, data) {
			return
		}
	}
	t.Fatal("the stream ended before everything was there")
}

func TestMissionsComeAsTheyChange(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "old", "agent-01")
	seen := map[string]string{}
	follow(t, h, apitest.RobToken, "/api/v1/missions", func(name string, m map[string]any) bool {
		if name != "mission" || m["agent"] != "agent-01" || m["mission_id"] == "old" {
			t.Errorf("%s %v", name, m)
		}
		seen[m["mission_id"].(string)] = m["state"].(string)
		return seen["mine"] == "paused"
	}, func() {
		h.Mission(t, "theirs", "agent-02")
		h.Mission(t, "mine", "agent-01")
		call(t, h, apitest.AliceToken, "POST", "/api/v1/missions/mine/pause", `{}`).want(t, 200)
	})
}

func TestTheScreenOfASession(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	live := h.Engine.Live("m1")
	if err := live.Print("\x1b[31mred\x1b[0m <b>plain</b>\r\n"); err != nil {
		t.Fatal(err)
	}
	f := call(t, h, apitest.VicToken, "GET", "/api/v1/sessions/pty-m1/screen", "").want(t, 200).object(t)
	runs := f["lines"].([]any)[0].(map[string]any)["r"].([]any)
	if f["cols"] != 80.0 || f["rows"] != 24.0 || f["full"] != true || f["finished"] != false || len(runs) != 2 ||
		runs[0].(map[string]any)["t"] != "red" || runs[1].(map[string]any)["t"] != " <b>plain</b>" {
		t.Errorf("frame %v", f)
	}
	frames := 0
	follow(t, h, apitest.VicToken, "/api/v1/sessions/pty-m1/screen", func(name string, f map[string]any) bool {
		frames++
		lines := f["lines"].([]any)
		switch {
		case name != "screen":
			t.Errorf("event %s", name)
		case frames == 1 && (f["full"] != true || len(lines) != 24):
			t.Errorf("the first frame %v", f)
		case frames == 1:
			if err := live.Print("more"); err != nil {
				t.Error(err)
			}
		case f["full"] == nil && len(lines) == 1 && strings.Contains(lineText(lines[0]), "more"):
			if err := h.Engine.End("m1", 0); err != nil {
				t.Error(err)
			}
		}
		return f["finished"] == true
	}, nil)
	call(t, h, apitest.RobToken, "GET", "/api/v1/sessions/none/screen", "").want(t, 404)
}

func lineText(line any) string {
	text := ""
	for _, r := range line.(map[string]any)["r"].([]any) {
		text += r.(map[string]any)["t"].(string)
	}
	return text
}

func TestVerifySaysWhereAJournalBreaks(t *testing.T) {
	t.Parallel()
	bad := atomic.Bool{}
	h := apitest.New(t, func(o *api.Options) { o.Events = broken{o.Events, &bad} })
	h.Mission(t, "m1", "agent-01")
	v := call(t, h, apitest.VicToken, "GET", "/tasks/m1/verify", "").want(t, 200).object(t)
	if v["valid"] != true || v["fault"] != nil || v["good"].(map[string]any)["sequence"].(float64) < 1 {
		t.Errorf("a good journal: %v", v)
	}
	bad.Store(true)
	v = call(t, h, apitest.VicToken, "GET", "/tasks/m1/verify", "").want(t, 200).object(t)
	fault := v["fault"].(map[string]any)
	if v["valid"] != false || fault["kind"] != "changed" || fault["sequence"] != 7.0 || v["good"].(map[string]any)["sequence"] != 6.0 ||
		v["trusted"].(map[string]any)["sequence"] != 9.0 {
		t.Errorf("a bad journal: %v", v)
	}
	h.Mission(t, "theirs", "agent-02")
	call(t, h, apitest.RobToken, "GET", "/tasks/theirs/verify", "").want(t, 404)
}

// broken is a journal that does not verify.
type broken struct {
	journals
	bad *atomic.Bool
}

type journals = api.Events

func (b broken) Check(ctx context.Context, task string) (journal.Head, *journal.Head, error) {
	if !b.bad.Load() {
		return b.journals.Check(ctx, task)
	}
	return journal.Head{Sequence: 6}, &journal.Head{Sequence: 9}, &journal.ChainError{Fault: journal.FaultChanged, TaskID: task, Sequence: 7, Detail: "it was changed"}
}
