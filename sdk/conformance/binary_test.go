package conformance_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/conformance"
)

// plugin builds a program once under a plugin's name.
func plugin(t *testing.T, name, pkg string) string {
	t.Helper()
	dir, err := os.MkdirTemp(programs.dir, "p")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := build(path, pkg); err != nil {
		t.Fatal(err)
	}
	return path
}

func check(t *testing.T, path string, o conformance.BinaryOptions, undeclared ...string) *conformance.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	o.AgentBinary = programs.agent
	r, err := conformance.Binary(ctx, path, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		t.Logf("%s: %s %s (%v)", c.Name, c.Result, c.Detail, c.Took)
		wanted := conformance.Pass
		if slices.Contains(undeclared, c.Name) {
			wanted = conformance.NotDeclared
		}
		if c.Result != wanted {
			t.Errorf("%s: %s, want %s: %s", c.Name, c.Result, wanted, c.Detail)
		}
	}
	return r
}

// Every kind of plugin is checked as a program.
func TestBinaryOfARuntime(t *testing.T) {
	t.Parallel()
	r := check(t, plugin(t, "airlock-runtime-command", "github.com/airlock-host/airlock/plugins/runtime/command"),
		conformance.BinaryOptions{}, "plan-no-secrets")
	if len(r.Checks) < 45 {
		t.Errorf("there are %d checks only", len(r.Checks))
	}
	b, err := json.Marshal(r.Checks[0])
	if err != nil || string(b) != `{"name":"handshake","result":"pass","detail":""}` {
		t.Errorf("a check is %s as JSON (%v)", b, err)
	}
}
