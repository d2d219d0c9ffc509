package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/store"
)

// W6: a stop answers while the store hangs, and from then on nothing is
// admitted, whatever was on its way.
func TestAStopDoesNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"objective":"x"}`)
	d := a.propose("echo", `{}`)
	g.Store.Hang()
	admitted := make(chan reply, 1)
	go func() { admitted <- a.dispatch(d.DecisionID, "echo", `{}`) }()
	eventually(t, "the reservation is under way", func() bool { return g.Store.Hanging() > 0 })
	got := a.do("POST", "/control?wait=0", `{"action":"stop"}`).want(t, 200).object(t) // the store still hangs
	if _, claims := got["access_revocation"]; claims || got["final"] != false || got["effective_at"] == nil {
		t.Errorf("receipt = %v", got)
	}
	g.Store.Go()
	(<-admitted).code(t, 409, "stopped")
	eventually(t, "the receipt", func() bool {
		return a.do("POST", "/control", `{"action":"stop"}`).want(t, 200).object(t)["final"] == true
	})
	st := a.status()
	if st.State != "STOPPED" || st.Counters["completed"] != 0 || len(st.Running) != 0 {
		t.Errorf("status = %+v", st)
	}
}

// F7: a broken store does not keep a stop from happening; the receipt says so.
func TestAStopWithoutEvidenceSaysSo(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"objective":"x"}`)
	d := a.propose("echo", `{}`)
	g.Store.Fail(store.ErrFull)
	got := a.do("POST", "/control?wait=2", `{"action":"stop"}`).want(t, 200).object(t)
	if got["final"] != false || got["audit_error"] == nil {
		t.Errorf("receipt = %v", got)
	}
	g.Store.Fail(nil)
	a.dispatch(d.DecisionID, "echo", `{}`).code(t, 409, "stopped")
	eventually(t, "the evidence", func() bool { return a.status().State == "STOPPED" })
}

func TestAStoppedTaskIsRestartedOnPurposeOnly(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"objective":"x"}`)
	d := a.propose("echo", `{}`)
	inv, _ := a.dispatch(d.DecisionID, "echo", `{}`).want(t, 201).object(t)["invocation_id"].(string)
	a.do("POST", "/control", `{"action":"restart"}`).code(t, 409, "not_stopped")
	receipt := a.do("POST", "/control?wait=30s", `{"action":"stop"}`).want(t, 200).object(t)
	if receipt["final"] != true || receipt["access_revocation"] != "not_configured" {
		t.Fatalf("receipt = %v", receipt)
	}
	stop := receipt["stop_id"].(string)
	if got := a.do("GET", "/stops/"+stop, "").want(t, 200).object(t); got["final"] != true || got["stop_id"] != stop {
		t.Errorf("read back = %v", got)
	}
	for _, action := range []string{"pause", "resume", "replan"} {
		a.do("POST", "/control", `{"action":"`+action+`"}`).want(t, 409)
	}
	a.do("POST", "/control", `{"action":"restart"}`).code(t, 409, "running")
	a.do("POST", "/resolve", `{"invocation_id":"`+inv+`","outcome":"failed"}`).code(t, 409, "running")
	a.complete(inv, "failed").want(t, 204)
	before := a.status().Epoch
	if st := a.do("POST", "/control", `{"action":"restart"}`).asStatus(t); st.State != "RUNNING" || st.Epoch != before+1 {
		t.Errorf("restarted = %+v", st)
	}
	a.dispatch(d.DecisionID, "echo", `{}`).code(t, 409, "consumed")
	again := a.propose("echo", `{"n":1}`)
	if again.Decision.Status != "ALLOW" {
		t.Errorf("after the restart = %+v", again)
	}
	// The second stop has a receipt of its own.
	second := a.do("POST", "/control?wait=30s", `{"action":"stop"}`).want(t, 200).object(t)
	if second["final"] != true || second["stop_id"] == stop {
		t.Errorf("second receipt = %v", second)
	}
}

// What a crash left open is closed by an operator, with a word on it.
func TestACallThatACrashLeftOpenIsResolved(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"task_id":"t","objective":"x"}`)
	d := a.propose("echo", `{}`)
	inv, _ := a.dispatch(d.DecisionID, "echo", `{}`).want(t, 201).object(t)["invocation_id"].(string)
	g.Reopen(t)
	if st := a.status(); st.State != "STOPPED" || len(st.Unresolved) != 1 || len(st.Running) != 0 || st.Counters["completed"]+st.Counters["failed"] != 0 {
		t.Fatalf("after the crash = %+v", st)
	}
	a.do("POST", "/control", `{"action":"restart"}`).code(t, 409, "unresolved")
	a.do("POST", "/resolve", `{"invocation_id":"none","outcome":"failed"}`).want(t, 404)
	a.do("POST", "/resolve", `{"invocation_id":"`+inv+`","outcome":"fine"}`).want(t, 400)
	a.do("POST", "/resolve", `{"invocation_id":"`+inv+`","outcome":"succeeded","actor":"me"}`).want(t, 400)
	if st := a.do("POST", "/resolve", `{"invocation_id":"`+inv+`","outcome":"outcome_unknown","explanation":"nobody knows"}`).asStatus(t); len(st.Unresolved) != 0 {
		t.Errorf("resolved = %+v", st)
	}
	if _, text := a.events(); !strings.Contains(text, `"explanation":"nobody knows","actor":"alice"`) {
		t.Errorf("events = %s", text)
	}
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	a.propose("echo", `{"n":2}`)
}

func TestATaskThatExistsIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	task(t, g, `{"task_id":"t","objective":"x"}`)
	for body, status := range map[string]int{
		`{"task_id":"t","objective":"x"}`: 409, `{"objective":""}`: 400, `{}`: 400, `{"objective":"x","plan":{}}`: 400, `{"objective":"x","intent":{}}`: 422,
		`{"objective":"x","token":"mine"}`: 400, `{"objective":"x","task_id":"a\u0000"}`: 400, `{"objective":"x","task_id":"` + strings.Repeat("é", 301) + `"}`: 400,
	} {
		call(t, g.Host, apitest.AliceToken, "POST", "/tasks", body).want(t, status)
	}
}

// A stop of a task that only came back stopped is its operator's: the receipt
// and the journal name the one who stopped it.
func TestAStopAfterARestartIsItsOperators(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"task_id":"t","objective":"x"}`)
	g.Reopen(t)
	if st := a.status(); st.State != "STOPPED" || st.Reason != "restored" {
		t.Fatalf("after the restart = %+v", st)
	}
	before := a.status().Epoch
	first := a.do("POST", "/control?wait=30s", `{"action":"stop","reason":"enough"}`).want(t, 200).object(t)
	if first["final"] != true || first["actor"] != "alice" || first["reason"] != "enough" || a.status().Epoch != before+1 {
		t.Errorf("receipt = %v, status %+v", first, a.status())
	}
	second := a.do("POST", "/control?wait=30s", `{"action":"stop"}`).want(t, 200).object(t)
	if second["stop_id"] != first["stop_id"] || second["actor"] != "alice" {
		t.Errorf("stopped twice: %v, then %v", first, second)
	}
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	a.propose("echo", `{}`)
}

// Access under a name that no revoker has can never be acknowledged: it blocks a
// restart until an operator waives it, in the journal and by name; no receipt
// calls it revoked.
func TestAnIssuerThatCannotAnswerIsWaived(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "")
	a := task(t, g, `{"task_id":"t","objective":"x"}`)
	a.post("/access", `{"kind":"session","issuer":"nobody","ref":"s-1"}`).want(t, 204)
	a.do("POST", "/waive", `{"issuer":"nobody","explanation":"x"}`).want(t, 404) // it was not asked
	if got := a.do("POST", "/control?wait=30s", `{"action":"stop"}`).want(t, 200).object(t); got["access_revocation"] != "partial_failure" {
		t.Fatalf("receipt = %v", got)
	}
	a.do("POST", "/control", `{"action":"restart"}`).code(t, 409, "revocation")
	g.Reopen(t)
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 409)
	a.do("POST", "/waive", `{"issuer":"nobody"}`).want(t, 400)
	a.do("POST", "/waive", `{"issuer":"nobody","explanation":""}`).want(t, 400)
	a.do("POST", "/waive", `{"issuer":"nobody","explanation":"x","actor":"me"}`).want(t, 400)
	a.do("POST", "/waive", `{"issuer":"somebody","explanation":"x"}`).want(t, 404)
	eventually(t, "the issuer was asked again and failed", func() bool {
		return a.do("POST", "/waive", `{"issuer":"nobody","explanation":"the session ended with the year"}`).status == 200
	})
	a.do("POST", "/waive", `{"issuer":"nobody","explanation":"x"}`).code(t, 409, "settled")
	if _, text := a.events(); !strings.Contains(text, `"result":"waived"`) || !strings.Contains(text, `"detail":"the session ended with the year"`) || !strings.Contains(text, `"actor":"alice"`) {
		t.Errorf("events = %s", text)
	}
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	a.propose("echo", `{}`)
	if got := a.do("POST", "/control?wait=30s", `{"action":"stop"}`).want(t, 200).object(t); got["final"] != true || got["access_revocation"] == "acknowledged" {
		t.Errorf("the next receipt = %v", got)
	}
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
}

// What could not be journalled under fail_open is told of after a crash too.
func TestAGapOutlivesACrash(t *testing.T) {
	t.Parallel()
	g := apitest.Govern(t, "\non_failure = \"fail_open\"")
	a := task(t, g, `{"task_id":"t","objective":"x"}`)
	g.Store.Fail(store.ErrFull)
	d := a.post("/proposals", `{"proposal_id":"p1","tool_name":"echo","tool_args":{}}`).decided(t)
	inv, _ := a.dispatch(d.DecisionID, "echo", `{}`).want(t, 201).object(t)["invocation_id"].(string)
	a.complete(inv, "succeeded").want(t, 204)
	if st := a.status(); len(st.Audit) == 0 || st.Counters["executed"] != 1 {
		t.Fatalf("status = %+v", st)
	}
	g.Reopen(t) // nothing of it is in the store
	_, text := a.events()
	if !strings.Contains(text, `"what":"calls"`) || !strings.Contains(text, "4 events of calls could not be journalled") || !strings.Contains(text, "they are kept in ") {
		t.Errorf("events = %s", text)
	}
	g.Reopen(t)
	if _, again := a.events(); strings.Count(again, `"what":"calls"`) != 1 {
		t.Errorf("told twice: %s", again)
	}
	a.do("POST", "/control", `{"action":"restart"}`).want(t, 200)
	a.propose("echo", `{}`)
}

// BenchmarkStopWhileTheJournalHangs says how long a stop with wait=0 takes while
// the store answers nobody (goal: under 50 ms).
func BenchmarkStopWhileTheJournalHangs(b *testing.B) {
	g := apitest.Govern(b, "")
	ids := make([]string, b.N)
	for i := range ids {
		id, _, err := g.Real.CreateTask(b.Context(), engine.NewTask{Objective: "x"}, "op")
		if err != nil {
			b.Fatal(err)
		}
		ids[i] = id
	}
	g.Store.Hang()
	var took []time.Duration
	for _, id := range ids {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, g.REST+"/tasks/"+id+"/control?wait=0", strings.NewReader(`{"action":"stop"}`))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+apitest.AliceToken)
		began := time.Now()
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(resp, err)
		}
		_ = resp.Body.Close()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
