package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// evalText evaluates an expression as a plugin's config block would.
func evalText(t *testing.T, text string, opts Options) (cty.Value, hcl.Diagnostics) {
	t.Helper()
	expr, diags := hclsyntax.ParseExpression([]byte(text), "x", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return evalExpr(expr, (&evaluator{opts: opts.withDefaults()}).context(false))
}

func TestEnvFunction(t *testing.T) {
	t.Parallel()
	opts := Options{LookupEnv: func(n string) (string, bool) {
		v, ok := map[string]string{"SET": "v", "EMPTY": "", "BAD": "\xff"}[n]
		return v, ok
	}}
	for text, want := range map[string]cty.Value{
		`env("SET")`:                         cty.StringVal("v"),
		`env("SET", "d")`:                    cty.StringVal("v"),
		`env("EMPTY", "d")`:                  cty.StringVal(""),
		`env("NONE", "d")`:                   cty.StringVal("d"),
		`env("NONE")`:                        cty.NullVal(cty.String),
		`env("NONE", null)`:                  cty.NullVal(cty.String),
		`env("NONE", env("SET"))`:            cty.StringVal("v"),
		`"a-${env("SET")}"`:                  cty.StringVal("a-v"),
		`env("SET") == "v" ? "yes" : "no"`:   cty.StringVal("yes"),
		`[env("SET"), { a = env("SET") }]`:   cty.TupleVal([]cty.Value{cty.StringVal("v"), cty.ObjectVal(map[string]cty.Value{"a": cty.StringVal("v")})}),
		`env("NONE") == null ? "off" : "on"`: cty.StringVal("off"),
	} {
		if got, diags := evalText(t, text, opts); diags.HasErrors() || !got.RawEquals(want) {
			t.Errorf("%s: %#v %v", text, got, diags)
		}
	}
	for _, text := range []string{`env()`, `env("A", "b", "c")`, `env(null)`, `env("A B")`, `env("")`, `env("BAD")`, `env(["A"])`, `env("A=B", "d")`} {
		if got, diags := evalText(t, text, opts); !diags.HasErrors() {
			t.Errorf("%s is accepted: %#v", text, got)
		}
	}
}

// No function but env and secret reads anything, and there are no others.
func TestNoOtherFunctions(t *testing.T) {
	t.Parallel()
	fns := (&evaluator{opts: Options{}.withDefaults()}).context(false).Functions
	if len(fns) != 2 || (&Config{}).LenientEvalContext().Variables != nil {
		t.Errorf("functions: %v", fns)
	}
}

func TestSecretFunction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := write(t, dir, "good", theSecret+"\n", 0o600)
	files := map[string]string{
		"mode 0644":       write(t, dir, "mode", theSecret, 0o644),
		"mode 0660":       write(t, dir, "gw", theSecret, 0o660),
		"empty":           write(t, dir, "empty", "\n", 0o600),
		"not text":        write(t, dir, "binary", "\xff\xfe", 0o600),
		"normal form":     write(t, dir, "nfd", "e\u0301"+theSecret, 0o600),
		"larger than":     write(t, dir, "big", strings.Repeat("x", maxSecretBytes+1), 0o600),
		"not a regular":   dir,
		"no such file":    filepath.Join(dir, "none"),
		"say where":       "", // a relative path
		"is not set":      "env",
		"say where the s": "exec",
	}
	opts := Options{LookupEnv: func(n string) (string, bool) { return theSecret, n == "SET" }}
	for text, want := range map[string]string{
		`secret("file:` + good + `")`: theSecret, `secret("env:SET")`: theSecret, `"Bearer ${secret("env:SET")}"`: "Bearer " + theSecret,
	} {
		got, diags := evalText(t, text, opts)
		plain, marks := got.UnmarkDeep()
		if _, marked := marks[sensitive]; diags.HasErrors() || !marked || !plain.RawEquals(cty.StringVal(want)) {
			t.Errorf("%s: marks %v, %v", text, marks, diags)
		}
	}
	for want, path := range files {
		text := `secret("file:` + path + `")`
		switch path {
		case "env":
			text = `secret("env:UNSET")`
		case "exec":
			text = `secret("exec:cat /etc/shadow")`
		case "":
			text = `secret("file:relative")`
		}
		_, diags := evalText(t, text, opts)
		if !diags.HasErrors() || !strings.Contains(allText(diags), want) {
			t.Errorf("%s: %v, want %q", text, diags, want)
		}
		if strings.Contains(allText(diags), theSecret) {
			t.Errorf("%s: the secret is printed", text)
		}
	}
	if _, diags := evalText(t, `secret("file:`+write(t, dir, "group", theSecret, 0o640)+`")`, opts); diags.HasErrors() {
		t.Errorf("mode 0640 is refused: %v", diags)
	}
}

// Wherever HCL might put a value into an error text, the secret is not in it.
func TestSecretsAreInNoDiagnostic(t *testing.T) {
	t.Parallel()
	opts := Options{LookupEnv: func(string) (string, bool) { return theSecret, true }}
	for _, text := range []string{
		`{ a = 1 }[secret("env:S")]`, `{ (secret("env:S")) = 1, (secret("env:S")) = 2 }`, `{ "x${secret("env:S")}" = 1 }.y`, `secret("env:S").foo`, `secret("env:S")[0]`,
		`secret("env:S") + 1`, `!secret("env:S")`, `-secret("env:S")`, `secret("env:S") ? 1 : 2`, `secret(secret("env:S"))`, `env(secret("env:S"))`, `secret("env:S")("x")`,
		`[1, 2][secret("env:S")]`, `secret("env:S") > 1`, `secret("env:S", "x")`, `secret("env:S") && true`, `secret(["env:S", secret("env:S")])`,
	} {
		expr, diags := hclsyntax.ParseExpression([]byte(text), "x", hcl.InitialPos)
		if !diags.HasErrors() {
			_, diags = evalExpr(expr, (&evaluator{opts: opts.withDefaults()}).context(false))
		}
		if !diags.HasErrors() {
			t.Errorf("%s is accepted", text)
		}
		if strings.Contains(allText(diags), theSecret) {
			t.Errorf("%s: the secret is printed: %v", text, diags)
		}
	}
}

func TestOperatorToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := func(n string) (string, bool) {
		v, ok := map[string]string{"GOOD": goodToken, "SHORT": "short", "EMPTY": ""}[n]
		return v, ok
	}
	file := func(name, text string, mode os.FileMode) Operator {
		return Operator{Name: "o", TokenFile: write(t, dir, name, text, mode)}
	}
	for name, o := range map[string]Operator{
		"file": file("good", goodToken+"\n", 0o600), "file without newline": file("bare", goodToken, 0o400), "CRLF": file("crlf", goodToken+"\r\n", 0o600), "env": {Name: "o", TokenEnv: "GOOD"},
	} {
		if got, err := o.Token(env); err != nil || got != goodToken {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for want, o := range map[string]Operator{
		"mode 0640":     file("group", goodToken, 0o640),
		"mode 0604":     file("other", goodToken, 0o604),
		"31 characters": file("short", goodToken[:31]+"\n", 0o600),
		"0 characters":  file("empty", "", 0o600),
		"cannot have":   file("lines", goodToken+"\n"+goodToken+"\n", 0o600),
		"cannot have: ": file("space", goodToken+" ", 0o600),
		"more than 409": file("long", strings.Repeat("x", 5000), 0o600),
		"no such file":  {Name: "o", TokenFile: filepath.Join(dir, "none")},
		"is not set":    {Name: "o", TokenEnv: "UNSET"},
		"holds 5 char":  {Name: "o", TokenEnv: "SHORT"},
		"holds 0 char":  {Name: "o", TokenEnv: "EMPTY"},
	} {
		got, err := o.Token(env)
		if err == nil || got != "" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), goodToken[:16]) {
			t.Errorf("want %q: %q, %v", want, got, err)
		}
		if errors.Is(err, ErrNoToken) {
			t.Errorf("%v reads as an operator without a token", err)
		}
	}
	if _, err := (Operator{Name: "o", UIDs: []uint32{1}}).Token(env); !errors.Is(err, ErrNoToken) {
		t.Errorf("uids only: %v", err)
	}
}
