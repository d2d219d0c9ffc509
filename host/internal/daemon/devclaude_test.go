package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDevSaysWhyClaudeCodeCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "claude")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "native")
	if err := os.WriteFile(binary, []byte("\x7fELF and so on"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "nothing"))
	for path, want := range map[string]string{
		"":                           "there is no claude in PATH",
		filepath.Join(dir, "absent"): "no such file",
		script:                       "not the native binary",
		binary:                       "cells do not see what is in " + os.TempDir(),
	} {
		if got, err := findClaude(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "claude") {
			t.Errorf("%q: %q %v", path, got, err)
		}
	}
}

func TestDevKeepsTheRealKeyOutOfItsConfiguration(t *testing.T) {
	t.Setenv(claudeKey, "sk-canary-of-the-dev-test")
	c := &devClaude{binary: "/usr/local/bin/claude"}
	if text := c.blocks() + c.model(); strings.Contains(text, "canary") || !strings.Contains(text, claudeAPI) || !strings.Contains(text, `secret("env:`+claudeKey+`")`) {
		t.Errorf("%s", text)
	}
}
