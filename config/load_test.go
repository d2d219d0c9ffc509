package config

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	goodToken   = "0123456789abcdef0123456789abcdef"
	theSecret   = "s3cret-value-that-must-not-be-printed"
	minimalText = `
isolation "host-supervisor" "host" {}
runtime "command" "shell" {}
agent "a" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
}
operator "o" {
  uids = [1000]
}
`
)

// testOptions is an outside in which everything is the same every time.
func testOptions() Options {
	return Options{
		Strict:   true,
		Hostname: func() (string, error) { return "test-host", nil },
		LookupEnv: func(name string) (string, bool) {
			v, ok := map[string]string{"AIRLOCK_TEST_SECRET": theSecret, "AIRLOCK_TEST_BAD_TOKEN": strings.Repeat("bad token ", 5)}[name]
			return v, ok
		},
		ReadSecret: func(path string) ([]byte, error) {
			switch path {
			case "/secret":
				return []byte(theSecret + "\n"), nil
			case "/private":
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
			case "/open":
				return nil, errors.New("mode 0644: others can read it")
			}
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		},
		ReadToken: func(path string) ([]byte, error) {
			switch path {
			case "/short":
				return []byte("too-short-token\n"), nil
			case "/missing":
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(goodToken + "\n"), nil
		},
	}
}

func parse(t *testing.T, text string, change ...func(*Options)) (*Config, hcl.Diagnostics) {
	t.Helper()
	opts := testOptions()
	for _, c := range change {
		c(&opts)
	}
	cfg, diags := Parse([]Source{{Name: "test.hcl", Bytes: []byte(text)}}, opts)
	if (cfg == nil) != diags.HasErrors() {
		t.Fatalf("config is nil: %v, diagnostics: %v", cfg == nil, diags)
	}
	return cfg, diags
}

func mustParse(t *testing.T, text string, change ...func(*Options)) *Config {
	t.Helper()
	cfg, diags := parse(t, text, change...)
	if diags.HasErrors() {
		t.Fatalf("config is refused: %v", diags)
	}
	return cfg
}

// allText is every diagnostic with its place.
func allText(diags hcl.Diagnostics) string {
	var b strings.Builder
	for _, d := range diags {
		if d.Subject != nil {
			b.WriteString(place(*d.Subject) + " ")
		}
		b.WriteString(d.Summary + ": " + d.Detail + "\n")
	}
	return b.String()
}

func lenient(o *Options) { o.Strict = false }

// TestDiagnostics holds every text that an operator reads about a bad
// configuration: testdata/diag/NAME.hcl gives NAME.txt.
func TestDiagnostics(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/diag/*.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			opts := testOptions()
			opts.Sources = &Sources{}
			name := filepath.Base(file)
			cfg, diags := Parse([]Source{{Name: name, Bytes: text}}, opts)
			if cfg != nil || !diags.HasErrors() {
				t.Fatal("a bad configuration was accepted")
			}
			var got bytes.Buffer
			if err := WriteDiagnostics(&got, diags, opts.Sources, 0, false); err != nil {
				t.Fatal(err)
			}
			for _, d := range diags {
				if d.Severity == hcl.DiagError && (d.Subject == nil || d.Subject.Start.Line == 0) || d.Summary == "" || d.Detail == "" {
					t.Errorf("diagnostic without a place or a text: %v", d)
				}
			}
			golden(t, strings.TrimSuffix(file, ".hcl")+".txt", got.Bytes())
			if bytes.Contains(got.Bytes(), []byte(theSecret)) {
				t.Error("a secret is printed")
			}
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test ./config -update rewrites it); got:\n%s", file, got)
	}
}
