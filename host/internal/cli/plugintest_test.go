package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestPluginTestOfSomethingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "airlock-runtime-text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\necho hello\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		has  string
	}{
		"nothing there":      {[]string{"plugin", "test", filepath.Join(dir, "none")}, ExitFailed, "no such file"},
		"no plugin":          {[]string{"plugin", "test", text}, ExitFailed, "1 of 1 checks failed"},
		"no cell agent":      {[]string{"plugin", "test", "--cell-agent", filepath.Join(dir, "none"), text}, ExitNotFound, "the cell agent"},
		"no configuration":   {[]string{"plugin", "test", "--config", filepath.Join(dir, "none.hcl"), text}, ExitFailed, "cannot be used"},
		"an unknown kind":    {[]string{"plugin", "new", "policy", "x", "-o", filepath.Join(dir, "new")}, ExitFailed, "no template"},
		"a name that is bad": {[]string{"plugin", "new", "runtime", "A B", "-o", filepath.Join(dir, "new")}, ExitFailed, "not made of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newRoot(&app{version: "0.0.0-dev", getenv: func(string) string { return "" }})
			var out strings.Builder
			root.SetOut(&out)
			root.SetErr(&out)
			root.SetArgs(tt.args)
			if code := Execute(t.Context(), root); code != tt.code || !strings.Contains(out.String(), tt.has) {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, tt.code, tt.has, out.String())
			}
		})
	}
}

// --config takes the block that fits the executable's name.
func TestPluginTestConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.hcl")
	if err := os.WriteFile(file, []byte("runtime \"other\" \"x\" {\n}\nruntime \"mine\" \"x\" {\n  config {\n    n = 3\n  }\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	read, err := pluginConfig(file, "/somewhere/airlock-runtime-mine")
	if err != nil {
		t.Fatal(err)
	}
	schema := &pluginv1.ConfigSchema{Attributes: []*pluginv1.Attribute{
		{Name: "n", Type: "number", Description: "a number"}, {Name: "s", Type: "string", DefaultJson: `"d"`, Description: "a string"},
	}}
	if got, err := read(schema); err != nil || string(got) != `{"n":3,"s":"d"}` {
		t.Errorf("the configuration is %s (%v)", got, err)
	}
	if _, err := pluginConfig(file, "airlock-runtime-third"); ExitCode(err) != ExitNotFound {
		t.Errorf("a file without the plugin's block: %v", err)
	}
}
