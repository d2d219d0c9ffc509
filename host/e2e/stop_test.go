package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// issuerRig is a rig with webhook revokers.
func issuerRig(t *testing.T, agent string, list map[string]*issuer) *rig {
	t.Helper()
	key := filepath.Join(t.TempDir(), "issuer.key")
	if err := os.WriteFile(key, []byte(issuerSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	return newRig(t, settings{agent: agent, extra: revokers(filepath.Dir(key), list)})
}

var small = map[string]any{"amount": 5}

// TestT3_StopRacesDispatches: once stop has answered, nothing is dispatched any
// more, however many proposals and retries are under way.
func TestT3_StopRacesDispatches(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	h := r.openTask("t3", nil)
	var stopped atomic.Bool
	var late, before atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; i < 200; i++ {
				code, a := h.call("POST", "/proposals", map[string]any{"proposal_id": fmt.Sprint(w, "-", i), "tool_name": "refund", "tool_args": small})
				if code != http.StatusOK {
					return // stopped
				}
				was := stopped.Load()
				_, refused := h.dispatch(a["decision_id"].(string), "refund", small)
				switch {
				case refused == "" && was:
					late.Add(1)
				case refused == "":
					before.Add(1)
				}
			}
		})
	}
	r.until("some calls ran", func() bool { return before.Load() > 20 })
	receipt := h.stop("0")
	stopped.Store(true)
	wg.Wait()
	if late.Load() > 0 {
		t.Errorf("%d calls were dispatched after the stop had answered", late.Load())
	}
	if receipt["effective_at"] == nil {
		t.Errorf("receipt %v", receipt)
	}
	// What is in the journal says the same: nothing is executed behind the stop.
	kinds := r.journal("t3")
	seen := false
	for _, k := range kinds {
		if seen && (k == "executed" || k == "proposed" || k == "decision") {
			t.Fatalf("%s behind the stop in %v", k, kinds[len(kinds)-10:])
		}
		seen = seen || k == "stop"
	}
	if !seen {
		t.Error("no stop in the journal")
	}
}

// TestT4_CallsInFlightAtStop and TestT5: calls that were admitted may end after
// the stop, are asked to cancel, and what they report is recorded as it was.
func TestT4_CallsInFlightAtStop(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	h := r.openTask("t4", nil)
	d, _ := h.propose("p", "refund", small, 0)
	i, refused := h.dispatch(d, "refund", small)
	if refused != "" {
		t.Fatal(refused)
	}
	receipt := h.stop("30")
	running, _ := receipt["running"].([]any)
	if len(running) != 1 || running[0] != i {
		t.Errorf("running %v, want %s", receipt["running"], i)
	}
	cancels, _ := receipt["cancellation_requests"].([]any)
	if len(cancels) != 1 {
		t.Errorf("cancellation requests %v", cancels)
	}
	if code := h.complete(i, "succeeded"); code != http.StatusNoContent {
		t.Errorf("the completion after the stop: %d", code)
	}
	if code := h.complete(i, "succeeded"); code != http.StatusConflict {
		t.Errorf("the completion twice: %d", code)
	}
	s := r.task("t4")
	if s.State != "STOPPED" || s.Counters.Completed != 1 || len(s.Running) != 0 {
		t.Errorf("status %+v", s)
	}
}

// TestT5_CancellationIsARequest: a harness that waits learns at once that it
// should cancel; that is never reported as a cancellation.
func TestT5_CancellationIsARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	h := r.openTask("t5", nil)
	d, _ := h.propose("p", "refund", small, 0)
	i, _ := h.dispatch(d, "refund", small)
	asked := make(chan map[string]any, 1)
	go func() {
		_, a := h.call("GET", "/dispatches/"+i+"?wait_s=25", nil)
		asked <- a
	}()
	h.stop("0")
	select {
	case a := <-asked:
		if a["cancel_requested_at"] == nil || a["state"] != "started" {
			t.Errorf("the harness was told %v", a)
		}
	case <-time.After(deadline):
		t.Fatal("the harness was not told")
	}
	if code := h.complete(i, "failed"); code != http.StatusNoContent {
		t.Errorf("completion: %d", code)
	}
	if s := r.task("t5"); s.Counters.Failed != 1 {
		t.Errorf("status %+v", s)
	}
}

// TestT6_SomeIssuersFail: one issuer that says anything but a plain true makes
// the revocation partial and blocks a restart until it acknowledges.
func TestT6_SomeIssuersFail(t *testing.T) {
	t.Parallel()
	good, bad := newIssuer(t), newIssuer(t)
	bad.set(`{"revoked": "true"}`)
	r := issuerRig(t, "", map[string]*issuer{"good": good, "bad": bad})
	h := r.openTask("t6", nil)
	receipt := h.stop("30")
	if receipt["access_revocation"] != "partial_failure" {
		t.Errorf("receipt %v", receipt)
	}
	if code, a := r.send("/tasks/t6/control", map[string]any{"action": "restart"}); code != http.StatusConflict {
		t.Errorf("restart with access that is not revoked: %d %v", code, a)
	}
	bad.set("")
	// A second stop asks again whoever has not acknowledged, and nobody else.
	n := good.asked()
	r.until("the second stop is acknowledged", func() bool { return h.stop("30")["access_revocation"] == "acknowledged" })
	if good.asked() != n {
		t.Errorf("the issuer that had acknowledged was asked %d times more", good.asked()-n)
	}
	if code, a := r.send("/tasks/t6/control", map[string]any{"action": "restart"}); code != http.StatusOK {
		t.Errorf("restart: %d %v", code, a)
	}
	d, status := h.propose("p", "refund", small, 0)
	if _, refused := h.dispatch(d, "refund", small); status != "ALLOW" || refused != "" {
		t.Errorf("after the restart: %s, %s", status, refused)
	}
	r.verify("t6")
}

// TestT7_SessionsAndDelegationsAreDenied: what the harness recorded is really
// denied at the issuer once the receipt says acknowledged.
func TestT7_SessionsAndDelegationsAreDenied(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := issuerRig(t, "", map[string]*issuer{"bank": i})
	h := r.openTask("t7", nil)
	for _, a := range []map[string]any{
		{"kind": "session", "issuer": "bank", "ref": "s-1"},
		{"kind": "delegation", "issuer": "bank", "ref": "d-1", "parent": "s-1"},
	} {
		if code, got := h.call("POST", "/access", a); code >= 300 {
			t.Fatalf("access: %d %v", code, got)
		}
	}
	if i.denies("s-1") || i.denies("d-1") {
		t.Fatal("denied before the stop")
	}
	if receipt := h.stop("30"); receipt["access_revocation"] != "acknowledged" {
		t.Fatalf("receipt %v", receipt)
	}
	for _, ref := range []string{"s-1", "d-1", "t7"} {
		if !i.denies(ref) {
			t.Errorf("%s is not denied", ref)
		}
	}
}

// TestT12_OutcomesAreNotHealth: whatever the gate decides, the host is as well
// as before.
func TestT12_OutcomesAreNotHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{policy: policyRules})
	h := r.openTask("t12", nil)
	if _, status := h.propose("p", "Danger", small, 0); status != "BLOCK" {
		t.Errorf("status %s", status)
	}
	var ready struct {
		Ready bool `json:"ready"`
	}
	if code := r.call("GET", "/readyz", nil, &ready); code != http.StatusOK || !ready.Ready {
		t.Errorf("readyz: %d %+v", code, ready)
	}
	r.dispatch("after", "exit 0")
	if m := r.reaches("after", "done", "failed"); m.State != "done" {
		t.Errorf("mission %+v", m)
	}
}

// TestAMissionsAccessIsRevokedHoweverItEnds: at its end, at a stop, and after a
// host that was killed before an issuer had answered.
func TestAMissionsAccessIsRevokedHoweverItEnds(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := issuerRig(t, "revokers = [revoker.webhook.bank]", map[string]*issuer{"bank": i})
	r.dispatch("ends", "exit 0")
	r.reaches("ends", "done")
	r.until("the issuer denies the mission that ended", func() bool { return i.denies("ends") })
	r.dispatch("stops", "sleep 1000")
	r.sees("stops", "mission.started")
	_, receipt := r.send("/tasks/stops/control?wait=30", map[string]any{"action": "stop"})
	if receipt["access_revocation"] != "acknowledged" || !i.denies("stops") {
		t.Errorf("receipt %v", receipt)
	}
	// An issuer that is down at the stop is asked again by the next one, and the
	// receipt says what it has said since.
	i.set(`{"revoked": false}`)
	r.dispatch("late", "sleep 1000")
	r.sees("late", "mission.started")
	if _, receipt := r.send("/tasks/late/control?wait=30", map[string]any{"action": "stop"}); receipt["access_revocation"] != "partial_failure" {
		t.Errorf("receipt %v", receipt)
	}
	i.set("")
	r.until("the second stop is acknowledged", func() bool {
		_, receipt := r.send("/tasks/late/control?wait=30", map[string]any{"action": "stop"})
		return receipt["access_revocation"] == "acknowledged"
	})
	var last map[string]any
	if r.call(http.MethodGet, "/tasks/late/stops/latest", nil, &last); last["access_revocation"] != "acknowledged" || last["isolation"] == nil {
		t.Errorf("the receipt is %v", last)
	}
	gate := make(chan struct{})
	i.mu.Lock()
	i.block = gate
	i.mu.Unlock()
	r.dispatch("crashes", "exit 0")
	r.reaches("crashes", "done")
	r.end(syscall.SIGKILL)
	close(gate)
	i.mu.Lock()
	i.block = nil
	i.denied = map[string]bool{}
	i.mu.Unlock()
	r.start()
	r.until("the issuer is asked again after the restart", func() bool { return i.denies("crashes") })
	r.verify("crashes")
}

// TestAHarnessTaskComesBackStopped: X1 to X3 over a killed host.
func TestAHarnessTaskComesBackStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	h := r.openTask("x", nil)
	d, _ := h.propose("p", "refund", small, 0)
	i, _ := h.dispatch(d, "refund", small)
	r.end(syscall.SIGKILL)
	r.start()
	s := r.task("x")
	if s.State != "STOPPED" || len(s.Unresolved) != 1 {
		t.Errorf("status %+v", s)
	}
	if code, a := h.call("POST", "/proposals", map[string]any{"tool_name": "refund", "tool_args": small}); code != http.StatusConflict || a["code"] != "stopped" {
		t.Errorf("a proposal on a restored task: %d %v", code, a)
	}
	if code, _ := r.send("/tasks/x/control", map[string]any{"action": "restart"}); code != http.StatusConflict {
		t.Errorf("restart with an open call: %d", code)
	}
	if code, a := r.send("/tasks/x/resolve", map[string]any{"invocation_id": i, "outcome": "succeeded", "explanation": "seen in the ledger"}); code >= 300 {
		t.Fatalf("resolve: %d %v", code, a)
	}
	if code, a := r.send("/tasks/x/control", map[string]any{"action": "restart"}); code != http.StatusOK {
		t.Fatalf("restart: %d %v", code, a)
	}
	if _, refused := h.dispatch(d, "refund", small); refused != "consumed" && refused != "stale_epoch" {
		t.Errorf("the old decision: %q", refused)
	}
	if d, _ = h.propose("q", "refund", small, 0); d == "" {
		t.Error("no decision after the restart")
	}
	r.verify("x")
}

// TestAStopIsNotLostToARestart: whichever of the two comes last, a stop that was
// answered as such holds.
func TestAStopIsNotLostToARestart(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := issuerRig(t, "", map[string]*issuer{"bank": i})
	h := r.openTask("race", nil)
	h.stop("30")
	for n := range 15 {
		var wg sync.WaitGroup
		wg.Go(func() { r.send("/tasks/race/control", map[string]any{"action": "restart"}) })
		var receipt map[string]any
		wg.Go(func() { receipt = h.stop("30") })
		wg.Wait()
		if receipt["final"] != true {
			t.Fatalf("round %d: the stop was answered with %v", n, receipt)
		}
		// The restart may have come after the stop; then the task runs, and is
		// stopped again here. It must never run with a stop answered after it.
		if s := r.task("race"); s.State == "RUNNING" {
			kinds := r.journal("race")
			last := ""
			for _, k := range kinds {
				if k == "stop" || k == "restarted" {
					last = k
				}
			}
			if last != "restarted" {
				t.Fatalf("round %d: the task runs behind a stop", n)
			}
			h.stop("30")
		}
	}
	r.verify("race")
}

// TestAStopGoesOnAfterAKilledHost: a stop whose ladder was cut short is carried
// on at the next start, and what ran is left open.
func TestAStopGoesOnAfterAKilledHost(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := issuerRig(t, "", map[string]*issuer{"bank": i})
	h := r.openTask("cut", nil)
	d, _ := h.propose("p", "refund", small, 0)
	if _, refused := h.dispatch(d, "refund", small); refused != "" {
		t.Fatal(refused)
	}
	gate := make(chan struct{})
	i.mu.Lock()
	i.block = gate
	i.mu.Unlock()
	h.stop("0")
	r.end(syscall.SIGKILL)
	close(gate)
	i.mu.Lock()
	i.block, i.denied = nil, map[string]bool{}
	i.mu.Unlock()
	r.start()
	r.until("the issuer is asked", func() bool { return i.denies("cut") })
	r.until("the call is left open", func() bool { s := r.task("cut"); return len(s.Unresolved) == 1 && len(s.Running) == 0 })
	r.verify("cut")
}

// TestAStopOfAStoppedTaskLeavesNothing: a kill that comes between the tombstone
// of a second stop and its answer finds a task that is stopped already. The
// tombstone goes, or it would stop the task again after a restart.
func TestAStopOfAStoppedTaskLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	h := r.openTask("twice", nil)
	h.stop("30")
	r.end(syscall.SIGKILL)
	dir := filepath.Join(r.dir, "heads", "stops")
	sum := sha256.Sum256([]byte("twice"))
	path := filepath.Join(dir, hex.EncodeToString(sum[:])+".json")
	text := `{"v":1,"task_id":"twice","stop":{"id":"01a22db3-f9b9-778d-a6d6-17667c1d64a1","actor":"op","by":"operator","reason":"again"},"at":"2026-01-02T03:04:05Z"}`
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.start()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tombstone is still there: %v", err)
	}
	if code, a := r.send("/tasks/twice/control", map[string]any{"action": "restart"}); code != http.StatusOK {
		t.Fatalf("restart: %d %v", code, a)
	}
	if d, _ := h.propose("q", "refund", small, 0); d == "" {
		t.Error("no decision after the restart")
	}
	r.verify("twice")
}

// TestAccessIsBounded: an agent cannot record so much that a revocation would
// not fit into a request any more.
func TestAccessIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	h := r.openTask("much", nil)
	code, a := h.call("POST", "/access", map[string]any{"kind": "session", "issuer": "bank", "ref": strings.Repeat("x", 5000)})
	if code != http.StatusBadRequest {
		t.Errorf("a ref of 5000 bytes: %d %v", code, a)
	}
}

// TestAHarnessTaskCanBeEnded: a stop leaves it restartable, an abort does not.
func TestAHarnessTaskCanBeEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	h := r.openTask("end", nil)
	h.stop("30")
	if code := r.call("POST", "/api/v1/missions/end/abort", map[string]any{}, nil); code/100 != 2 {
		t.Fatalf("abort: %d", code)
	}
	r.until("the task has ended", func() bool {
		var m struct {
			State string `json:"state"`
		}
		return r.call("GET", "/api/v1/missions/end", nil, &m) == http.StatusOK && m.State == "aborted"
	})
	if code, _ := r.send("/tasks/end/control", map[string]any{"action": "restart"}); code != http.StatusConflict {
		t.Errorf("restart of an ended task: %d", code)
	}
	r.verify("end")
}
