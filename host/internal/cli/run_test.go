package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

// result is what a command line did.
type result struct {
	code     int
	out, err string
}

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// shell runs command lines with an environment of its own.
type shell struct {
	t      *testing.T
	env    map[string]string
	socket string
}

// alice is a shell of an operator over TCP.
func alice(t *testing.T, h *apitest.Host) *shell {
	return &shell{t, map[string]string{"AIRLOCK_ADDR": h.REST, "AIRLOCK_TOKEN": apitest.AliceToken}, filepath.Join(t.TempDir(), "none.sock")}
}

func (s *shell) with(name, value string) *shell {
	env := map[string]string{name: value}
	for k, v := range s.env {
		if _, set := env[k]; !set {
			env[k] = v
		}
	}
	return &shell{s.t, env, s.socket}
}

func (s *shell) run(args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	var out, errs buffer
	code := s.start(ctx, strings.NewReader(""), &out, &errs, args...)
	return result{code, out.String(), errs.String()}
}

func (s *shell) start(ctx context.Context, in io.Reader, out, errs io.Writer, args ...string) int {
	root := newRoot(&app{version: "1.2.3", getenv: func(k string) string { return s.env[k] }, socket: s.socket})
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	return Execute(ctx, root)
}

// want checks the exit code.
func (r result) want(t *testing.T, code int, args ...string) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("%v: exit code %d, want %d\nout: %s\nerr: %s", args, r.code, code, r.out, r.err)
	}
	if code != 0 && r.err == "" {
		t.Fatalf("%v: exit code %d without a word", args, r.code)
	}
	return r
}

// has checks what was printed.
func (r result) has(t *testing.T, words ...string) result {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(r.out+r.err, w) {
			t.Errorf("%q is not in\nout: %s\nerr: %s", w, r.out, r.err)
		}
	}
	return r
}

// object decodes what was printed.
func (r result) object(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(r.out), &m); err != nil {
		t.Fatalf("%q: %v", r.out, err)
	}
	return m
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came true: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
