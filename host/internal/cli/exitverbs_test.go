package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// verbs are all that talk to a host, with words that they take.
var verbs = map[string][]string{
	"status": nil, "status TASK": {"t"}, "mission dispatch": {"echo"}, "mission plan": {"echo"}, "mission list": nil, "mission show": {"m"},
	"mission logs": {"m"}, "mission attach": {"m"}, "mission files": {"m"}, "mission kill": {"m"}, "mission pause": {"m"}, "mission resume": {"m"},
	"hitl list": nil, "hitl respond": {"q", "yes"},
	"control pause": {"t"}, "control resume": {"t"}, "control stop": {"t"}, "control restart": {"t"}, "control replan": {"t"},
	"approve": {"d", "approve_once", "--task", "t"}, "resolve": {"t", "i", "succeeded", "--explanation", "x"}, "waive": {"t", "issuer", "--explanation", "x"}, "token": {"t"},
	"journal events": {"t"}, "journal export": {"t"},
	"plugin list": nil, "plugin inspect": {"isolation.docker.x"}, "plugin reload": {"isolation.docker.x"},
	"ui": nil, "drain": nil, "reload": nil, "top": {"--once"}, "bench": {"-n", "1"}, "debug bundle": {"-o", "BUNDLE"},
}

// local are the verbs that need no host.
var local = []string{"journal verify", "journal repair", "plugin lock", "plugin verify", "plugin test", "plugin new", "image build", "version", "man"}

// The exit code of every verb is what docs/cli.md says, whatever the host answers.
func TestExitCodesOfEveryVerb(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]int{401: ExitNotAllowed, 403: ExitNotAllowed, 404: ExitNotFound, 409: ExitConflict, 500: ExitFailed, 504: ExitTimedOut} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":"because"}`)
		}))
		defer srv.Close()
		sh := &shell{t, map[string]string{"AIRLOCK_ADDR": srv.URL, "AIRLOCK_TOKEN": "x"}, "/nonexistent"}
		for verb, words := range verbs {
			name, _, _ := strings.Cut(verb, " TASK")
			args := append(strings.Fields(name), words...)
			for n, a := range args {
				if a == "BUNDLE" {
					args[n] = t.TempDir() + "/b.tar.gz"
				}
			}
			if r := sh.run(args...); r.code != want {
				t.Errorf("%s, the host answers %d: exit code %d, not %d: %s", verb, status, r.code, want, r.err)
			}
		}
	}
	away := &shell{t, map[string]string{"AIRLOCK_ADDR": "127.0.0.1:1", "AIRLOCK_TOKEN": "x"}, "/nonexistent"}
	for verb, words := range verbs {
		name, _, _ := strings.Cut(verb, " TASK")
		if r := away.run(append(strings.Fields(name), words...)...); r.code != ExitFailed {
			t.Errorf("%s without a host: exit code %d", verb, r.code)
		}
		if !strings.Contains(string(page), "`"+name) {
			t.Errorf("docs/cli.md does not tell of airlock %s", name)
		}
	}
	// No verb is left out.
	known := map[string]bool{"completion": true, "help": true}
	for verb := range verbs {
		name, _, _ := strings.Cut(verb, " TASK")
		known[name] = true
	}
	for _, name := range local {
		known[name] = true
		if name != "man" && !strings.Contains(string(page), "`"+name) {
			t.Errorf("docs/cli.md does not tell of airlock %s", name)
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "airlock ")
		if !c.HasSubCommands() && !known[name] && !strings.HasPrefix(name, "completion") {
			t.Errorf("airlock %s is in no list of this test", name)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(NewRoot("1"))
}
