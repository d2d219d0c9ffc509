package deps

import (
	"bytes"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxModules is how many modules an author of a plugin may be given by the SDK.
const maxModules = 20

// The SDK stays small for whoever builds on it: few modules, and nothing of the
// host.
func TestWhatTheSDKPullsIn(t *testing.T) {
	t.Parallel()
	modules := map[string]bool{}
	for _, line := range goList(t, "{{with .Module}}{{.Path}}{{end}}") {
		modules[line] = true
	}
	if len(modules) > maxModules {
		t.Errorf("sdk/ and proto/ pull in %d modules, more than %d: %q", len(modules), maxModules, slices.Sorted(maps.Keys(modules)))
	}
	if len(modules) < 5 {
		t.Errorf("only %d modules were seen", len(modules))
	}
	for _, pkg := range goList(t, "{{.ImportPath}}") {
		for _, folder := range []string{"host", "config", "plugins"} {
			if strings.HasPrefix(pkg, module+folder+"/") || pkg == module+folder {
				t.Errorf("sdk/ or proto/ pulls in %s", pkg)
			}
		}
	}
}

// goList lists what sdk/ and proto/ need, tests left out.
func goList(t *testing.T, format string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "./sdk/...", "./proto/...")
	cmd.Dir = filepath.Join("..", "..")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, errs.String())
	}
	return strings.Fields(string(out))
}
