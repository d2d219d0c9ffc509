package cli

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/sdk/conformance"
)

// A shell completes what the host knows, and nothing when there is none.
func TestCompletionKnowsTheHostsNames(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m-one", "agent-01")
	h.Mission(t, "has blank", "agent-01")
	if err := h.Engine.Ask("m-one", "q-one", "sure?"); err != nil {
		t.Fatal(err)
	}
	sh := alice(t, h)
	for args, want := range map[string]string{
		"mission show": "m-one\t", "mission logs": "m-one\t", "mission attach": "m-one\t", "control stop": "m-one\t", "status": "m-one\t",
		"journal events": "m-one\t", "plugin inspect": "isolation.docker.container\t", "hitl respond": "q-one\tm-one: sure?",
		"mission dispatch --agent": "agent-01\t",
	} {
		got := sh.run(append(append([]string{"__complete"}, strings.Fields(args)...), "")...).want(t, 0).out
		if !strings.Contains(got, want) || strings.Contains(got, "has blank") {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	if got := sh.run("__complete", "approve", "some-decision", "").want(t, 0).out; !strings.Contains(got, "approve_once") {
		t.Errorf("approve: %q", got)
	}
}

func TestPlanTopAndBundle(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m-one", "agent-01")
	sh := alice(t, h)
	sh.run("mission", "plan", "true").want(t, 0).has(t, "start at once", "agent-01", "it comes second")
	sh.run("mission", "plan", "true", "--agent", "none").want(t, ExitNotFound).has(t, "would be refused")
	if got := sh.run("mission", "plan", "true", "--json").want(t, 0).object(t); got["would"] != "start" {
		t.Errorf("plan --json: %v", got)
	}
	sh.run("top").want(t, 0).has(t, "m-one", "MISSION", "running 1")
	sh.run("top", "--interval", "1ms").want(t, ExitFailed)
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	sh.run("debug", "bundle", "-o", file).want(t, 0).has(t, file)
	sh.run("debug", "bundle", "-o", file).want(t, ExitFailed) // nothing is overwritten
	sh.run("bench", "-n", "0").want(t, ExitFailed)
	sh.run("mission", "dispatch", "something else", "--id", "m-one").want(t, ExitConflict)
	sh.run("plugin", "inspect", "./no/such/file").want(t, ExitNotFound)
}

func TestChecksAsJUnit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "junit.xml")
	err := writeJUnit(file, &conformance.Report{Plugin: "p", Checks: []conformance.Check{
		{Name: "a", Result: conformance.Pass}, {Name: "b", Result: conformance.Fail, Detail: "it <broke> & fell"}, {Name: "c", Result: conformance.NotDeclared},
	}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s junitSuite
	if err := xml.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if s.Tests != 3 || s.Failures != 1 || s.Skipped != 1 || s.Cases[1].Failure == nil || s.Cases[1].Failure.Message != "it <broke> & fell" || s.Cases[2].Skipped == nil || s.Cases[0].Failure != nil {
		t.Errorf("%s", text)
	}
}

func TestCredentialsInURLsAreCut(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"http://user:pass@host/x"`:       `"http://(not-shown)@host/x"`,
		`http://host/x?a=1&api_key=abc d`: `http://host/x?a=1&api_key=(not-shown) d`,
		`"http://host/x?token=abc"`:       `"http://host/x?token=(not-shown)"`,
		`"http://host/x?a=1" a@b`:         `"http://host/x?a=1" a@b`,
	} {
		if got := string(credentials.ReplaceAll([]byte(in), []byte("${1}${3}(not-shown)${2}"))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
