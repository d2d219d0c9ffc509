package api_test

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// socket is an open WebSocket.
type socket struct {
	*websocket.Conn
	t *testing.T
}

// dial opens a socket, or gives the refusal.
func dial(t *testing.T, h *apitest.Host, token, path string, header ...string) (*socket, int) {
	t.Helper()
	head := http.Header{}
	if token != "" {
		head.Set("Authorization", "Bearer "+token)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		head.Set(name, value)
	}
	d := websocket.Dialer{HandshakeTimeout: time.Minute}
	c, resp, err := d.Dial(h.WS+path, head)
	if err != nil {
		if resp == nil {
			t.Fatalf("dial %s: %v", path, err)
		}
		return nil, resp.StatusCode
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { _ = c.Close() })
	return &socket{c, t}, http.StatusSwitchingProtocols
}

func mustDial(t *testing.T, h *apitest.Host, token, path string) *socket {
	t.Helper()
	s, status := dial(t, h, token, path)
	if s == nil {
		t.Fatalf("%s: refused with %d", path, status)
	}
	return s
}

// frame reads a text frame.
func (s *socket) frame() map[string]any {
	s.t.Helper()
	kind, data, err := s.ReadMessage()
	if err != nil || kind != websocket.TextMessage {
		s.t.Fatalf("frame of kind %d: %q, %v", kind, data, err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		s.t.Fatal(err)
	}
	return m
}

// output reads binary frames until n bytes have come.
func (s *socket) output(n int) string {
	s.t.Helper()
	var out []byte
	for len(out) < n {
		kind, data, err := s.ReadMessage()
		if err != nil || kind != websocket.BinaryMessage {
			s.t.Fatalf("after %d of %d bytes: frame of kind %d: %.100q, %v", len(out), n, kind, data, err)
		}
		out = append(out, data...)
	}
	return string(out)
}

// closed reads until the socket ends and gives the close code.
func (s *socket) closed() int {
	s.t.Helper()
	for {
		_, _, err := s.ReadMessage()
		if err == nil {
			continue
		}
		if ce, ok := err.(*websocket.CloseError); ok { //nolint:errorlint // never wrapped
			return ce.Code
		}
		s.t.Fatalf("not closed with a frame: %v", err)
	}
}

func (s *socket) say(frame string) {
	s.t.Helper()
	if err := s.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
		s.t.Fatal(err)
	}
}

func TestAttachReadsTypesAndEnds(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m/1", "agent-01")
	live := h.Engine.Live("m/1")
	if err := live.Print("0123456789"); err != nil {
		t.Fatal(err)
	}
	s := mustDial(t, h, apitest.AliceToken, "/ws/sessions/pty-m%2F1?write=1&from=4")
	if f := s.frame(); f["type"] != "ready" || f["from"] != 4.0 || f["write"] != true || f["mission_id"] != "m/1" {
		t.Fatalf("ready = %v", f)
	}
	if got := s.output(6); got != "456789" {
		t.Errorf("output = %q", got)
	}
	s.say(`{"type":"input","data":"ls\r"}`)
	if got := s.output(3); got != "ls\r" {
		t.Errorf("echo = %q", got)
	}
	if err := s.WriteMessage(websocket.BinaryMessage, []byte{3, 0xff}); err != nil {
		t.Fatal(err)
	}
	if got := s.output(2); got != "\x03\xff" {
		t.Errorf("echo of bytes = %q", got)
	}
	s.say(`{"type":"resize","cols":120,"rows":40}`)
	eventually(t, "the resize", func() bool { return strings.Join(live.Sizes(), " ") == "120x40" })
	s.say(`{"type":"dance"}`)
	if f := s.frame(); f["type"] != "error" || f["status"] != 400.0 {
		t.Errorf("unknown frame = %v", f)
	}
	if err := live.Log().Gap(0, 100); err != nil {
		t.Fatal(err)
	}
	if err := live.Print("end"); err != nil {
		t.Fatal(err)
	}
	if f := s.frame(); f["type"] != "gap" || f["from"] != 15.0 || f["to"] != 100.0 {
		t.Errorf("gap = %v", f)
	}
	if got := s.output(3); got != "end" {
		t.Errorf("after the gap = %q", got)
	}
	if err := h.Engine.End("m/1", 0); err != nil {
		t.Fatal(err)
	}
	if f := s.frame(); f["type"] != "end" || f["offset"] != 103.0 {
		t.Errorf("end = %v", f)
	}
	if code := s.closed(); code != websocket.CloseNormalClosure {
		t.Errorf("close code %d", code)
	}
}

func TestOneWriterManyReaders(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	writer := mustDial(t, h, apitest.AliceToken, "/ws/sessions/pty-m1?write=1")
	writer.frame()
	if s, status := dial(t, h, apitest.RobToken, "/ws/sessions/pty-m1?write=1"); s != nil || status != http.StatusConflict {
		t.Errorf("second writer: %d", status)
	}
	late := mustDial(t, h, "", "/ws/sessions/pty-m1?write=1")
	late.say(`{"type":"auth","token":"` + apitest.RobToken + `"}`)
	if f := late.frame(); f["type"] != "error" || f["status"] != 409.0 {
		t.Errorf("second writer by frame = %v", f)
	}
	if code := late.closed(); code != 4409 {
		t.Errorf("close code %d", code)
	}
	reader := mustDial(t, h, apitest.VicToken, "/ws/sessions/pty-m1")
	reader.frame()
	reader.say(`{"type":"input","data":"rm -rf /\r"}`)
	if f := reader.frame(); f["status"] != 403.0 {
		t.Errorf("a reader's input = %v", f)
	}
	reader.say(`{"type":"resize","cols":1,"rows":1}`)
	if f := reader.frame(); f["status"] != 403.0 {
		t.Errorf("a reader's resize = %v", f)
	}
	if err := reader.WriteMessage(websocket.BinaryMessage, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if f := reader.frame(); f["status"] != 403.0 {
		t.Errorf("a reader's bytes = %v", f)
	}
	if got := h.Engine.Live("m1").Typed(); got != "" {
		t.Errorf("typed %q", got)
	}
	_ = writer.Close()
	eventually(t, "the slot to be free", func() bool {
		s, _ := dial(t, h, apitest.RobToken, "/ws/sessions/pty-m1?write=1")
		return s != nil
	})
}

func TestSocketsCheckWhoComes(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	h.Mission(t, "m2", "agent-02")
	tests := []struct {
		name, token, path, header string
		status                    int
	}{
		{"stranger", strings.Repeat("x", 32), "/ws/sessions/pty-m1", "", 401},
		{"viewer who wants to type", apitest.VicToken, "/ws/sessions/pty-m1?write=1", "", 403},
		{"another operator's session", apitest.RobToken, "/ws/sessions/pty-m2", "", 404},
		{"no such session", apitest.AliceToken, "/ws/sessions/none", "", 404},
		{"no such socket", apitest.AliceToken, "/ws/other", "", 404},
		{"bad offset", apitest.AliceToken, "/ws/sessions/pty-m1?from=x", "", 400},
		{"bad cursor", apitest.AliceToken, "/ws/events?after=x", "", 400},
		{"token in the URL", "", "/ws/sessions/pty-m1?token=" + apitest.AliceToken, "", 400},
		{"foreign page", apitest.AliceToken, "/ws/events", "Origin: http://evil.example", 403},
		{"foreign page without a credential", "", "/ws/events", "Origin: http://evil.example", 403},
		{"foreign name", apitest.AliceToken, "/ws/events", "Host: evil.example", 403},
		{"our page", apitest.AliceToken, "/ws/events", "Origin: " + h.REST, 101},
	}
	for _, tt := range tests {
		var header []string
		if tt.header != "" {
			header = append(header, tt.header)
		}
		if _, status := dial(t, h, tt.token, tt.path, header...); status != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, status, tt.status)
		}
	}
	for name, first := range map[string]string{
		"wrong token": `{"type":"auth","token":"` + strings.Repeat("x", 32) + `"}`, "not auth": `{"type":"input","token":"` + apitest.AliceToken + `"}`,
		"unknown member": `{"type":"auth","token":"` + apitest.AliceToken + `","actor":"root"}`, "junk": `hello`,
	} {
		s := mustDial(t, h, "", "/ws/events")
		s.say(first)
		if f := s.frame(); f["type"] != "error" || f["status"] != 401.0 {
			t.Errorf("%s: %v", name, f)
		}
		if code := s.closed(); code != 4401 {
			t.Errorf("%s: close code %d", name, code)
		}
	}
	s := mustDial(t, h, "", "/ws/sessions/pty-m1")
	s.say(`{"type":"auth","token":"` + apitest.VicToken + `"}`)
	if f := s.frame(); f["type"] != "ready" || f["write"] != nil {
		t.Errorf("ready = %v", f)
	}
	if strings.Contains(h.Logs.String(), apitest.AliceToken) {
		t.Error("a token is in the log")
	}
}

func TestSocketsWithoutACredentialAreBounded(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	refused := 0
	for range 70 {
		if s, status := dial(t, h, "", "/ws/events"); s == nil && status == http.StatusServiceUnavailable {
			refused++
		}
	}
	if refused != 6 {
		t.Errorf("%d of 70 refused, want 6", refused)
	}
	mustDial(t, h, apitest.VicToken, "/ws/events").frame()
}

func TestEventFeedShowsWhatTheOperatorMaySeeAndResumes(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "old", "agent-01")
	rob := mustDial(t, h, apitest.RobToken, "/ws/events")
	first := rob.frame()
	if first["type"] != "ready" || first["cursor"] != "3" {
		t.Fatalf("ready = %v", first)
	}
	h.Mission(t, "hers", "agent-02")
	h.Mission(t, "his", "agent-01")
	var cursor string
	for i := range 3 {
		f := rob.frame()
		ev := f["event"].(map[string]any)
		if f["type"] != "event" || ev["task_id"] != "his" || ev["sequence"] != float64(i+1) {
			t.Errorf("frame = %v", f)
		}
		if i == 0 {
			cursor = f["cursor"].(string)
		}
	}
	again := mustDial(t, h, apitest.RobToken, "/ws/events?after="+cursor)
	again.frame()
	if ev := again.frame()["event"].(map[string]any); ev["task_id"] != "his" || ev["sequence"] != 2.0 {
		t.Errorf("resumed at %v", ev)
	}
	vic := mustDial(t, h, apitest.VicToken, "/ws/events?after=0&task=hers")
	vic.frame()
	if ev := vic.frame()["event"].(map[string]any); ev["task_id"] != "hers" || ev["kind"] != string(journal.TaskOpened) {
		t.Errorf("vic sees %v", ev)
	}
}

// TestSlowReaderIsDroppedAndHoldsNobodyUp is F19.
func TestSlowReaderIsDroppedAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	h := apitest.New(t, func(o *api.Options) { o.WriteTimeout = 3 * time.Second })
	h.Mission(t, "m1", "agent-01")
	live := h.Engine.Live("m1")
	d := websocket.Dialer{NetDial: func(network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		if tc, ok := c.(*net.TCPConn); ok {
			_ = tc.SetReadBuffer(4 << 10)
		}
		return c, err
	}}
	head := http.Header{"Authorization": {"Bearer " + apitest.VicToken}}
	slow, _, err := d.Dial(h.WS+"/ws/sessions/pty-m1", head)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	sockets := func() bool {
		return strings.Contains(call(t, h, apitest.VicToken, "GET", "/metrics", "").body, "airlock_api_websockets 0")
	}
	chunk := strings.Repeat("x", 64<<10)
	for range 500 {
		if err := live.Print(chunk); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the slow reader to be dropped", sockets)
	fast := mustDial(t, h, apitest.VicToken, "/ws/sessions/pty-m1")
	fast.frame()
	if got := fast.output(500 * len(chunk)); len(got) != 500*len(chunk) {
		t.Errorf("a reader after it got %d bytes", len(got))
	}
}

func TestServerTakesItsSocketsDown(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	s := mustDial(t, h, apitest.VicToken, "/ws/sessions/pty-m1")
	s.frame()
	e := mustDial(t, h, apitest.VicToken, "/ws/events")
	e.frame()
	h.Server.Close()
	if code := s.closed(); code != websocket.CloseGoingAway {
		t.Errorf("attach: close code %d", code)
	}
	if code := e.closed(); code != websocket.CloseGoingAway {
		t.Errorf("events: close code %d", code)
	}
}
