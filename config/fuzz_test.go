package config

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad: whatever the text, Parse ends, answers either a Config or an error,
// and a formatted text means the same.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/diag/*.hcl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/surface.hcl", "dist/airlock.hcl") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(minimalText))
	f.Fuzz(func(t *testing.T, text []byte) {
		opts := testOptions()
		opts.Strict, opts.Sources = false, &Sources{}
		cfg, diags := Parse([]Source{{Name: "fuzz.hcl", Bytes: text}}, opts)
		if (cfg == nil) != diags.HasErrors() {
			t.Fatalf("config is nil: %v, diagnostics: %v", cfg == nil, diags)
		}
		DiagnosticsJSON(diags, opts.Sources)
		if cfg == nil {
			return
		}
		for _, inst := range cfg.Instances {
			DecodePlugin(inst, testSchema(), nil)
		}
		out, fmtDiags := Fmt(text, "fuzz.hcl")
		if fmtDiags.HasErrors() {
			t.Fatalf("a good text does not format: %v", fmtDiags)
		}
		again, diags := Parse([]Source{{Name: "fuzz.hcl", Bytes: out}}, opts)
		if diags.HasErrors() || again.Digest() != cfg.Digest() {
			t.Fatalf("the formatted text means something else: %v", diags)
		}
	})
}
