// Package examples holds the tests of the examples that are modules of their
// own: third parties' plugins, which import the sdk only. The go command of
// the main module does not look into them, so these tests do.
package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pluginFolder is what a plugin's folder says that it is: plugin-KIND-NAME or
// plugin-NAME.
var pluginFolder = regexp.MustCompile(`^plugin-[a-z0-9-]+$`)

func TestExamplePluginsPassTheirOwnTests(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("plugin-*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("there are no example plugins: %v", err)
	}
	for _, module := range modules {
		dir := filepath.Dir(module)
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			if !pluginFolder.MatchString(dir) {
				t.Fatalf("%s is no plugin's folder", dir)
			}
			onlySDK(t, dir)
			// As a third party would, but without the network: what is needed
			// was fetched for the main module. An out-of-date go.mod is an
			// error; `go mod tidy` in the folder brings it up to date.
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout", "10m", "./...")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", cmd, err, out)
			}
		})
	}
}

// onlySDK checks that a plugin uses nothing of the project that a third party
// does not have.
func onlySDK(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	const project = "github.com/airlock-host/airlock/"
	for _, path := range strings.Fields(string(out)) {
		rest, ours := strings.CutPrefix(path, project)
		if ours && !strings.HasPrefix(rest, "sdk/") && !strings.HasPrefix(rest, "proto/") {
			t.Errorf("it imports %s", path)
		}
	}
}
