package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestDirectoryIsReadInNameOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gov := "governance {\n  mode = \"observe\"\n  on_failure = \"fail_open\"\n  policy {\n    default = \"deny\"\n  }\n}\n"
	agent := "agent \"%s\" {\n  isolation = isolation.x.y\n  runtime = runtime.x.y\n}\n"
	write(t, dir, "20-second.hcl", fmt.Sprintf(agent, "second"), 0o644)
	write(t, dir, "10-first.hcl", fmt.Sprintf(agent, "first")+gov, 0o644)
	write(t, dir, "90-plugins.hcl", "isolation \"x\" \"y\" {}\nruntime \"x\" \"y\" {}\nname = \"n\"\n", 0o644)
	write(t, dir, ".hidden.hcl", "nonsense {", 0o644)
	write(t, dir, "plugins.lock.hcl", "plugin \"x\" {}", 0o644)
	write(t, dir, "readme.txt", "nonsense {", 0o644)
	write(t, dir, "old.hcl~", "nonsense {", 0o644)
	if err := os.Mkdir(filepath.Join(dir, "sub.hcl"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, diags := Load(dir, testOptions())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if len(c.Agents) != 2 || c.Agents[0].Name != "first" || c.Agents[1].Name != "second" || c.Name != "n" {
		t.Errorf("%+v", c.Agents)
	}
}

func TestDuplicatesAcrossFilesNameBothPlaces(t *testing.T) {
	t.Parallel()
	_, diags := Parse([]Source{
		{Name: "a.hcl", Bytes: []byte("data_dir = \"/a\"\nlisten {}\n")},
		{Name: "b.hcl", Bytes: []byte("listen {}\ndata_dir = \"/b\"\n")},
	}, testOptions())
	// The attribute is found while the files are merged, before the blocks.
	if text := allText(diags); !strings.Contains(text, "b.hcl:2,1") || !strings.Contains(text, "a.hcl:1,1") {
		t.Errorf("places: %v", text)
	}
	_, diags = Parse([]Source{{Name: "a.hcl", Bytes: []byte("\nlisten {}\n")}, {Name: "b.hcl", Bytes: []byte("listen {}\n")}}, testOptions())
	if text := allText(diags); !strings.Contains(text, "b.hcl:1,1") || !strings.Contains(text, "a.hcl:2,1") {
		t.Errorf("places: %v", text)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.hcl"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	big := write(t, dir, "big.hcl", "# "+strings.Repeat("x", maxFileBytes), 0o600)
	for path, want := range map[string]string{
		filepath.Join(dir, "none.hcl"): "no such file",
		filepath.Join(dir, "fifo.hcl"): "not a regular file",
		empty:                          "has no *.hcl file",
		big:                            "larger than",
	} {
		c, diags := Load(path, testOptions())
		if c != nil || !strings.Contains(diags.Error(), want) || !strings.Contains(diags.Error(), path) {
			t.Errorf("%s: %v, want %q", path, diags, want)
		}
	}
}

func TestTextEncodings(t *testing.T) {
	t.Parallel()
	crlf := strings.ReplaceAll(minimalText, "\n", "\r\n")
	for name, text := range map[string]string{"CRLF": crlf, "BOM": "\xef\xbb\xbf" + minimalText, "BOM and CRLF": "\xef\xbb\xbf" + crlf, "no newline at the end": strings.TrimSpace(minimalText)} {
		if mustParse(t, text).Digest() != mustParse(t, minimalText).Digest() {
			t.Errorf("%s reads as something else", name)
		}
	}
	sources := &Sources{}
	_, diags := parse(t, "\xef\xbb\xbf# größe\r\nlisten {\r\n  rést = 1\r\n}\r\n", func(o *Options) { o.Sources = sources })
	var out bytes.Buffer
	if err := WriteDiagnostics(&out, diags, sources, 0, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "on test.hcl line 3, in listen:\n   3:   rést = 1") {
		t.Errorf("wrong place:\n%s", out.String())
	}
	for name, text := range map[string]string{"UTF-16": "\xff\xfea\x00", "Latin-1": "# gr\xf6\xdfe\n", "NUL": "a\x00b = 1\n"} {
		if _, diags := parse(t, text); !diags.HasErrors() || diags[0].Subject == nil {
			t.Errorf("%s: %v", name, diags)
		}
	}
	if c := mustParse(t, strings.Replace(minimalText, "policy {", "# 宇宙\n policy {", 1)); c.Agents[0].Range.Filename != "test.hcl" {
		t.Error("no range")
	}
}

// What would make HCL's parser or evaluator recurse or multiply without bounds
// is refused first, in bounded time.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	rep := func(s string, n int) string { return strings.Repeat(s, n) }
	texts := map[string]string{
		"brackets":         "a = " + rep("[", 40000),
		"parentheses":      "a = " + rep("(", 40000) + "1" + rep(")", 40000),
		"blocks":           rep("a {\n", 40000),
		"negations":        "a = " + rep("!", 40000) + "true\n",
		"minuses":          "a = " + rep("-", 40000) + "1\n",
		"sum":              "a = 1" + rep("+1", 40000) + "\n",
		"conditions":       "a = " + rep("true ? 1 : ", 50000) + "1\n",
		"indices":          "a = b" + rep("[c]", 40000) + "\n",
		"attributes":       "a = b" + rep(".c", 40000) + "\n",
		"splats":           "a = b" + rep("[*]", 40000) + "\n",
		"templates":        "a = " + rep("\"${", 40000),
		"template parts":   "a = \"" + rep("${1}", 40000) + "\"\n",
		"sum over lines":   "a = (1\n" + rep("+1\n", 40000) + ")\n",
		"for":              "name = [for a in [1,2,3,4,5,6,7,8,9,0]: [for b in [1,2,3,4,5,6,7,8,9,0]: a]]\n",
		"exponent":         "uid_range = [1e999999999, 1]\n",
		"exponent in text": "uid_range = [\"1e999999999\", 1]\n",
		"exponent printed": "data_dir = \"${1e999999999}\"\n",
		"exponent summed":  "data_dir = \"${\"1e999999999\" + 0}\"\n",
		"calls":            "data_dir = \"" + rep("${env(\"A\")}", 300) + "\"\n",
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				sources := []Source{{Name: "x.hcl", Bytes: []byte(text)}}
				if _, diags := Parse(sources, testOptions()); !diags.HasErrors() {
					t.Error("accepted")
				}
			}()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("does not end")
			}
		})
	}
	many := "intentional = [\n" + rep("  \"x\",\n", 20000) + "]\n"
	if diags := checkText("x.hcl", []byte(many)); diags.HasErrors() {
		t.Errorf("a long list is refused: %v", diags)
	}
	var rules strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&rules, "rule \"r%d\" {\n  when = a.b == 1 && c.d < 2\n} # end\n", i)
	}
	if diags := checkText("x.hcl", []byte(rules.String())); diags.HasErrors() {
		t.Errorf("many rules are refused: %v", diags)
	}
}

func TestFmt(t *testing.T) {
	t.Parallel()
	got, diags := Fmt([]byte("a=1\nlonger   =  2\nb {\nc=3\n}\n"), "x.hcl")
	if diags.HasErrors() || string(got) != "a      = 1\nlonger = 2\nb {\n  c = 3\n}\n" {
		t.Errorf("%v %q", diags, got)
	}
	again, _ := Fmt(got, "x.hcl")
	if !bytes.Equal(again, got) {
		t.Errorf("not stable: %q", again)
	}
	src := []byte("a = [\n")
	if got, diags := Fmt(src, "x.hcl"); !diags.HasErrors() || !bytes.Equal(got, src) {
		t.Errorf("a bad file is changed: %q", got)
	}
}
