package messages

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/fake/claudecli"
)

// key is what the CLI sends in these tests.
const key = "sk-for-the-stand-in"

// run runs the real CLI against an API, in a directory of its own.
func run(t *testing.T, s *Server, change func(*claudecli.Options), prompt string) *claudecli.Result {
	t.Helper()
	o := claudecli.Options{Binary: claudecli.Need(t), Dir: t.TempDir(), Home: t.TempDir(), URL: s.URL, Socket: s.Socket, Key: key}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r, err := claudecli.Run(ctx, o, prompt)
	if err != nil {
		t.Fatalf("%v; stderr %s", err, r.Stderr)
	}
	return r
}

func serve(t *testing.T, addr string, o Options) *Server {
	t.Helper()
	o.Check = func(k string) error {
		if k != key {
			return os.ErrPermission
		}
		return nil
	}
	s, err := Serve(addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestTheRealCLIMakesSixToolCalls(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, addr := range map[string]string{"port": "127.0.0.1:0", "unix socket": "unix:" + filepath.Join(dir, "s")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, addr, Options{})
			work := t.TempDir()
			r := run(t, s, func(o *claudecli.Options) { o.Dir = work }, `Some words around the script, which count for nothing.
usage 1000 50 200 100
bash echo one > a.txt
read `+work+`/a.txt
say Now a file.
write `+work+`/b.txt first\nsecond\\n
edit `+work+`/b.txt|first|1st
parallel
bash cat a.txt b.txt
bash exit 3
end
report
`)
			if r.Exit != 0 || r.IsError || r.Reason != "completed" {
				t.Fatalf("%+v", r)
			}
			for _, want := range []string{"one", "1st\nsecond\\n", "Exit code 3"} {
				if !strings.Contains(r.Text, want) {
					t.Errorf("%q is not in %q", want, r.Text)
				}
			}
			var gates []string
			for _, a := range r.Asks {
				gates = append(gates, a.Gate+" "+a.Tool)
			}
			slices.Sort(gates)
			want := strings.Split("after Bash,after Bash,after Bash,after Edit,after Read,after Write,hook Bash,hook Bash,hook Bash,hook Edit,hook Read,hook Write,prompt Bash,prompt Bash,prompt Bash,prompt Edit,prompt Read,prompt Write", ",")
			if !slices.Equal(gates, want) {
				t.Errorf("gates %v", gates)
			}
			log := s.Requests()
			if len(log) != 6 {
				t.Fatalf("%d requests: %+v", len(log), log)
			}
			for _, q := range log {
				if q.Status != 200 || !q.Stream || q.Key != Digest(key) || q.Usage.Total() != 1350 || q.Session == "" || q.Header.Get("X-Api-Key") != "" {
					t.Errorf("%+v", q)
				}
			}
			if !slices.Contains(log[0].Roles, "system") {
				t.Errorf("no system message in %v: the test shows less than it says", log[0].Roles)
			}
			if text, err := os.ReadFile(filepath.Join(work, "b.txt")); err != nil || string(text) != "1st\nsecond\\n" {
				t.Errorf("%q %v", text, err)
			}
		})
	}
}

func TestTheRealCLIAsksAndIsAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", Options{})
	r := run(t, s, func(o *claudecli.Options) {
		o.Decide = func(a claudecli.Ask) any {
			if a.Gate != "prompt" {
				return nil
			}
			var in map[string]any
			_ = json.Unmarshal(a.Input, &in)
			in["answers"] = map[string]string{"Which colour?": "Blue"}
			return map[string]any{"behavior": "allow", "updatedInput": in}
		}
	}, "ask Which colour?|Red|Blue\nreport")
	if !strings.Contains(r.Text, `"Which colour?"="Blue"`) {
		t.Errorf("%+v", r)
	}
}

func TestTheRealCLIThroughFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		exit   int
		text   string
		status []int // of the requests
		plain  bool  // the last request was not streamed
	}{
		"overloaded for a while": {"overload 2\nsay there", 0, "there", []int{529, 529, 200}, false},
		"an error of its own":    {"error 400", 1, "the script answers 400", nil, false},
		"broken streams":         {"break\nsay whole", 0, "whole", nil, true},
		"a stream that fails":    {"fail 1\nsay whole", 0, "whole", nil, false},
		"out of tokens":          {"stop max_tokens half\nsay the rest", 0, "the rest", []int{200, 200}, false},
		"slow":                   {"slow 5\nsleep 10\nsilent 20\nthink first\nsay after all", 0, "after all", []int{200}, false},
		"no step":                {"hello there", 0, "stand-in", []int{200}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "127.0.0.1:0", Options{})
			r := run(t, s, func(o *claudecli.Options) { o.Env = []string{"CLAUDE_CODE_MAX_RETRIES=3"} }, c.script)
			log := s.Requests()
			var got []int
			for _, q := range log {
				got = append(got, q.Status)
			}
			if r.Exit != c.exit || !strings.Contains(r.Text, c.text) || c.status != nil && !slices.Equal(got, c.status) {
				t.Errorf("exit %d, %q, requests %v; stderr %s", r.Exit, r.Text, got, r.Stderr)
			}
			if c.plain && log[len(log)-1].Stream {
				t.Error("the CLI did not fall back to a plain request")
			}
		})
	}
}

func TestASessionOfTheRealCLIGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", Options{})
	work, home := t.TempDir(), t.TempDir()
	again := func(o *claudecli.Options) {
		o.Dir, o.Home, o.Session = work, home, "0b0e3c1e-52f3-4d2a-9f0e-3a8a5b1c7d21"
	}
	deferring := func(a claudecli.Ask) any {
		if a.Gate == "hook" && strings.Contains(string(a.Input), "two") {
			return map[string]any{"hookSpecificOutput": map[string]any{"hookEventName": "PreToolUse", "permissionDecision": "defer"}}
		}
		return nil
	}
	r := run(t, s, func(o *claudecli.Options) { again(o); o.Decide = deferring }, "bash echo one >> log\nbash echo two >> log\nbash echo three >> log\nsay all")
	if r.Reason != "tool_deferred" {
		t.Fatalf("%+v", r)
	}
	r = run(t, s, func(o *claudecli.Options) { again(o); o.Resume = true }, "")
	if r.Text != "all" {
		t.Fatalf("%+v", r)
	}
	r = run(t, s, func(o *claudecli.Options) { again(o); o.Resume = true }, "bash echo four >> log\nsay more")
	if r.Text != "more" {
		t.Fatalf("%+v", r)
	}
	if text, _ := os.ReadFile(filepath.Join(work, "log")); string(text) != "one\ntwo\nthree\nfour\n" {
		t.Errorf("%q", text)
	}
}

func TestASubAgentFollowsItsOwnScript(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", Options{})
	work := t.TempDir()
	r := run(t, s, func(o *claudecli.Options) { o.Dir, o.Tools = work, []string{"Bash", "Agent"} },
		`agent bash echo inner > inner\nsay inner said`+"\nbash echo outer > outer\nreport")
	if r.IsError {
		t.Fatalf("%+v", r)
	}
	for _, name := range []string{"inner", "outer"} {
		if text, _ := os.ReadFile(filepath.Join(work, name)); string(text) != name+"\n" {
			t.Errorf("%s: %q", name, text)
		}
	}
	agents := 0
	for _, q := range s.Requests() {
		if q.Agent != "" {
			agents++
		}
	}
	if agents != 2 {
		t.Errorf("%d requests of the sub-agent", agents)
	}
}
