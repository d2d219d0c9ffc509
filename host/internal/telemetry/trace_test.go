package telemetry

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// chain makes events a second apart.
func chain(t *testing.T, parts ...any) []journal.Event {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	head := journal.Genesis("m", "018f0000-0000-7000-8000-00000000abcd")
	var events []journal.Event
	for i := 0; i < len(parts); i += 2 {
		text, err := json.Marshal(parts[i+1])
		if err != nil {
			t.Fatal(err)
		}
		var ev journal.Event
		ev, head = head.Next(fmt.Sprint("event-", i), at, parts[i].(journal.Kind), string(text))
		events = append(events, ev)
		at = at.Add(time.Second)
	}
	return events
}

type m = map[string]any

func opening(metadata any) m {
	return m{"v": 1, "journal_uuid": "018f0000-0000-7000-8000-00000000abcd", "agent": "a", "origin": "local", "objective": "canary", "metadata": metadata}
}

func TestATraceIsAProjectionOfTheJournal(t *testing.T) {
	t.Parallel()
	trace, ok := Build(chain(t,
		journal.TaskOpened, opening(nil),
		journal.Assigned, m{},
		journal.Starting, m{"cell_id": "c1"},
		journal.Started, m{"session_id": "s1"},
		journal.Proposed, m{"proposal_id": "p1", "tool_name": "Bash", "tool_args": m{"command": "canary"}},
		journal.Decision, m{"proposal_id": "p1", "decision": m{"status": "ALLOW"}},
		journal.Executed, m{"proposal_id": "p1", "invocation_id": "i1"},
		journal.Completed, m{"invocation_id": "i1", "outcome": "succeeded"},
		journal.Proposed, m{"proposal_id": "p2", "tool_name": "Danger"},
		journal.Decision, m{"proposal_id": "p2", "decision": m{"status": "BLOCK"}},
		journal.Question, m{"hitl_id": "q"},
		journal.Answered, m{"hitl_id": "q", "outcome": "answered"},
		journal.Reconnected, m{},
		journal.Ended, m{"state": "failed", "reason": "non_zero_exit", "exit_code": 3},
	))
	if !ok || trace.ID != "018f000000007000800000000000abcd" {
		t.Fatalf("%v %+v", ok, trace)
	}
	want := map[string]struct {
		seconds int
		failed  string
	}{
		"mission": {13, "failed: non_zero_exit"}, "queue": {2, ""}, "start": {1, ""}, "session": {10, "failed: non_zero_exit"},
		"call Bash": {3, ""}, "call Danger": {1, "BLOCK"}, "waiting for a human": {1, ""},
	}
	ids := map[string]bool{}
	for i, s := range trace.Spans {
		w, known := want[s.Name]
		if !known || s.End.Sub(s.Start) != time.Duration(w.seconds)*time.Second || s.Failed != w.failed {
			t.Errorf("span %+v, want %+v", s, w)
		}
		if i > 0 && s.Parent != trace.Spans[0].ID || ids[s.ID] || len(s.ID) != 16 {
			t.Errorf("ids of %+v", s)
		}
		ids[s.ID] = true
	}
	if len(trace.Spans) != len(want) {
		t.Errorf("%d spans, want %d", len(trace.Spans), len(want))
	}
	if text, err := json.Marshal(trace); err != nil || strings.Contains(string(text), "canary") {
		t.Errorf("a trace tells of arguments or the objective: %s %v", text, err)
	}
}

func TestATraceGoesOnWithTheDispatchers(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	trace, ok := Build(chain(t, journal.TaskOpened, opening(m{"traceparent": parent}), journal.Ended, m{"state": "done"}))
	if !ok || trace.ID != "4bf92f3577b34da6a3ce929d0e0e4736" || trace.Spans[0].Parent != "00f067aa0ba902b7" || trace.Spans[0].Failed != "" {
		t.Errorf("%+v", trace.Spans[0])
	}
	for _, bad := range []any{"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "nonsense", 7} {
		trace, ok := Build(chain(t, journal.TaskOpened, opening(m{"traceparent": bad})))
		if !ok || trace.ID != "018f000000007000800000000000abcd" || trace.Spans[0].Parent != "" {
			t.Errorf("%v: %+v", bad, trace)
		}
	}
	if _, ok := Build(chain(t, journal.Assigned, m{})); ok {
		t.Error("a journal without its beginning has a trace")
	}
}

func TestALongTraceIsBounded(t *testing.T) {
	t.Parallel()
	parts := []any{journal.TaskOpened, opening(nil)}
	for range maxSpans + 50 {
		parts = append(parts, journal.Question, m{"hitl_id": "q"}, journal.Answered, m{"hitl_id": "q"})
	}
	trace, _ := Build(chain(t, parts...))
	if len(trace.Spans) != maxSpans || trace.Spans[0].Attributes["airlock.spans_dropped"] == "" {
		t.Errorf("%d spans, %v", len(trace.Spans), trace.Spans[0].Attributes)
	}
}
