package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
)

func TestJournalEvents(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	for range 150 {
		h.Engine.Emit("m1", journal.Progress, map[string]any{"phase": "execution\x1b[2J"})
	}
	sh := alice(t, h)
	r := sh.run("journal", "events", "m1").want(t, 0).has(t, "task_opened", "phase=")
	if n := strings.Count(r.out, "\n"); n != 153 || strings.Contains(r.out, "\x1b") {
		t.Errorf("%d lines, escape %v", n, strings.Contains(r.out, "\x1b"))
	}
	r = sh.run("journal", "events", "m1", "--after", "152", "--json").want(t, 0)
	if got := r.object(t); got["sequence"] != 153.0 || strings.Count(r.out, "\n") != 1 {
		t.Errorf("events = %s", r.out)
	}
	go func() { _ = h.Engine.End("m1", 0) }()
	sh.run("journal", "events", "m1", "--follow").want(t, 0).has(t, "ended")
	sh.run("journal", "events", "none").want(t, ExitNotFound)
	sh.run("journal", "events", "none", "--follow").want(t, ExitNotFound)
}

func TestExportAndVerify(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m/1", "agent-01")
	for i := range 120 {
		h.Engine.Emit("m/1", journal.Progress, map[string]any{"iteration": i, "summary": "<é>"})
	}
	sh := alice(t, h)
	dir := t.TempDir()
	file := filepath.Join(dir, "m1.jsonl")
	sh.run("journal", "export", "m/1", "-o", file).want(t, 0)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	alone := &shell{t: t, socket: "/nonexistent"} // verify needs no host
	alone.run("journal", "verify", file).want(t, 0).has(t, "the journal is right", "123", "not checked")
	if got := alone.run("journal", "verify", file, "--json").want(t, 0).object(t); got["ok"] != true || got["against_head"] != false {
		t.Errorf("verify = %v", got)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if r := sh.run("journal", "export", "m/1").want(t, 0); r.out != string(text) {
		t.Error("two exports differ")
	}
	sh.run("journal", "export", "none", "-o", filepath.Join(dir, "none.jsonl")).want(t, ExitNotFound)
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}

	// What is no file is written to and stays what it is.
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1)
	go func() {
		got, _ := os.ReadFile(pipe)
		read <- string(got)
	}()
	sh.run("journal", "export", "m/1", "-o", pipe).want(t, 0)
	if got := <-read; got != string(text) {
		t.Errorf("through a pipe came %d bytes of %d", len(got), len(text))
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("the pipe is %v, %v now", info, err)
	}
	alone.run("journal", "verify", filepath.Join(dir, "none.jsonl")).want(t, ExitNotFound)

	head, err := h.Engine.Head(t.Context(), "m/1")
	if err != nil {
		t.Fatal(err)
	}
	one := filepath.Join(dir, "head.json")
	writeJSON(t, one, head)
	signed, pub := signedHeads(t, dir, head)
	against := map[string][]string{"one head": {"--head", one}, "signed heads": {"--head", signed, "--key", pub}}
	lines := strings.SplitAfter(string(text), "\n")
	damaged := map[string]struct{ text, fault string }{
		"cut off":       {strings.Join(lines[:100], ""), "truncated"},
		"torn":          {string(text[:len(text)-5]), "torn"},
		"one changed":   {strings.Replace(string(text), `\"iteration\":7,`, `\"iteration\":8,`, 1), "changed"},
		"one missing":   {strings.Join(append(append([]string{}, lines[:5]...), lines[6:]...), ""), "gap"},
		"empty":         {"", "empty"},
		"not a journal": {"hello\n", "malformed"},
	}
	bad := filepath.Join(dir, "bad.jsonl")
	for how, args := range against {
		alone.run(append([]string{"journal", "verify", file}, args...)...).want(t, 0).has(t, "contains its trusted head")
		for name, d := range damaged {
			if err := os.WriteFile(bad, []byte(d.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r := alone.run(append([]string{"journal", "verify", bad, "--json"}, args...)...).want(t, ExitFailed)
			if got := r.object(t); got["ok"] != false || got["fault"] != d.fault {
				t.Errorf("%s, %s: %v", how, name, got)
			}
		}
	}
	// Without a head a cut end cannot be seen, and verify says so.
	if err := os.WriteFile(bad, []byte(damaged["cut off"].text), 0o600); err != nil {
		t.Fatal(err)
	}
	alone.run("journal", "verify", bad).want(t, 0).has(t, "not checked")

	other := head
	other.TaskID = "m2"
	writeJSON(t, one, other)
	alone.run("journal", "verify", file, "--head", one).want(t, ExitFailed).has(t, `"m2"`)
	alone.run("journal", "verify", file, "--head", signed).want(t, ExitFailed).has(t, "--key")
	alone.run("journal", "verify", file, "--key", pub).want(t, ExitFailed).has(t, "--head")
	forged, _ := signedHeads(t, t.TempDir(), head)
	alone.run("journal", "verify", file, "--head", forged, "--key", pub).want(t, ExitFailed).has(t, "cannot be trusted")
	otherSigned, otherPub := signedHeads(t, t.TempDir(), other)
	alone.run("journal", "verify", file, "--head", otherSigned, "--key", otherPub).want(t, ExitFailed).has(t, "no head of task")
	alone.run("journal", "verify", file, "--json", "--head", otherSigned, "--key", otherPub).want(t, ExitFailed).has(t, "no head of task")
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// signedHeads has a host's own file of signed heads made.
func signedHeads(t *testing.T, dir string, head journal.Head) (file, pub string) {
	t.Helper()
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "host.key"))
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "heads.jsonl")
	l, err := heads.Open(heads.Options{File: file, Key: key, Interval: time.Millisecond, Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	l.Publish([]journal.NewHead{{Head: head}}, true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return file, filepath.Join(dir, "host.key.pub")
}
