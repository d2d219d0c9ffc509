package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/conformance"
)

// The built plugin passes the kit. It has no Claude Code there, and says so.
func TestTheBuiltPluginKeepsTheContract(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "airlock-runtime-claude-code")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	r, err := conformance.Binary(ctx, path, conformance.BinaryOptions{Timeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		want := conformance.Pass
		if c.Name == "plan-no-secrets" { // there is none in its configuration
			want = conformance.NotDeclared
		}
		if c.Result != want {
			t.Errorf("%s: %s: %s", c.Name, c.Result, c.Detail)
		}
	}
	if len(r.Checks) < 55 {
		t.Errorf("%d checks only", len(r.Checks))
	}
}
