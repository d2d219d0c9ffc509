package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each canary finds the leak that it is there for; a CLI without one passes.
func TestEachLeakIsFound(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	program := filepath.Join(dir, "leaky")
	cmd := exec.Command("go", "build", "-o", program, "./testdata/leaky")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for leak, want := range map[string]string{
		"none": "", "hooks": "gates-in-force", "rules": "gates-in-force",
		"first": "decider-dead? denied-builtin denied-mcp denied-sub-agent workspace-settings deferred?", "second": "denied-second-gate workspace-settings",
		"mcp": "denied-mcp", "sub": "denied-sub-agent", "agent": "denied-sub-agent", "dead": "decider-dead", "dead2": "decider-dead",
		"silent": "decider-silent", "garbage": "decider-garbage", "workspace": "workspace-settings", "deferred": "deferred",
	} {
		t.Run(leak, func(t *testing.T) {
			t.Parallel()
			cli := filepath.Join(dir, "claude-"+leak)
			if err := os.Link(program, cli); err != nil {
				t.Fatal(err)
			}
			results, err := tryAll(t.Context(), cli, shortDir(t), func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			got := failed(results)
			for _, w := range strings.Fields(want) {
				name, maybe := strings.CutSuffix(w, "?")
				if i := slices.Index(got, name); i >= 0 {
					got = slices.Delete(got, i, i+1)
				} else if !maybe {
					t.Errorf("the canary %s does not find the leak", name)
				}
			}
			for _, name := range got {
				t.Errorf("%s fails: %s", name, results[name])
			}
		})
	}
}
