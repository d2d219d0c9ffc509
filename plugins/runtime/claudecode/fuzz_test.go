package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever the CLI prints, nothing is allowed that nobody decided on, and nothing
// that cannot be read ends the plugin.
func FuzzStream(f *testing.F) {
	files, err := filepath.Glob("testdata/transcripts/*.jsonl")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text[:min(len(text), 64<<10)]))
	}
	f.Add(`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"tool_use_id":"t"}}`)
	f.Add("{\"type\":\"control_request\"\n[]\n\x00\n{\"type\":\"result\"}")
	f.Fuzz(func(t *testing.T, text string) {
		b := begin(t)
		for i, line := range strings.Split(text, "\n") {
			if i == 200 {
				break
			}
			b.cli(line)
		}
		for key, data := range b.writes {
			if strings.Contains(data, `"behavior":"allow"`) || strings.Contains(data, `"permissionDecision":"allow"`) {
				t.Errorf("allowed without a decision: %s %s", key, data)
			}
		}
	})
}
