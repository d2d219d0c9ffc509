package configcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/config"
)

// run runs a command; out and errs are its two streams.
func run(t *testing.T, cmd *cobra.Command, stdin string, args ...string) (out, errs string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	cmd.SilenceErrors = true
	err = cmd.ExecuteContext(context.Background())
	return o.String(), e.String(), err
}

func TestInitWritesAValidConfiguration(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", `odd "${dir}" %{x}`)
	file := filepath.Join(dir, "airlock.hcl")
	out, errs, err := run(t, Init(), "", "--data-dir", filepath.Join(dir, "data"), "--run-dir", "/run/al", "--heads-dir", "/var/heads", "--plugins-dir", "/plug", file)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	if !strings.Contains(out, file) || !strings.Contains(out, "operator.token") {
		t.Errorf("out: %s", out)
	}
	cfg, diags := config.Load(file, config.Options{Strict: true})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if cfg.DataDir != filepath.Join(dir, "data") || cfg.RunDir != "/run/al" || cfg.Plugins.Dir != "/plug" || cfg.Governance.Head.File != "/var/heads/heads.jsonl" || cfg.Governance.Head.KeyFile != filepath.Join(dir, "host.key") {
		t.Errorf("%+v", cfg)
	}
	if got := cfg.Operators[0].UIDs; len(got) != 1 || int(got[0]) != os.Getuid() {
		t.Errorf("uids %v", got)
	}
	token, err := os.ReadFile(filepath.Join(dir, "operator.token"))
	if err != nil || len(strings.TrimSpace(string(token))) != 64 {
		t.Fatalf("token of %d bytes, %v", len(token), err)
	}
	if strings.Contains(out+errs, strings.TrimSpace(string(token))) {
		t.Error("the token is printed")
	}

	if err := os.WriteFile(file, []byte("# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, Init(), "", file); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a file that is there: %v", err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "# mine\n" {
		t.Errorf("it was overwritten: %q, %v", b, err)
	}
	if _, errs, err := run(t, Init(), "", "--force", file); err != nil {
		t.Errorf("--force: %v %s", err, errs)
	}
	if again, err := os.ReadFile(filepath.Join(dir, "operator.token")); err != nil || !bytes.Equal(again, token) {
		t.Errorf("the token was replaced: %v", err)
	}
}

func TestInitWritesNothingWhenTheTokenIsBad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "operator.token"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs, err := run(t, Init(), "", dir)
	if err == nil || !strings.Contains(errs, "a token has at least 32") {
		t.Errorf("%v\n%s", err, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "airlock.hcl")); !os.IsNotExist(err) {
		t.Errorf("written all the same: %v", err)
	}
}

func initIn(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "airlock.hcl")
	if _, errs, err := run(t, Init(), "", file); err != nil {
		t.Fatalf("%v %s", err, errs)
	}
	return file
}

func appendTo(t *testing.T, file, text string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(b, text...), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	file := initIn(t)
	out, errs, err := run(t, Validate(nil, nil), "", file)
	if err != nil || errs != "" || !strings.Contains(out, "is valid: 1 agent, 2 plugin instances; the plugins' own attributes were not checked.") {
		t.Errorf("%v %s %s", err, out, errs)
	}
	appendTo(t, file, "agent \"b\" {\n  isolation = isolation.host-supervisor.hots\n  runtime   = runtime.command.shell\n}\n")
	out, errs, err = run(t, Validate(nil, nil), "", file)
	if err == nil || !strings.Contains(err.Error(), "not valid: 1 error") || out != "" || !strings.Contains(errs, `Did you mean "isolation.host-supervisor.host"?`) || strings.Contains(errs, "\x1b") {
		t.Errorf("%v %s %s", err, out, errs)
	}
	if out, errs, err = run(t, Validate(nil, nil), "", "--quarantine", file); err != nil || !strings.Contains(out, "1 warning") || !strings.Contains(errs, "is not used") {
		t.Errorf("%v %s %s", err, out, errs)
	}
	if _, _, err = run(t, Validate(nil, nil), "", filepath.Join(filepath.Dir(file), "none")); err == nil {
		t.Error("no file is valid")
	}
}

func TestValidateJSON(t *testing.T) {
	t.Parallel()
	file := initIn(t)
	appendTo(t, file, "lisen {}\n")
	out, errs, err := run(t, Validate(nil, nil), "", "--json", file)
	if err == nil || errs != "" {
		t.Fatalf("%v %s", err, errs)
	}
	var v config.ValidationJSON
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	if v.Valid || v.Errors != 1 || len(v.Diagnostics) != 1 || v.Diagnostics[0].Range.Filename != file || v.Diagnostics[0].Snippet != "lisen {}" || v.Diagnostics[0].Range.Start.Column != 1 {
		t.Errorf("%s", out)
	}
}

func TestValidateAsksThePlugins(t *testing.T) {
	t.Parallel()
	file := initIn(t)
	check := func(_ context.Context, cfg *config.Config) hcl.Diagnostics {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "plugin says no", Detail: cfg.Instances[0].Ref(), Subject: &cfg.Instances[0].Range}}
	}
	if _, errs, err := run(t, Validate(check, nil), "", file); err == nil || !strings.Contains(errs, "plugin says no") {
		t.Errorf("%v %s", err, errs)
	}
	if _, errs, err := run(t, Validate(check, nil), "", "--no-plugins", file); err != nil {
		t.Errorf("%v %s", err, errs)
	}
	if _, errs, err := run(t, Validate(check, nil), "", "--quarantine", file); err != nil || !strings.Contains(errs, "Warning: plugin says no") {
		t.Errorf("%v %s", err, errs)
	}
}

func TestFmtFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad, link, lock := filepath.Join(dir, "a.hcl"), filepath.Join(dir, "b.hcl"), filepath.Join(dir, "x.lock.hcl")
	target := filepath.Join(t.TempDir(), "target")
	for _, f := range []string{bad, target, lock} {
		if err := os.WriteFile(f, []byte("a=1\n"), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	out, _, err := run(t, Fmt(), "", "--check", dir)
	if err == nil || out != bad+"\n"+link+"\n" {
		t.Errorf("--check: %v %q", err, out)
	}
	if b, err := os.ReadFile(bad); err != nil || string(b) != "a=1\n" {
		t.Errorf("--check changed it: %q, %v", b, err)
	}
	if out, errs, err := run(t, Fmt(), "", dir); err != nil || out != bad+"\n"+link+"\n" {
		t.Errorf("%v %q %s", err, out, errs)
	}
	for _, f := range []string{bad, target} {
		b, err := os.ReadFile(f)
		info, serr := os.Lstat(f)
		if err != nil || serr != nil || string(b) != "a = 1\n" || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %q %v %v", f, b, err, serr)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if b, err := os.ReadFile(lock); err != nil || string(b) != "a=1\n" {
		t.Errorf("the lock file is touched: %q, %v", b, err)
	}
	if out, _, err := run(t, Fmt(), "", "--check", dir); err != nil || out != "" {
		t.Errorf("a second time: %v %q", err, out)
	}
}

func TestFmtLeavesABrokenFileAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.hcl")
	if err := os.WriteFile(file, []byte("a = [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs, err := run(t, Fmt(), "", file)
	if err == nil || !strings.Contains(errs, "on "+file+" line") {
		t.Errorf("%v %s", err, errs)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "a = [\n" {
		t.Errorf("%q %v", b, err)
	}
}

func TestFmtStandardInput(t *testing.T) {
	t.Parallel()
	if out, _, err := run(t, Fmt(), "a=1\n", "-"); err != nil || out != "a = 1\n" {
		t.Errorf("%v %q", err, out)
	}
	if out, _, err := run(t, Fmt(), "a=1\n", "--check", "-"); err == nil || out != "" {
		t.Errorf("--check: %v %q", err, out)
	}
	if _, _, err := run(t, Fmt(), strings.Repeat("#", maxInput+1), "-"); err == nil {
		t.Error("endless input is accepted")
	}
}
