package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/evidence"
	"github.com/airlock-host/airlock/host/internal/journal"
)

func TestEventsByPage(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	for i := range 250 {
		h.Engine.Emit("m1", journal.Progress, map[string]any{"iteration": i})
	}
	var got []float64
	after := 0.0
	for {
		page := call(t, h, apitest.VicToken, "GET", fmt.Sprintf("/tasks/m1/events?after=%.0f", after), "").want(t, 200).object(t)
		events := page["events"].([]any)
		if len(events) > 100 {
			t.Fatalf("a page of %d", len(events))
		}
		for _, e := range events {
			ev := e.(map[string]any)
			if _, ok := ev["payload"].(map[string]any); !ok {
				t.Fatalf("payload is no object: %v", ev)
			}
			got = append(got, ev["sequence"].(float64))
		}
		if page["next"] == after {
			break
		}
		after = page["next"].(float64)
	}
	for i, n := range got {
		if n != float64(i+1) {
			t.Fatalf("event %d has sequence %v", i, n)
		}
	}
	if len(got) != 253 {
		t.Errorf("%d events", len(got))
	}
	for _, q := range []string{"after=-1", "after=x", "limit=0"} {
		call(t, h, apitest.VicToken, "GET", "/tasks/m1/events?"+q, "").want(t, 400)
	}
	call(t, h, apitest.VicToken, "GET", "/tasks/none/events", "").want(t, 404)
}

// sse reads the ids of server-sent events until n have come.
func sse(t *testing.T, h *apitest.Host, header map[string]string, n int, started func()) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.REST+"/tasks/m1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apitest.VicToken)
	req.Header.Set("Accept", "text/event-stream")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("content type %q", got)
	}
	go started()
	var ids []string
	in := bufio.NewScanner(resp.Body)
	for len(ids) < n && in.Scan() {
		if id, ok := strings.CutPrefix(in.Text(), "id: "); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestEventsAsAStream(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	ids := sse(t, h, nil, 6, func() {
		for range 3 {
			h.Engine.Emit("m1", journal.Progress, map[string]any{})
		}
	})
	if got := strings.Join(ids, " "); got != "1 2 3 4 5 6" {
		t.Errorf("ids = %s", got)
	}
	ids = sse(t, h, map[string]string{"Last-Event-ID": "4"}, 3, func() { h.Engine.Emit("m1", journal.Progress, map[string]any{}) })
	if got := strings.Join(ids, " "); got != "5 6 7" {
		t.Errorf("resumed ids = %s", got)
	}
}

func TestStatusSaysWhatIsNotEvaluated(t *testing.T) {
	t.Parallel()
	a := task(t, apitest.Govern(t, ""), `{"objective":"x"}`)
	st := a.do("GET", "/status", "").want(t, 200).object(t)
	for _, key := range []string{
		"task_id", "mode", "state", "state_reason", "epoch", "objective", "intent", "plan", "findings", "risk", "budget", "actions",
		"pending_approvals", "running", "counters", "revocation", "unresolved", "audit_errors", "head", "not_evaluated",
	} {
		if _, ok := st[key]; !ok {
			t.Errorf("%s is missing", key)
		}
	}
	if st["risk"] != nil || st["intent"] != nil || st["state"] != "RUNNING" || !slices.Contains(st["not_evaluated"].([]any), any("risk")) {
		t.Errorf("something was filled in: %v", st)
	}
	if c := st["counters"].(map[string]any); c["executed"] != 0.0 {
		t.Errorf("counters = %v", c)
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	control := func(body string) reply { return call(t, h, apitest.AliceToken, "POST", "/tasks/m1/control", body) }
	if got := control(`{"action":"pause"}`).want(t, 200).object(t); got["state"] != "PAUSED" {
		t.Errorf("pause = %v", got)
	}
	if got := control(`{"action":"resume"}`).want(t, 200).object(t); got["state"] != "RUNNING" {
		t.Errorf("resume = %v", got)
	}
	if got := control(`{"action":"dance"}`).want(t, 422).object(t); got["field"] != "action" {
		t.Errorf("unknown = %v", got)
	}
	if got := control(`{"action":"replan"}`).want(t, 200).object(t); got["state"] != "PAUSED" || got["state_reason"] != "replan" {
		t.Errorf("replan = %v", got)
	}
	control(`{"action":"resume"}`).want(t, 200)
	control(`{"action":"restart"}`).want(t, 409)
	if err := h.Engine.Latch("m1"); err != nil {
		t.Fatal(err)
	}
	if got := control(`{"action":"restart"}`).want(t, 200).object(t); got["state"] != "RUNNING" {
		t.Errorf("restart of a latched mission = %v", got)
	}
	if got := control(`{"action":"pause","freeze":false}`).want(t, 200).object(t); got["state"] != "PAUSED" {
		t.Errorf("pause of the gate = %v", got)
	}
	control(`{"action":"resume","freeze":false}`).want(t, 400)
	control(`{"action":"pause","actor":"me"}`).want(t, 400)
	control(`{}`).want(t, 400)
	call(t, h, apitest.AliceToken, "POST", "/tasks/m1/control?wait=soon", `{"action":"stop"}`).want(t, 400)

	stopped := control(`{"action":"stop","reason":"enough"}`).want(t, 200).object(t)
	if stopped["final"] != true || stopped["access_revocation"] != "not_configured" || stopped["stop_id"] != "stop-m1" {
		t.Errorf("receipt = %v", stopped)
	}
	if again := control(`{"action":"stop"}`).want(t, 200).object(t); again["stop_id"] != "stop-m1" || again["final"] != true {
		t.Errorf("stopped again = %v", again)
	}
	if got := control(`{"action":"restart"}`).want(t, 409).object(t); got["code"] != "terminal" {
		t.Errorf("restart = %v", got)
	}
	h.Mission(t, "m2", "agent-01")
	if err := h.Engine.End("m2", 0); err != nil {
		t.Fatal(err)
	}
	if got := call(t, h, apitest.AliceToken, "POST", "/tasks/m2/control", `{"action":"stop"}`).want(t, 409).object(t); got["code"] != "terminal" {
		t.Errorf("stop of a done mission = %v", got)
	}
}

func TestStopAnswersOnceTheLatchHoldsAndKeepsTheFinalReceipt(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	h.Engine.StopDelay = make(chan struct{})
	got := call(t, h, apitest.AliceToken, "POST", "/tasks/m1/control?wait=0", `{"action":"stop"}`).want(t, 200).object(t)
	_, claims := got["access_revocation"]
	if got["final"] != false || claims || got["stop_id"] != "stop-m1" || got["epoch"] != 2.0 || got["effective_at"] == nil {
		t.Errorf("provisional receipt = %v", got)
	}
	if got := call(t, h, apitest.VicToken, "GET", "/tasks/m1/stops/stop-m1", "").want(t, 200).object(t); got["final"] != false {
		t.Errorf("stop = %v", got)
	}
	close(h.Engine.StopDelay)
	eventually(t, "the final receipt", func() bool {
		return call(t, h, apitest.VicToken, "GET", "/tasks/m1/stops/stop-m1", "").want(t, 200).object(t)["final"] == true
	})
	call(t, h, apitest.VicToken, "GET", "/tasks/m1/stops/other", "").want(t, 404)
}

func TestExportVerifiesByItself(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	for i := range 250 {
		h.Engine.Emit("m1", journal.Progress, map[string]any{"note": "<&> \u2028 \x01 é", "iteration": i})
	}
	head, err := h.Engine.Head(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	r := call(t, h, apitest.VicToken, "GET", "/tasks/m1/export", "").want(t, 200)
	got, err := journal.Verify(strings.NewReader(r.body), &head)
	if err != nil || got.Sequence != 253 || got != head {
		t.Errorf("verify = %+v, %v", got, err)
	}
	if r.header.Get("Airlock-Head-Sequence") != "253" || r.header.Get("Airlock-Head-Digest") != head.Digest.String() {
		t.Errorf("headers = %v", r.header)
	}
	call(t, h, apitest.VicToken, "GET", "/tasks/none/bundle", "").want(t, 404)
	r = call(t, h, apitest.VicToken, "GET", "/tasks/m1/bundle", "").want(t, 200)
	if got, err := evidence.Verify(strings.NewReader(r.body), nil); err != nil || got.TaskID != "m1" {
		t.Errorf("the bundle: %+v, %v", got, err)
	}
	call(t, h, apitest.VicToken, "GET", "/tasks/none/export", "").want(t, 404)
}
