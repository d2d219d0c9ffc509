package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// walkSpecs visits every block of the language with its path.
func walkSpecs(visit func(path string, b *blockSpec)) {
	var walk func(path string, b *blockSpec)
	walk = func(path string, b *blockSpec) {
		visit(path, b)
		for _, c := range b.blocks {
			walk(strings.TrimPrefix(path+"."+c.name, "."), c)
		}
	}
	walk("", rootSpec())
}

func TestSpecsAreWhole(t *testing.T) {
	t.Parallel()
	d := newDecoder(&evaluator{opts: Options{}.withDefaults()})
	walkSpecs(func(path string, b *blockSpec) {
		if b.doc == "" && path != "" {
			t.Errorf("block %s is not described", path)
		}
		seen := map[string]bool{}
		for _, a := range b.attrs {
			at := path + "." + a.name
			if seen[a.name] || b.block(a.name) != nil {
				t.Errorf("%s is there twice", at)
			}
			seen[a.name] = true
			if a.doc == "" || !strings.HasSuffix(a.doc, ".") {
				t.Errorf("%s is not described in a sentence", at)
			}
			if effectOf(path, a.name) == "" {
				t.Errorf("%s: when does a change of it count?", at)
			}
			if (a.typ.parse == nil) == (a.typ.expr == nil) {
				t.Errorf("%s has no way to be read, or two", at)
			}
			if a.required && (a.def != "" || a.computed != "") {
				t.Errorf("%s is required and has a default", at)
			}
			if a.def != "" {
				d.fallback(&a) // panics on a bad default
			}
		}
	})
	for path, attrs := range map[string][]string{"governance": {"mode", "on_failure"}, "governance.policy": {"default"}} {
		walkSpecs(func(p string, b *blockSpec) {
			for _, name := range attrs {
				if p == path && !b.attr(name).required {
					t.Errorf("%s.%s has a default; it decides what is let through", p, name)
				}
			}
		})
	}
}

// An attribute that is decoded and never read would be accepted and ignored.
func TestEveryEnforcedAttributeIsRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("build*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	var code string
	for _, f := range files {
		code += readTest(t, f)
	}
	walkSpecs(func(path string, b *blockSpec) {
		for _, a := range b.attrs {
			if !strings.Contains(code, fmt.Sprintf("%q", a.name)) {
				t.Errorf("nothing reads %s.%s", path, a.name)
			}
		}
	})
}

const (
	docFile  = "../docs/configuration.md"
	docBegin = "<!-- reference: generated from config/spec_*.go by `go test ./config -update` -->\n"
	docEnd   = "<!-- end of reference -->\n"
)

// The reference in the documentation is what the code does.
func TestReferencePage(t *testing.T) {
	t.Parallel()
	page := readTest(t, docFile)
	begin, end := strings.Index(page, docBegin), strings.Index(page, docEnd)
	if begin < 0 || end < begin {
		t.Fatalf("%s has no marks for the reference", docFile)
	}
	want := page[:begin+len(docBegin)] + "\n" + referencePage() + page[end:]
	if *update {
		if err := os.WriteFile(docFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		page = want
	}
	if page != want {
		t.Errorf("%s is not up to date: run go test ./config -update", docFile)
	}
	walkSpecs(func(path string, b *blockSpec) {
		for _, a := range b.attrs {
			if !strings.Contains(page, "| `"+a.name+"` |") {
				t.Errorf("%s.%s is not in the page", path, a.name)
			}
		}
	})
}

// effectWords are the effects as the page has them.
var effectWords = map[Effect]string{Applied: "applies", NextMission: "next mission", RestartNeeded: "restart"}

// referencePage is every block and attribute as Markdown.
func referencePage() string {
	var out strings.Builder
	walkSpecs(func(path string, b *blockSpec) {
		head := "Top level"
		if path != "" {
			head = "`" + path
			for _, l := range b.labels {
				head += fmt.Sprintf(" %q", strings.ToUpper(l.what))
			}
			head += "`"
		}
		fmt.Fprintf(&out, "### %s\n\n", head)
		if path != "" {
			how := []string{}
			if b.required {
				how = append(how, "required")
			}
			if b.repeat {
				how = append(how, "may be repeated")
			}
			say := b.doc
			if len(how) > 0 {
				say += " (" + strings.Join(how, ", ") + ")"
			}
			fmt.Fprintf(&out, "%s\n\n", say)
		}
		if len(b.attrs) == 0 {
			return
		}
		out.WriteString("| attribute | type | default | a reload | |\n|---|---|---|---|---|\n")
		for _, a := range b.attrs {
			def := "none"
			switch {
			case a.required:
				def = "**required**"
			case a.def != "":
				def = "`" + a.def + "`"
			case a.computed != "":
				def = a.computed
			}
			typ := a.typ.name
			if a.sensitive {
				typ += ", secret"
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", a.name, typ, def, effectWords[effectOf(path, a.name)], a.doc)
		}
		out.WriteString("\n")
	})
	return out.String()
}
