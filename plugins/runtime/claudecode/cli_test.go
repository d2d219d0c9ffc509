package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// command is the command of a proposal of Bash.
func command(p *pluginv1.Proposal) string { return pick(p.GetArgs(), "command") }

// story is a mission in which everything happens once.
func story(h *smallHost) string {
	return `usage 1000 50
bash echo one > a.txt
read ` + h.file("a.txt") + `
write ` + h.file("b.txt") + ` first
edit ` + h.file("b.txt") + `|first|second
bash touch blocked
bash touch before
ask Which color?|Red|Blue
bash touch held
bash touch deferred
say Everything is done.
`
}

// tells decides like the operators of the story.
func tells(h *smallHost) func(*pluginv1.Proposal) *pluginv1.Verdict {
	paused := false
	return func(p *pluginv1.Proposal) *pluginv1.Verdict {
		name := strings.TrimPrefix(command(p), "touch ")
		if name != command(p) && h.there(name) {
			h.t.Errorf("%s is there before it was decided on", name)
		}
		switch name {
		case "blocked":
			return verdictOf(blocked, "not this one", "")
		case "before":
			return verdictOf(warn, "it was rewritten", `{"command":"touch after"}`)
		case "held":
			s := h.stream
			time.AfterFunc(300*time.Millisecond, func() { h.give(s, p, verdictOf(allow, "", "")) })
			return nil
		case "deferred":
			if !paused {
				paused = true
				return verdictOf(pauses, "a human decides", "")
			}
		}
		return verdictOf(allow, "", "")
	}
}

func blue(q *pluginv1.Question) *pluginv1.Answer {
	if slices.Equal(q.GetOptions(), []string{"Red", "Blue"}) {
		return &pluginv1.Answer{Text: "2"}
	}
	return &pluginv1.Answer{Text: "?"}
}

// checkStory looks at what the mission has done.
func checkStory(t *testing.T, h *smallHost, r *pluginv1.Result) {
	t.Helper()
	if !r.GetOk() || r.GetSummary() != "Everything is done." {
		t.Errorf("result %v, problems %q", r, h.problem)
	}
	for name, want := range map[string]bool{"a.txt": true, "blocked": false, "before": false, "after": true, "held": true, "deferred": true} {
		if h.there(name) != want {
			t.Errorf("%s there: %v", name, !want)
		}
	}
	if text, err := os.ReadFile(h.file("b.txt")); err != nil || string(text) != "second" {
		t.Errorf("b.txt: %q %v", text, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.made) != 8 || len(h.settled) != 8 {
		t.Errorf("%d calls were admitted, %d have an end", len(h.made), len(h.settled))
	}
	for inv, o := range h.settled {
		if o != pluginv1.Outcome_OUTCOME_SUCCEEDED {
			t.Errorf("%s ended %v", inv, o)
		}
	}
	if len(h.problem) > 0 {
		t.Errorf("problems %q", h.problem)
	}
	var all strings.Builder
	for _, q := range h.api.Requests() {
		all.Write(q.Body)
	}
	for _, want := range []string{`=\"Blue\"`, "Airlock warns about this call: it was rewritten", "Airlock blocked this call: not this one", "all files are there"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the model was not told %q", want)
		}
	}
}

// resume is what a host makes of the last checkpoint.
func (h *smallHost) resume(why string) *pluginv1.ResumePoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &pluginv1.ResumePoint{State: h.point.GetState(), Reason: why}
}

func TestTheRealCLIIsGovernedFromItsFirstCallToItsLast(t *testing.T) {
	t.Parallel()
	h := newSmallHost(t, "", nil)
	h.spec.Objective = story(h)
	h.decide, h.answer = tells(h), blue
	r := h.session(1, nil)
	if r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED || h.there("deferred") {
		t.Fatalf("first session: %v, problems %q, events %q", r, h.problem, h.events)
	}
	r = h.session(2, h.resume("decided"))
	checkStory(t, h, r)
	want := "propose Bash builtin,admit,settled SUCCEEDED,propose Read builtin,admit,settled SUCCEEDED,propose Write builtin,admit,settled SUCCEEDED," +
		"propose Edit builtin,admit,settled SUCCEEDED,propose Bash builtin,propose Bash builtin,admit,settled SUCCEEDED," +
		"propose AskUserQuestion builtin,question Which color? [Red / Blue],admit,settled SUCCEEDED,propose Bash builtin,admit,settled SUCCEEDED," +
		"propose Bash builtin,deferred,propose Bash builtin,admit,settled SUCCEEDED"
	if got := strings.Join(h.events, ","); got != want {
		t.Errorf("events %s\nwant   %s", got, want)
	}
	last := h.prog[len(h.prog)-1]
	if last.GetIteration() != 10 || last.GetTokens() != 10500 {
		t.Errorf("the last progress is %v", last)
	}
}

func TestTheRealCLIOutlivesThePlugin(t *testing.T) {
	t.Parallel()
	h := newSmallHost(t, "", nil)
	h.spec.Objective = story(h)
	h.decide, h.answer = tells(h), blue
	r := h.session(1, nil, 3, 5, 4, 3, 2, 6, 3, 1, 7, 2, 3, 4, 5, 6, 2, 3, 4, 9)
	if r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED {
		t.Fatalf("first session: %v, problems %q, events %q", r, h.problem, h.events)
	}
	checkStory(t, h, h.session(2, h.resume("decided"), 2, 3, 2, 4, 3))
}

func TestTheRealCLIGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	h := newSmallHost(t, "bash echo x >> once\nbash touch begun; while [ ! -e go ]; do sleep 0.1; done; touch ended\nbash echo y >> once\nsay The end.\n", nil)
	go func() {
		h.until("the second call is begun", func() bool { return h.there("begun") })
		h.mu.Lock()
		defer h.mu.Unlock()
		_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
	}()
	r := h.killed(t)
	if r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME || r.GetReason() != "signal" {
		t.Fatalf("result %v", r)
	}
	if got := h.settled["inv-2"]; got != pluginv1.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("the call that was killed ended %v", got)
	}
	r = h.session(2, h.resume("killed"))
	if !r.GetOk() || r.GetSummary() != "The end." {
		t.Errorf("result %v, problems %q, events %q", r, h.problem, h.events)
	}
	if text, _ := os.ReadFile(h.file("once")); string(text) != "x\ny\n" || h.there("ended") {
		t.Errorf("once holds %q, ended: %v", text, h.there("ended"))
	}
	requests := h.api.Requests()
	if body := string(requests[len(requests)-1].Body); !strings.Contains(body, "Whether they took effect is not known") || !strings.Contains(body, "- Bash: touch begun") {
		t.Errorf("the model was not told of the unknown call")
	}
}

// killed runs the first session, and pokes the waiters while it lasts.
func (h *smallHost) killed(t *testing.T) *pluginv1.Result {
	t.Helper()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-time.After(50 * time.Millisecond):
				h.mu.Lock()
				h.changed()
				h.mu.Unlock()
			case <-stop:
				return
			}
		}
	}()
	return h.session(1, nil)
}

func TestTheRealCLIBeginsAnewWhenItsSessionIsLost(t *testing.T) {
	t.Parallel()
	h := newSmallHost(t, "bash touch done\nsay Done after all.\n", nil)
	r := h.session(1, &pluginv1.ResumePoint{Reason: "the host knows of a session that was never written"})
	if r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME {
		t.Fatalf("result %v, problems %q", r, h.problem)
	}
	r = h.session(2, h.resume("lost"))
	if !r.GetOk() || !h.there("done") {
		t.Errorf("result %v, problems %q", r, h.problem)
	}
}

// The host has lost what it knew of a session that is there.
func TestTheRealCLIFindsASessionThatNobodyKnowsOf(t *testing.T) {
	t.Parallel()
	h := newSmallHost(t, "bash echo x >> once\nsay Done.\n", nil)
	if r := h.session(1, nil); !r.GetOk() {
		t.Fatalf("result %v, problems %q", r, h.problem)
	}
	r := h.session(1, nil)
	if r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME {
		t.Fatalf("result %v, problems %q", r, h.problem)
	}
	if r = h.session(2, h.resume("found")); !r.GetOk() {
		t.Errorf("result %v, problems %q", r, h.problem)
	}
	if text, _ := os.ReadFile(h.file("once")); string(text) != "x\n" {
		t.Errorf("once holds %q", text)
	}
}

func TestTheRealCLIIsInterrupted(t *testing.T) {
	t.Parallel()
	h := newSmallHost(t, "bash touch begun; sleep 300\nbash touch never\n", nil)
	go func() {
		h.until("the call is begun", func() bool { return h.there("begun") })
		h.mu.Lock()
		s := h.stream
		h.mu.Unlock()
		s.give(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Interrupt{Interrupt: &pluginv1.Interrupt{}}})
	}()
	r := h.killed(t)
	if r.GetOk() || h.there("never") || r.GetContinuation() != pluginv1.Continuation_CONTINUATION_END {
		t.Errorf("result %v", r)
	}
	if got := strings.Join(h.events, ","); got != "propose Bash builtin,admit,interrupted,settled UNKNOWN" && got != "propose Bash builtin,admit,settled UNKNOWN,interrupted" {
		t.Errorf("events %s", got)
	}
}

func TestTheRealCLIsSubAgentsAndServersAreGoverned(t *testing.T) {
	t.Parallel()
	server, err := serveCanary()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.close)
	h := newSmallHost(t, "mcp desk poke {}\nagent bash touch inside\nsay Done.\n", func(c map[string]any) {
		c["tools"] = []string{"Bash", "Agent"}
		c["mcp_servers"] = map[string]any{"desk": map[string]any{"url": server.url}}
	})
	r := h.session(1, nil)
	if !r.GetOk() || !h.there("inside") || server.pokes() != 1 {
		t.Fatalf("result %v, problems %q, %d pokes", r, h.problem, server.pokes())
	}
	if len(h.props) != 3 || h.props[0].GetProvenance() != "mcp:desk" || h.props[1].GetTool() != "Agent" || h.props[2].GetParent() != h.props[1].GetProposalId() {
		b, _ := json.Marshal(h.props)
		t.Errorf("proposals %s", b)
	}
}

func TestTheRealCLISaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, reason, summary string
		change                  func(map[string]any)
	}{
		"the key is refused": {"error 403\n", "non_zero_exit", "refused the credential (403)", nil},
		"an overload":        {"overload\n", "non_zero_exit", "overloaded", func(c map[string]any) { c["max_retries"] = 1 }},
		"too many turns":     {"bash true\nbash true\nbash true\nbash true\n", "budget", "max_turns", func(c map[string]any) { c["max_turns"] = 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newSmallHost(t, c.script, c.change)
			r := h.session(1, nil)
			if r.GetOk() || r.GetReason() != c.reason || !strings.Contains(r.GetSummary(), c.summary) || r.GetContinuation() != pluginv1.Continuation_CONTINUATION_END {
				t.Errorf("result %v", r)
			}
		})
	}
}
