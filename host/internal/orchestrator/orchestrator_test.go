package orchestrator_test

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

const other = "0190a000-0000-7000-8000-000000000002"

func kinds(o *orchestrator.Orchestrator) string {
	var all []string
	for _, v := range o.Violations() {
		all = append(all, v.Kind)
	}
	return strings.Join(all, " ")
}

func TestRegistration(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{})
	p := newPeer(t, o, id, "hitl")
	p.up()
	first := p.token
	if again := p.register("hitl"); again["token"] != first || len(first) != 43 {
		t.Errorf("token %q, then %v", first, again["token"])
	}
	if p.isConnected() {
		t.Error("a new registration leaves it connected")
	}
	for name, body := range map[string]string{
		"null":        `null`,
		"not a uuid":  `{"executor_id":"sandbox-01-uuid","name":"n","version":"1","spec_version":"1.0.0","transport_endpoints":{"rest":"http://h","ws":"ws://h"},"capabilities":[]}`,
		"newer minor": `{"executor_id":"` + id + `","name":"n","version":"1","spec_version":"1.1.0","transport_endpoints":{"rest":"http://h","ws":"ws://h"},"capabilities":[]}`,
		"no ws":       `{"executor_id":"` + id + `","name":"n","version":"1","spec_version":"1.0.0","transport_endpoints":{"rest":"http://h"},"capabilities":[]}`,
		"bash":        `{"executor_id":"` + id + `","name":"n","version":"1","spec_version":"1.0.0","transport_endpoints":{"rest":"http://h","ws":"ws://h"},"capabilities":["runtime:bash"]}`,
		"a2a":         `{"executor_id":"` + id + `","name":"n","version":"1","spec_version":"1.0.0","transport_endpoints":{"rest":"http://h","ws":"ws://h"},"capabilities":[],"a2a_instance_id":"x"}`,
	} {
		if status, got := p.call("POST", "/api/v1/executors/register", body); status != 400 {
			t.Errorf("%s: %d %v", name, status, got)
		}
	}
	if got := kinds(o); got != strings.TrimSpace(strings.Repeat("schema ", 6)) {
		t.Errorf("violations: %s", got)
	}
	if status, _ := p.call("DELETE", "/api/v1/executors/"+id, "", "Authorization", "Bearer wrong"); status != 401 {
		t.Errorf("delete with a wrong token: %d", status)
	}
	if status, _ := p.call("DELETE", "/api/v1/executors/"+id, "", "Authorization", "Bearer "+first); status != 204 {
		t.Errorf("delete: %d", status)
	}
	if status, _ := p.call("DELETE", "/api/v1/executors/"+id, "", "Authorization", "Bearer "+first); status != 404 {
		t.Errorf("delete again: %d", status)
	}
}

func TestAWrongTokenIsRefusedAfterTheUpgrade(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{})
	p := newPeer(t, o, id)
	header := http.Header{"Authorization": {"Bearer " + p.token}} // not looked at
	c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(o.URL(), "http")+"/ws/executors/"+id, header)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _, err = c.ReadMessage()
	if !websocket.IsCloseError(err, 4001) {
		t.Errorf("%v", err)
	}
}

// After a restart a socket with the old token is taken and everything on it is
// lost; a registration over it does not help.
func TestARestartKeepsTokensAndNothingElse(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{})
	p := newPeer(t, o, id)
	p.up()
	p.dispatch("m", "")
	p.shows("m", "assigned")
	token := p.token
	o.Restart()
	c := p.dial()
	p.send(c, "mission.started", "m", `{"state":"running","agent_runtime":"x"}`)
	p.eventually("the events are lost", func() bool { return o.Dropped() == 2 })
	if status, got := p.dispatch("n", ""); status != 503 || got["error"] != "no_executor_available" {
		t.Errorf("%d %v", status, got)
	}
	if _, ok := o.Mission("m"); ok {
		t.Error("the mission is still known")
	}
	if p.register(); p.token != token || p.isConnected() {
		t.Error("the token changed, or the old socket counts")
	}
}

func TestTheCloseOfAReplacedSocket(t *testing.T) {
	t.Parallel()
	for _, clobbers := range []bool{false, true} {
		o := start(t, orchestrator.Options{OldSocketClobbers: clobbers})
		p := newPeer(t, o, id)
		old := p.up()
		fresh := p.dial()
		p.eventually("the overlap is noted", func() bool { return kinds(o) == "overlap" })
		_ = old.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Second))
		for {
			if _, _, err := old.ReadMessage(); err != nil {
				break
			}
		}
		p.eventually("it shows", func() bool { return p.isConnected() != clobbers })
		p.eventually("events still come", func() bool {
			p.send(fresh, "mission.progress", "nobody's", `{}`)
			return o.Dropped() > 0
		})
	}
}

func TestSelectionOfAnExecutor(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{})
	local := newPeer(t, o, id, "isolation:host", "hitl")
	vm := newPeer(t, o, other, "isolation:vm", "resumable")
	local.up()
	if status, got := local.dispatch("a", ""); status != 202 || got["executor_id"] != id || got["estimated_start"] != "2026-05-09T07:13:22.123Z" {
		t.Errorf("the only one: %d %v", status, got)
	}
	if status, got := local.dispatch("b", `,"long_running":true`); status != 503 || got["error"] != "no_resumable_executor_available" {
		t.Errorf("long running: %d %v", status, got)
	}
	vm.up()
	for more, want := range map[string]string{
		``: other,
		`,"executor_filter":{"capabilities":["hitl"]}`:                                           id,
		`,"executor_filter":{"executor_id":"` + id + `","capabilities":["isolation:vm"]}`:        id,
		`,"executor_filter":{"executor_id":null,"capabilities":[]},"metadata":{"free":["form"]}`: other,
		`,"long_running":true`: other,
	} {
		if status, got := local.dispatch("c", more); status != 202 || got["executor_id"] != want {
			t.Errorf("%s: %d %v", more, status, got)
		}
	}
	want := "POST /dispatch Bearer " + local.token + " " + string(order("a", ""))
	if got := local.seen(); got[0] != want {
		t.Errorf("forwarded as %q", got[0])
	}
	for _, more := range []string{`,"executor_filter":{"agent_id":"a"}`, `,"completion":null`, `,"extra":1`, `,"metadata":null`} {
		if status, _ := local.dispatch("d", more); status != 400 {
			t.Errorf("%s: %d", more, status)
		}
	}
}

func TestWhatTheModesTake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opt  orchestrator.Options
		more string
	}{
		"agent id": {orchestrator.Options{AllowAgentID: true}, `,"executor_filter":{"agent_id":"a"}`},
		"built":    {orchestrator.Options{Built: true}, `,"completion":null,"extra":1`},
		"second":   {orchestrator.Options{Generation: 2}, `,"a2a_instance_id":"i"`},
	} {
		o := start(t, c.opt)
		p := newPeer(t, o, id)
		p.up()
		if status, got := p.dispatch("m", c.more); status != 202 {
			t.Errorf("%s: %d %v", name, status, got)
		}
	}
}

func TestTheSecondGenerationTriesAnotherPathFirst(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{Generation: 2})
	p := newPeer(t, o, id)
	p.up()
	if status, got := p.dispatch("m", ""); status != 202 || got["dispatch_path"] != "v1-fallback" {
		t.Fatalf("%d %v", status, got)
	}
	got := p.seen()
	if len(got) != 2 || !strings.HasPrefix(got[0], "POST /agents/"+id+"/v1/messages:send ") || !strings.HasPrefix(got[1], "POST /dispatch ") {
		t.Errorf("requests %v", got)
	}
	p.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) }
	if status, _ := p.dispatch("n", ""); status != 502 {
		t.Errorf("405: %d", status)
	}
}

func TestAnyRefusalFailsTheMissionEvenARunningOne(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{})
	p := newPeer(t, o, id)
	c := p.up()
	p.dispatch("m", "")
	p.send(c, "mission.started", "m", `{"state":"running","agent_runtime":"x","pty_session_id":"p"}`)
	if m := p.shows("m", "running"); m.PTYSessionRef != "p" {
		t.Errorf("%+v", m)
	}
	p.answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "twice", 409) }
	if status, got := p.dispatch("m", ""); status != 502 || got["error"] != "executor_forward_failed" || got["detail"] != "twice" {
		t.Errorf("%d %v", status, got)
	}
	if m := p.shows("m", "failed"); m.Error != "executor returned 409" {
		t.Errorf("%+v", m)
	}
	p.rest.Close()
	if status, got := p.dispatch("gone", ""); status != 502 || got["error"] != "executor_unreachable" {
		t.Errorf("%d %v", status, got)
	}
}

func TestCommandsAreEventsInTheOtherDirection(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{})
	p := newPeer(t, o, id)
	c := p.up()
	mission := "a/../b"
	path := "/api/v1/missions/" + url.PathEscape(mission)
	p.dispatch(mission, "")
	for _, s := range []struct{ verb, body, event, state string }{
		{"pause", "", "mission.paused", "paused"},
		{"resume", "", "mission.resumed", "running"},
		{"hitl_response", `{"hitl_id":"h","response":"y"}`, "mission.hitl_responded", "running"},
		{"abort", "", "mission.aborted", "aborted"},
	} {
		if status, got := p.call("POST", path+"/"+s.verb, s.body); status != 200 || got["ok"] != true {
			t.Fatalf("%s: %d %v", s.verb, status, got)
		}
		if e := p.read(c); e.Event != s.event || e.MissionID != mission {
			t.Errorf("%s pushed %+v", s.verb, e)
		}
		p.shows(mission, s.state)
	}
	if status, _ := p.call("POST", path+"/hitl_response", `{"hitl_id":"h"}`); status != 400 {
		t.Errorf("without a response: %d", status)
	}
	if status, _ := p.call("POST", "/api/v1/missions/none/pause", ""); status != 404 {
		t.Errorf("unknown mission: %d", status)
	}
	_ = c.Close()
	p.eventually("it is away", func() bool { return !p.isConnected() })
	if status, _ := p.call("POST", path+"/hitl_response", `{"hitl_id":"h","response":"y"}`); status != 503 {
		t.Errorf("away: %d", status)
	}
	if status, got := p.call("GET", path, ""); status != 200 || got["mission_id"] != mission || got["completed_at"] == nil {
		t.Errorf("%d %v", status, got)
	}
}

func TestBreachesAreRecorded(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{})
	p := newPeer(t, o, id)
	c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(o.URL(), "http")+"/ws/executors/"+id+"?token="+p.token, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p.eventually("it is connected", p.isConnected)
	p.dispatch("m", "")
	done := `{"state":"done","exit_code":0}`
	p.send(c, "mission.completed", "m", done)
	p.send(c, "mission.completed", "m", done) // sent again: fine
	p.send(c, "mission.progress", "m", `{}`)
	p.send(c, "executor.resync", "", `{"owned_mission_ids":["m"]}`)
	p.send(c, "mission.started", "m", `{"state":"running"}`) // dropped
	thief := newPeer(t, o, other)
	d := thief.up()
	thief.send(d, "mission.aborted", "m", `{"state":"aborted"}`)
	p.shows("m", "aborted")
	if got := kinds(o); got != "first_frame after_terminal resync_terminal schema ownership" {
		t.Errorf("violations: %s", got)
	}
}

func TestAResyncForcesRunning(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{})
	p := newPeer(t, o, id)
	c := p.up()
	p.dispatch("m", "")
	p.send(c, "mission.hitl_required", "m", `{"hitl_id":"h","prompt":"?"}`)
	p.shows("m", "hitl-required")
	p.send(c, "mission.progress", "m", `{"summary":"does not leave it"}`)
	p.send(c, "executor.resync", "", `{"owned_mission_ids":["m","unknown"]}`)
	p.shows("m", "running")
}

func TestOnlyTheLoopbackAndTheOperatorGetIn(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "0.0.0.0:0"); err == nil {
		if err := orchestrator.New(orchestrator.Options{}).Serve(l); err == nil {
			t.Error("it serves on every address")
		}
		_ = l.Close()
	}
	o := start(t, orchestrator.Options{OperatorToken: "sesame"})
	p := newPeer(t, o, id)
	p.up()
	path := "/api/v1/sessions/s/dispatch"
	for name, c := range map[string]struct {
		header []string
		status int
	}{
		"no token":       {nil, 401},
		"wrong token":    {[]string{"Authorization", "Bearer sesamf"}, 401},
		"foreign origin": {[]string{"Authorization", "Bearer sesame", "Origin", "http://evil.example"}, 403},
		"foreign host":   {[]string{"Authorization", "Bearer sesame", "Host", "evil.example"}, 403},
		"own origin":     {[]string{"Authorization", "Bearer sesame", "Origin", o.URL()}, 202},
		"operator":       {[]string{"Authorization", "Bearer sesame"}, 202},
	} {
		if status, got := p.call("POST", path, string(order("m", "")), c.header...); status != c.status {
			t.Errorf("%s: %d %v", name, status, got)
		}
	}
	if status, _ := p.call("POST", "/api/v1/missions/m/abort", ""); status != 401 {
		t.Errorf("abort without a token: %d", status)
	}
	if status, _ := p.call("GET", "/api/v1/missions/m", ""); status != 200 {
		t.Errorf("the executor's read-back needs no token: %d", status)
	}
}

func TestFollowSeesEveryEventInOrder(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{KeepEvents: 10})
	p := newPeer(t, o, id)
	c := p.up()
	p.dispatch("m", "")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := o.Follow(ctx)
	go func() {
		for i := range 1000 {
			_ = c.WriteJSON(map[string]any{"event": "mission.progress", "executor_id": id, "mission_id": "m",
				"ts": "2026-05-09T07:13:22.123Z", "data": map[string]int{"iteration": i}})
		}
	}()
	for i := 0; i < 1000; {
		e := <-events
		if e.Event != "mission.progress" {
			continue
		}
		if want := `{"iteration":` + strconv.Itoa(i) + `}`; string(e.Data) != want {
			t.Fatalf("event %d is %s", i, e.Data)
		}
		i++
	}
	if got := o.Events("m"); len(got) != 10 {
		t.Errorf("%d events are kept", len(got))
	}
	cancel()
	for range events { // it is closed
	}
}

func TestOldMissionsAreForgotten(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{MaxMissions: 3})
	p := newPeer(t, o, id)
	c := p.up()
	for i := range 6 {
		mission := "m" + strconv.Itoa(i)
		p.dispatch(mission, "")
		p.send(c, "mission.aborted", mission, `{"state":"aborted"}`)
		p.shows(mission, "aborted")
	}
	if _, ok := o.Mission("m0"); ok {
		t.Error("the oldest is still there")
	}
	if _, ok := o.Mission("m5"); !ok {
		t.Error("the newest is gone")
	}
}

func TestTheSandboxIsAnsweredWithoutACredential(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{})
	p := newPeer(t, o, id)
	body := `{"name":"n","grpc_endpoint":"` + p.rest.URL + `","ws_endpoint":"ws://h","http_endpoint":"` + p.rest.URL + `","instance_id":"` + id + `"}`
	status, got := p.call("POST", "/api/sandboxes/register", body)
	if status != 201 || got["sandbox_id"] != id {
		t.Fatalf("%d %v", status, got)
	}
	c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(o.URL(), "http")+"/ws/sandbox/"+id+"?token="+got["token"].(string), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.WriteJSON(map[string]string{"type": "agent_connected", "agent_id": "a"})
	_ = c.WriteJSON(map[string]string{"type": "hitl_input_required", "agent_id": "a", "session_id": "s", "hitl_id": "h/1", "prompt": "?"})
	p.eventually("the question is there", func() bool { return len(o.SandboxQuestions()) == 1 })
	if status, _ := p.call("POST", "/api/hitl/none/respond", `{"text":"y"}`); status != 404 {
		t.Errorf("unknown question: %d", status)
	}
	if status, _ := p.call("POST", "/api/hitl/h%2F1/respond", `{"text":"y"}`); status != 202 {
		t.Errorf("answer: %d", status)
	}
	if got := p.seen(); len(got) != 1 || got[0] != `POST /api/v1/hitl/h/1/respond  {"text":"y"}` {
		t.Errorf("the sandbox got %q", got)
	}
	if len(o.SandboxQuestions()) != 0 {
		t.Error("the question stays")
	}
}

// Who does not know the path reaches no route.
func TestAPathBeforeEveryRoute(t *testing.T) {
	t.Parallel()
	o := start(t, orchestrator.Options{Path: "/sesame"})
	root := strings.TrimSuffix(o.URL(), "/sesame")
	for url, want := range map[string]int{
		root + "/api/v1/executors/x": http.StatusNotFound, root + "/sesam/api/v1/executors/register": http.StatusNotFound,
		root + "/api/v1/executors/register": http.StatusNotFound, o.URL() + "/api/v1/executors/register": http.StatusBadRequest,
	} {
		resp, err := http.Post(url, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", url, resp.StatusCode, want)
		}
	}
}
