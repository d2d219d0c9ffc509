package main

import (
	"context"
	"os"
	"strings"
	"testing"

	hclconfig "github.com/airlock-host/airlock/config"
)

// The example of docs/revokers.md is what the language and the plugin take.
func TestDocumentedExampleIsValid(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/revokers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## webhook\n")
	_, rest, _ = strings.Cut(rest, "```hcl\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the section has no example")
	}
	cfg, diags := hclconfig.Parse([]hclconfig.Source{{Name: "example.hcl", Bytes: []byte(text)}},
		hclconfig.Options{Strict: true, ReadSecret: func(string) ([]byte, error) { return []byte(strings.Repeat("k", 16)), nil }})
	if cfg == nil || len(cfg.Instances) != 1 || cfg.Instances[0].Ref() != "revoker.webhook.bank" {
		t.Fatalf("the example is no configuration: %v", diags)
	}
	w := newWebhook()
	content, diags := hclconfig.DecodePlugin(cfg.Instances[0], w.Describe().GetSchema(), nil)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if found := w.Validate(context.Background(), content); len(found) != 0 {
		t.Errorf("the plugin refuses it: %v", found)
	}
}
