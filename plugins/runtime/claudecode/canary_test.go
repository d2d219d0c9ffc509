package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/fake/claudecli"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// shortDir is a directory below which a socket fits.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestTheRealCLIPassesTheCanaries(t *testing.T) {
	t.Parallel()
	cli := claudecli.Need(t)
	begun := time.Now()
	results, err := tryAll(t.Context(), cli, shortDir(t), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", time.Since(begun))
	for name := range canaries {
		if results[name] != "pass" {
			t.Errorf("%s: %s", name, results[name])
		}
	}
	if len(results) != len(canaries) {
		t.Errorf("%d results of %d canaries", len(results), len(canaries))
	}
	dir := t.TempDir()
	if err := remember(dir, "d", "s", results); err != nil {
		t.Fatal(err)
	}
	if remembered(dir, "d", "s") == nil || remembered(dir, "e", "s") != nil || remembered(dir, "d", "t") != nil || remembered(dir, "d", "") != nil {
		t.Error("what was passed counts for another program, or not for its own")
	}
}

func TestWhatCannotBeTriedOutIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		program string
		mode    os.FileMode
		span    string
		want    string
	}{
		"missing":        {"", 0, "", "there is no Claude Code at"},
		"not executable": {"#!/bin/sh\n", 0o644, "", "chmod 755"},
		"for everybody":  {"#!/bin/sh\n", 0o777, "", "can be changed by others"},
		"another":        {"#!/bin/sh\necho '1.0.0 (Something)'\n", 0o755, "", "is not Claude Code"},
		"failing":        {"#!/bin/sh\necho broken >&2; exit 3\n", 0o755, "", "--version failed"},
		"out of range":   {"#!/bin/sh\necho '2.2.0 (Claude Code)'\n", 0o755, ">= 2.1, < 2.2", "not in version_range"},
		"no gates":       {"#!/bin/sh\n[ \"$1\" = --version ] && echo '2.1.400 (Claude Code)' && exit\necho no such flag >&2; exit 1\n", 0o755, "", "does not hold every call at its gates"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := shortDir(t) + "/claude"
			if c.program != "" {
				if err := os.WriteFile(path, []byte(c.program), c.mode); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, c.mode); err != nil { //nolint:gosec // what is tried out
					t.Fatal(err)
				}
			}
			cfg := &compiled{config: config{Binary: path, VersionRange: c.span}}
			if c.span != "" {
				cfg.wanted, _ = parseRange(c.span)
			}
			var h plugin.Health
			tryOut(context.Background(), cfg, t.TempDir(), shortDir(t), func(do func(*plugin.Health)) { do(&h) })
			if got := h.Current(); !strings.Contains(got.GetReason(), c.want) {
				t.Errorf("health %v", got)
			}
		})
	}
}
