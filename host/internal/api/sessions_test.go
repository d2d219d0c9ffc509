package api_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

func TestSessionLogByOffset(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	live := h.Engine.Live("m1")
	if err := live.Print("hello \x00\xff world"); err != nil {
		t.Fatal(err)
	}
	if err := live.Log().Gap(0, 20); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{"": "hello \x00\xff world", "?from=6": "\x00\xff world", "?from=14": "", "?from=99": ""} {
		r := call(t, h, apitest.VicToken, "GET", "/api/v1/sessions/pty-m1/log"+query, "").want(t, 200)
		if r.body != want || r.header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s = %q", query, r.body)
		}
	}
	page := call(t, h, apitest.VicToken, "GET", "/api/v1/sessions/pty-m1/log?from=6", "", "Accept: application/json").want(t, 200).object(t)
	seg := page["segments"].([]any)[0].(map[string]any)
	if seg["stream"] != "stdout" || seg["offset"] != 6.0 || seg["data"] != "AP8gd29ybGQ=" || page["next"] != 14.0 || page["finished"] != false {
		t.Errorf("page = %v", page)
	}
	for _, q := range []string{"from=-1", "from=x", "follow=perhaps"} {
		call(t, h, apitest.VicToken, "GET", "/api/v1/sessions/pty-m1/log?"+q, "").want(t, 400)
	}
	call(t, h, apitest.VicToken, "GET", "/api/v1/sessions/none/log", "").want(t, 404)
}

func TestSessionLogFollowsToTheEnd(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	live := h.Engine.Live("m1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.REST+"/api/v1/sessions/pty-m1/log?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apitest.VicToken)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	buf := make([]byte, 3)
	for _, text := range []string{"one", "two"} {
		if err := live.Print(text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != text {
			t.Fatalf("read %q, %v", buf, err)
		}
	}
	if err := h.Engine.End("m1", 0); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	for _, q := range []string{"", "?signal=KILL", "?signal=SIGINT", "?signal=hup"} {
		if r := call(t, h, apitest.AliceToken, "DELETE", "/api/v1/sessions/pty-m1"+q, ""); r.status != 204 {
			t.Errorf("%s: %d", q, r.status)
		}
	}
	call(t, h, apitest.AliceToken, "DELETE", "/api/v1/sessions/pty-m1?signal=SEGV", "").want(t, 400)
	if got := h.Engine.Live("m1").Signals(); !slices.Equal(got, []int{15, 9, 2, 1}) {
		t.Errorf("signals = %v", got)
	}
	if err := h.Engine.End("m1", 0); err != nil {
		t.Fatal(err)
	}
	if r := call(t, h, apitest.AliceToken, "DELETE", "/api/v1/sessions/pty-m1", "").want(t, 409); !strings.Contains(r.body, "ended") {
		t.Errorf("ended = %s", r.body)
	}
}
