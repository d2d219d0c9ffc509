package executor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

func TestARestartedOrchestratorIsMetAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.opt.Timings.GateWait = 200 * time.Millisecond
	w.opt.Timings.SlowPollMax = 200 * time.Millisecond
	w.up()
	w.dispatch("old")
	w.eng.start("old")
	w.shows("old", "running")
	w.empty()
	w.orch.Restart()
	w.eng.end("old", 0) // nobody knows it any more: kept
	w.connected()
	w.dispatch("new")
	w.eng.start("new")
	w.eng.end("new", 0)
	w.shows("new", "done")
	w.eventually("only the forgotten end is pending", func() bool {
		n, _, _ := w.out.OutboxStats(context.Background())
		return n == 1
	})
	// The same id again: the orchestrator knows it once more and gets the truth.
	w.dispatch("old")
	w.shows("old", "done")
	w.empty()
}

func TestEventsOfAForgottenMissionBecomeUndeliverable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.opt.Timings.GateWait = 50 * time.Millisecond
	var late atomic.Bool
	w.opt.Now = func() time.Time {
		if late.Load() {
			return time.Now().Add(25 * time.Hour)
		}
		return time.Now()
	}
	w.up()
	w.dispatch("old")
	w.shows("old", "assigned")
	w.empty()
	w.orch.Restart()
	w.eng.start("old")
	w.eng.end("old", 0)
	w.connected()
	w.eventually("they were sent once", func() bool { return w.orch.Dropped() >= 2 })
	if n, u, _ := w.out.OutboxStats(context.Background()); n != 2 || u != 0 {
		t.Fatalf("%d pending, %d undeliverable", n, u)
	}
	late.Store(true)
	w.eventually("status says so", func() bool { s := w.status(); return s.OutboxUndeliverable == 2 && s.OutboxPending == 0 })
}

func TestARefusedTokenLeadsToANewRegistration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	var dials, registrations atomic.Int32
	w.setIntercept(func(rw http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasPrefix(r.URL.Path, "/ws/executors/"):
			if dials.Add(1) <= 2 {
				r.URL.RawQuery = url.Values{"token": {"wrong"}}.Encode() // 101, then 4001
			}
		case r.URL.Path == "/api/v1/executors/register":
			registrations.Add(1)
		}
		return false
	})
	w.up()
	if n := registrations.Load(); n != 3 {
		t.Errorf("%d registrations", n)
	}
	if !strings.Contains(w.logs.String(), "4001") {
		t.Error("the log does not say why")
	}
	w.dispatch("m")
	w.shows("m", "assigned")
}

// The token is in the socket's URL, which the errors of a dial like to quote.
func TestAFailedDialTellsNobodyTheToken(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"refused": func(rw http.ResponseWriter, r *http.Request) { http.Error(rw, r.URL.String(), 403) },
		"cut off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"closed with the token as its reason": func(rw http.ResponseWriter, r *http.Request) {
			c, err := (&websocket.Upgrader{}).Upgrade(rw, r, nil)
			if err != nil {
				return
			}
			_ = c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1011, r.URL.Query().Get("token")), time.Now().Add(time.Second))
			_, _, _ = c.ReadMessage()
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, orchestrator.Options{})
			w.setIntercept(func(rw http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, "/ws/executors/") {
					answer(rw, r)
					return true
				}
				return false
			})
			w.boot()
			w.eventually("status says that the link is down", func() bool { return w.status().LinkError != nil })
			s := w.status()
			if w.token() == "" || strings.Contains(*s.LinkError, w.token()) || s.Connected {
				t.Errorf("status %s", *s.LinkError)
			}
			if status, _, _ := w.post("/dispatch", "application/json", w.token(), string(body("m"))); status != 202 {
				t.Errorf("a registered host answers %d", status)
			}
		})
	}
}

func TestRegistrationFailuresAreShownAndRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(rw http.ResponseWriter, r *http.Request)
		want   string
	}{
		"404": {func(rw http.ResponseWriter, _ *http.Request) { http.NotFound(rw, nil) }, "404"},
		"401": {func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, `{"error":"token_invalid"}`, 401) }, "token_invalid"},
		"500": {func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "oops", 500) }, "500"},
		"429": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(429)
		}, "429"},
		"redirect": {func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/elsewhere", 302) }, "302"},
		"no token": {func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(`{"executor_id":"x"}`)) }, "no token"},
		"not JSON": {func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(`<html>`)) }, "not the expected JSON"},
		"slow loris": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then is the client's going noticed
			<-r.Context().Done()
		}, "deadline"},
		"cut off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "registration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, orchestrator.Options{})
			w.opt.Timings.RequestWait = 2 * time.Second
			var broken atomic.Bool
			broken.Store(true)
			w.setIntercept(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/api/v1/executors/register" && broken.Load() {
					c.answer(rw, r)
					return true
				}
				return false
			})
			w.boot()
			w.eventually("status shows it", func() bool {
				s := w.status()
				return s.RegisterError != nil && strings.Contains(*s.RegisterError, c.want)
			})
			if status, got, _ := w.post("/dispatch", "application/json", "x", string(body("m"))); status != 503 {
				t.Errorf("dispatch before the registration: %d %v", status, got)
			}
			broken.Store(false)
			w.connected()
			if s := w.status(); s.RegisterError != nil {
				t.Errorf("the error stays: %s", *s.RegisterError)
			}
		})
	}
}

func TestAMissionThatEndsWhileTheOrchestratorIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.dispatch("m")
	w.eng.start("m")
	w.shows("m", "running")
	w.orch.SetDown(true)
	w.eventually("the link is down", func() bool { return !w.status().Connected })
	w.eng.progress("m", "alone")
	w.eng.end("m", 7)
	w.eventually("it waits", func() bool { s := w.status(); return s.BackoffMS > 0 && s.OutboxPending >= 2 && s.LinkError != nil })
	w.orch.SetDown(false)
	if m := w.shows("m", "failed"); m.ExitCode == nil || *m.ExitCode != 7 {
		t.Errorf("exit code %v", m.ExitCode)
	}
	w.empty()
}

func TestAFlappingOrchestratorLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	all := ids("f", 20)
	for i, id := range all {
		w.eventually("a dispatch is taken", func() bool { // the link may be on its way down
			status, _ := w.orch.Dispatch(context.Background(), body(id))
			return status == 202
		})
		w.eng.start(id)
		if i%4 == 3 {
			w.orch.CloseSockets(1011, "flap")
		}
		w.eng.progress(id, "working")
		w.eng.end(id, 0)
	}
	for _, id := range all {
		w.shows(id, "done")
	}
	w.empty()
}

// A connection whose other end is gone without a word: only a ping finds out.
func TestAHalfOpenConnectionIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.allowed["overlap"] = true // the orchestrator has not seen the old one end
	p := newProxy(t, strings.TrimPrefix(w.orch.URL(), "http://"))
	w.opt.Endpoint = "http://" + p.l.Addr().String()
	w.opt.Timings.PingEvery = 50 * time.Millisecond
	w.opt.Timings.PongWait = 500 * time.Millisecond
	w.up()
	w.dispatch("m")
	w.eng.start("m")
	w.shows("m", "running")
	before := *w.status().LastConnectedAt
	p.freeze()
	w.eng.end("m", 0)
	w.eventually("a new connection is up", func() bool { s := w.status(); return s.Connected && *s.LastConnectedAt != before })
	w.shows("m", "done")
	if !strings.Contains(w.logs.String(), "did not answer a ping") {
		t.Error("the log does not say why")
	}
}

func TestAnExecutorThatIsNotShownAsConnectedConnectsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.opt.Timings.CheckEvery = 50 * time.Millisecond
	w.up()
	before := *w.status().LastConnectedAt
	// Somebody registers under the same id: serve then shows the executor as not
	// connected although its socket is open.
	reg := `{"executor_id":"` + executorID + `","name":"x","version":"1","spec_version":"1.0.0","transport_endpoints":{"rest":"http://127.0.0.1:1","ws":"ws://127.0.0.1:1"},"capabilities":[]}`
	resp, err := http.Post(w.orch.URL()+"/api/v1/executors/register", "application/json", strings.NewReader(reg))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	w.eventually("it connects again", func() bool { s := w.status(); return s.Connected && *s.LastConnectedAt != before })
	w.connected()
	w.dispatch("m") // to the right address
}

func TestAChangeOfCapabilitiesRegistersAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.eng.setCaps("isolation:host", "runtime:custom:command", "isolation:container", "runtime:Not In The Vocabulary")
	w.eventually("the new capability is advertised", func() bool {
		return strings.Contains(strings.Join(w.status().Capabilities, " "), "isolation:container")
	})
	w.connected()
	status, answer := w.orch.Dispatch(context.Background(), []byte(`{"mission_id":"c","objective":"true","completion":"x","executor_filter":{"capabilities":["isolation:container"]}}`))
	if status != 202 {
		t.Fatalf("%d %v", status, answer)
	}
	if !strings.Contains(w.logs.String(), "not in the contract's vocabulary") {
		t.Error("the bad capability is not in the log")
	}
}

func TestReconnectSkipsTheWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{})
	w.opt.Timings.BackoffMin, w.opt.Timings.BackoffMax = time.Hour, time.Hour
	w.orch.SetDown(true)
	w.boot()
	w.eventually("it waits", func() bool { return w.status().BackoffMS > 0 })
	w.orch.SetDown(false)
	if status, _, _ := w.post("/api/v1/aiwg/reconnect", "", "", ""); status != 202 {
		t.Fatalf("status %d", status)
	}
	w.connected()
	before := *w.status().LastConnectedAt
	w.x.Reconnect() // a link that is up is renewed
	w.eventually("it is renewed", func() bool { s := w.status(); return s.Connected && *s.LastConnectedAt != before })
}

// Every state is what it was, although a resync sets all to running.
func TestAResyncRestatesWhatIsNotPlainlyRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	want := map[string]string{"queued": "assigned", "runs": "running", "asks": "hitl-required", "paused": "paused", "suspended": "suspended"}
	for id := range want {
		w.dispatch(id)
	}
	for _, id := range []string{"runs", "asks", "paused", "suspended"} {
		w.eng.start(id)
	}
	w.eng.ask("asks", "h-1")
	if err := w.eng.Pause(context.Background(), "paused", "me", "lunch"); err != nil {
		t.Fatal(err)
	}
	w.eng.suspend("suspended")
	for id, state := range want {
		w.shows(id, state)
	}
	w.empty()
	w.orch.CloseSockets(1012, "service restart")
	w.eventually("the link is renewed", func() bool { return strings.Count(w.logs.String(), "is up") == 2 })
	w.eventually("every mission is restated", func() bool {
		for id, state := range want {
			if m, _ := w.orch.Mission(id); m.State != state {
				return false
			}
		}
		// A state may be told twice: again when serve had not yet shown it.
		told := func(id string) string { return strings.Join(slices.Compact(w.words(id)), " ") }
		return strings.HasSuffix(told("runs"), "mission.reconnected mission.resumed") &&
			strings.HasSuffix(told("asks"), "mission.reconnected mission.hitl_required")
	})
	for _, e := range w.orch.Events("runs") {
		if e.Event == "mission.reconnected" && string(e.Data) != `{"checkpoint_id":"ckpt-runs"}` {
			t.Errorf("reconnected %s", e.Data)
		}
	}
}

// What the host journalled at its own return comes from the outbox, and once.
func TestAHostThatReturnsReconnectsItsMissionsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.dispatch("m")
	w.eng.start("m")
	w.eng.suspend("m")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := w.x.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if m, _ := w.orch.Mission("m"); m.State != "suspended" {
		t.Fatalf("after the flush it is %s", m.State)
	}
	w.stop()
	w.eng.do("m", func(m *fakeMission) {
		w.eng.commit(m, "mission.reconnected", "", obj{"checkpoint_id": "ckpt-m"})
		w.eng.commit(m, "mission.resumed", mission.StateRunning, obj{"state": "running", "resumed_from": "suspended"})
	})
	w.up()
	w.shows("m", "running")
	w.eng.end("m", 5)
	w.shows("m", "failed")
	got := strings.Join(w.words("m"), " ")
	if got != "mission.assigned mission.started mission.suspended mission.reconnected mission.resumed mission.failed" {
		t.Errorf("events: %s", got)
	}
}

// A mission that the host has not found again is not said to run.
func TestAMissionThatIsStillLookedForIsNotSaidToRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	for _, id := range []string{"found", "sought"} {
		w.dispatch(id)
		w.eng.start(id)
		w.shows(id, "running")
	}
	w.empty()
	w.eng.do("sought", func(m *fakeMission) { m.away = true })
	w.orch.CloseSockets(1012, "service restart")
	w.eventually("the other one is restated", func() bool {
		return strings.HasSuffix(strings.Join(w.words("found"), " "), "mission.reconnected mission.resumed")
	})
	w.eng.do("sought", func(m *fakeMission) {
		m.away = false
		w.eng.commit(m, "mission.reconnected", "", obj{"checkpoint_id": "ckpt-1"})
		w.eng.commit(m, "mission.resumed", mission.StateRunning, obj{"state": "running", "resumed_from": "suspended"})
	})
	w.eng.end("sought", 0)
	w.shows("sought", "done")
	if got := strings.Join(w.words("sought"), " "); got != "mission.assigned mission.started mission.reconnected mission.resumed mission.completed" {
		t.Errorf("events: %s", got)
	}
}

func TestAStopClosesTheSocketAndKeepsTheRegistration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	w.stop()
	resp, err := http.Get(w.orch.URL() + "/api/v1/executors/" + executorID)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("a plain stop deregistered: %d", resp.StatusCode)
	}
	if err := w.x.Deregister(context.Background()); err != nil {
		t.Fatal(err)
	}
	if resp, err = http.Get(w.orch.URL() + "/api/v1/executors/" + executorID); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 404 {
		t.Fatalf("after a drain: %d", resp.StatusCode)
	}
}

func TestADrainIsNotFollowedByARegistration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, orchestrator.Options{}).up()
	token := w.token()
	if err := w.x.Deregister(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.eventually("the socket is closed", func() bool { return !w.status().Connected })
	if status, _, _ := w.post("/dispatch", "application/json", token, string(body("m"))); status != 503 {
		t.Errorf("a drained host answers %d", status)
	}
	w.x.Reconnect()
	w.stop()
	resp, err := http.Get(w.orch.URL() + "/api/v1/executors/" + executorID)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 404 {
		t.Errorf("registered again: %d", resp.StatusCode)
	}
}

// proxy carries TCP and can fall silent without closing anything.
type proxy struct {
	l    net.Listener
	to   string
	mu   sync.Mutex
	ends []net.Conn
	dead map[net.Conn]bool
	wg   sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to, dead: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			p.mu.Lock()
			p.ends = append(p.ends, c, s)
			p.mu.Unlock()
			p.wg.Go(func() { p.carry(s, c) })
			p.wg.Go(func() { p.carry(c, s) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.ends {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// freeze makes every connection that stands swallow what it is sent.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.ends {
		p.dead[c] = true
	}
}

func (p *proxy) carry(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		dead := p.dead[from]
		p.mu.Unlock()
		if n > 0 && !dead {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) && !dead {
				_ = to.Close()
			}
			return
		}
	}
}
