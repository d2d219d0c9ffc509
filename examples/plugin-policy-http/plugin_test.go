package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// TestMain makes the test binary its own plugin: the kit starts it as a host
// would, kills it and starts it again.
func TestMain(m *testing.M) {
	if os.Getenv(plugin.MagicCookieKey) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// server is a judge that objects to calls of Danger.
type server struct {
	*httptest.Server
	mode atomic.Pointer[string]
	hold chan struct{} // closed at the end
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{hold: make(chan struct{})}
	s.set("")
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() { close(s.hold); s.Close() })
	return s
}

func (s *server) set(mode string) { s.mode.Store(&mode) }

// while puts the server into a mode until back is called.
func (s *server) while(mode string) func(context.Context) (func() error, error) {
	return func(context.Context) (func() error, error) {
		s.set(mode)
		return func() error { s.set(""); return nil }, nil
	}
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	var a asked
	text, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(text, &a) != nil || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer t0ken-of-the-judge" {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer := `{"findings":[]}`
	if a.Tool == "Danger" {
		answer = `{"findings":[{"rule":"danger","outcome":"BLOCK","reason":"too dangerous"}]}`
	}
	switch mode := *s.mode.Load(); mode {
	case "":
	case "500":
		w.WriteHeader(http.StatusInternalServerError)
	case "redirect":
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		return
	case "stall":
		select {
		case <-s.hold:
		case <-r.Context().Done():
		}
		return
	case "html":
		w.Header().Set("Content-Type", "text/html")
	default:
		answer = mode
	}
	_, _ = io.WriteString(w, answer)
}

func start(t *testing.T, to string) *conformance.PolicyProcess {
	t.Helper()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(config{URL: to, Token: "t0ken-of-the-judge", Timeout: "30s"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := conformance.StartPolicy(t.Context(), exe, dir, &pluginv1.ConfigureRequest{Instance: "http", ConfigJson: text, StateDir: dir, RunDir: dir, HostId: "host"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func TestConformance(t *testing.T) {
	s := newServer(t)
	p := start(t, s.URL)
	checks := conformance.Policy(t.Context(), p.Policy(), conformance.PolicyOptions{
		Judge: conformance.Judge{
			Object:   &pluginv1.Proposal{ProposalId: "p1", Tool: "Danger", Args: []byte("{}")},
			Severity: pluginv1.Decision_DECISION_BLOCK,
			Pass:     &pluginv1.Proposal{ProposalId: "p2", Tool: "Read", Args: []byte("{}")},
			Away:     s.while("500"), Stall: s.while("stall"), Garbage: s.while(`{"ok":true}`),
		},
		Restart: p.Restart, Logs: p.Logs,
	})
	if len(checks) < 10 {
		t.Errorf("there are %d checks only", len(checks))
	}
	for _, c := range checks {
		if c.Result != conformance.Pass {
			t.Errorf("%s: %s: %s", c.Name, c.Result, c.Detail)
		}
	}
	if strings.Contains(p.Logs(), "t0ken") {
		t.Error("the token is in the log")
	}
}

func TestWhatIsNoOpinionIsAnError(t *testing.T) {
	s := newServer(t)
	p := start(t, s.URL)
	for _, mode := range []string{
		"500", "redirect", "html", "", "null", "[]", "{}", `{"findings":null}`, `{"findings":[]} x`, `{"findings":[],"more":1}`,
		`{"findings":[{"rule":"r","outcome":"MAYBE","reason":"x"}]}`, `{"findings":[{"rule":"r","outcome":"UNSPECIFIED","reason":"x"}]}`,
		`{"findings":[{"rule":"","outcome":"BLOCK","reason":"x"}]}`, `{"findings":[{"rule":"r","outcome":"BLOCK"}]}`,
		`{"findings":[` + strings.Repeat(" ", maxAnswer) + `]}`,
	} {
		s.set(mode)
		r, err := p.Policy().Evaluate(t.Context(), &pluginv1.EvaluateRequest{
			TaskId: "t", Proposal: &pluginv1.Proposal{ProposalId: "p", Tool: "Read", Args: []byte("{}")},
		})
		if wanted := mode != ""; (err != nil) != wanted || len(r.GetFindings()) > 0 {
			t.Errorf("the answer %.40q: %v, %v", mode, r, err)
		}
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for to, good := range map[string]bool{
		"https://judge.example.com/v1": true, "http://127.0.0.1:8080/": true, "http://[::1]:8080/": true, "http://localhost/": true,
		"http://judge.example.com/": false, "http://192.0.2.1/": false, "ftp://127.0.0.1/": false, "judge": false, "": false,
		"https://user:pw@judge.example.com/": false, "https://": false,
	} {
		text, err := json.Marshal(config{URL: to})
		if err != nil {
			t.Fatal(err)
		}
		err = (&judge{}).Configure(t.Context(), &pluginv1.ConfigureRequest{ConfigJson: text})
		if (err == nil) != good {
			t.Errorf("%q: %v", to, err)
		}
	}
}
