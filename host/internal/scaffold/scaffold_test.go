package scaffold_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/scaffold"
)

// What is written compiles, is formatted, passes its own test and the checks.
func TestWhatIsWrittenWorks(t *testing.T) {
	t.Parallel()
	for _, kind := range scaffold.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "new")
			o := scaffold.Options{Kind: kind, Name: "mine-2", Module: "example.com/team/mine", SDK: root}
			if err := scaffold.Write(dir, o); err != nil {
				t.Fatal(err)
			}
			if out := in(t, dir, "gofmt", "-l", "."); out != "" {
				t.Errorf("not formatted: %s", out)
			}
			in(t, dir, "go", "build", "-o", o.File(), ".")
			in(t, dir, "go", "vet", ".")
			in(t, dir, "go", "test", "-short", "./...")
			// Some of the checks: the test of the documentation runs all of them.
			only := map[string]string{
				"isolation": "start-ok,stop-kills-grandchildren,recover-after-plugin-kill",
				"runtime":   "plan-valid,run-exit-result,replay-from-checkpoint",
				"revoker":   "grant-ok,revoke-idempotent,revoke-after-restart",
			}
			args := []string{"plugin", "test", "--json", "--only", "handshake,config-defaults,describe-matches-file," + only[kind], "./" + o.File()}
			var report struct {
				Plugin, Contract string
				Checks           []struct{ Name, Result, Detail string }
			}
			if err := json.Unmarshal([]byte(in(t, dir, "airlock", args...)), &report); err != nil {
				t.Fatal(err)
			}
			if report.Plugin != o.File()+" 0.1.0" || report.Contract != "airlock.plugin.v1" || len(report.Checks) < 6 {
				t.Errorf("the report is %+v", report)
			}
			for _, c := range report.Checks {
				if c.Result != "pass" && c.Result != "not_declared" {
					t.Errorf("%s: %s %s", c.Name, c.Result, c.Detail)
				}
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		dir  string
		o    scaffold.Options
		want string
	}{
		"an unknown kind":      {"new", scaffold.Options{Kind: "policy", Name: "x"}, "no template"},
		"a name with a slash":  {"new", scaffold.Options{Kind: "runtime", Name: "a/b"}, "not made of"},
		"a name with capitals": {"new", scaffold.Options{Kind: "runtime", Name: "Mine"}, "not made of"},
		"a full directory":     {full, scaffold.Options{Kind: "runtime", Name: "x"}, "not empty"},
		"an SDK that is none":  {"new", scaffold.Options{Kind: "runtime", Name: "x", SDK: full}, "the SDK"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tt.dir
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(t.TempDir(), dir)
			}
			if err := scaffold.Write(dir, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want something with %q", err, tt.want)
			}
		})
	}
}

// Without a checkout the module of the same version is required.
func TestPublishedModule(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	if err := scaffold.Write(dir, scaffold.Options{Kind: "revoker", Name: "x", Version: "1.2.3"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"module example.com/airlock-revoker-x\n", "\tgithub.com/airlock-host/airlock v1.2.3\n"} {
		if !strings.Contains(string(b), line) {
			t.Errorf("go.mod lacks %q:\n%s", line, b)
		}
	}
	if strings.Contains(string(b), "replace") {
		t.Errorf("go.mod replaces something:\n%s", b)
	}
}
