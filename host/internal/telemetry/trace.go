package telemetry

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// maxSpans bounds one mission's trace; the root says how many are missing.
const maxSpans = 4000

// Span is one span of a trace.
type Span struct {
	ID, Parent, Name string
	Start, End       time.Time
	Attributes       map[string]string
	Failed           string // why; empty: it did not
	Notes            []Note
}

// Note is an event of a span.
type Note struct {
	At   time.Time
	Text string
}

// Trace is a mission's trace: the root span first.
type Trace struct {
	ID    string
	Spans []*Span
}

// payload are the members of events' payloads that a trace shows. No argument,
// no objective and no output is among them.
type payload struct {
	JournalUUID  string          `json:"journal_uuid"`
	Metadata     json.RawMessage `json:"metadata"`
	Origin       string          `json:"origin"`
	Agent        string          `json:"agent"`
	Isolation    string          `json:"isolation"`
	Runtime      string          `json:"runtime"`
	CellID       string          `json:"cell_id"`
	SessionID    string          `json:"session_id"`
	ProposalID   string          `json:"proposal_id"`
	DecisionID   string          `json:"decision_id"`
	InvocationID string          `json:"invocation_id"`
	Tool         string          `json:"tool_name"`
	Again        bool            `json:"again"`
	HITLID       string          `json:"hitl_id"`
	Outcome      string          `json:"outcome"`
	State        string          `json:"state"`
	Reason       string          `json:"reason"`
	StopID       string          `json:"stop_id"`
	Issuer       string          `json:"issuer"`
	Issuers      []string        `json:"issuers"`
	Result       string          `json:"result"`
	Decision     struct {
		Status string `json:"status"`
	} `json:"decision"`
	ExitCode *int `json:"exit_code"`
}

// builder reads events and makes spans of them.
type builder struct {
	trace   Trace
	root    *Span
	open    map[string]*Span // by what will end it
	dropped int
}

// Build makes the trace of a mission out of its events, oldest first. ok is
// false when they are not those of a mission from its beginning.
func Build(events []journal.Event) (t Trace, ok bool) {
	b := &builder{open: map[string]*Span{}}
	for _, ev := range events {
		var p payload
		if json.Unmarshal([]byte(ev.Payload), &p) != nil {
			continue
		}
		if b.root == nil {
			if ev.Kind != journal.TaskOpened || p.JournalUUID == "" {
				return t, false
			}
			b.begin(ev, p)
			continue
		}
		b.take(ev, p)
	}
	if b.root == nil {
		return t, false
	}
	last := events[len(events)-1].Timestamp
	for key := range b.open {
		b.end(key, last, "")
	}
	if b.dropped > 0 {
		b.root.Attributes["airlock.spans_dropped"] = fmt.Sprint(b.dropped)
	}
	if b.root.End.IsZero() {
		b.root.End = last
	}
	return b.trace, true
}

func (b *builder) begin(ev journal.Event, p payload) {
	ids := mission.Trace(p.JournalUUID, p.Metadata)
	b.root = &Span{ID: ids.SpanID, Parent: ids.Parent, Name: "mission", Start: ev.Timestamp, Attributes: map[string]string{
		"airlock.mission": ev.TaskID, "airlock.origin": p.Origin, "airlock.agent": p.Agent, "airlock.isolation": p.Isolation, "airlock.runtime": p.Runtime}}
	b.trace.ID = ids.TraceID
	b.trace.Spans = []*Span{b.root}
	b.start("queue", "queue", ev, nil)
}

// start opens a span below the root that end closes under the same key.
func (b *builder) start(key, name string, ev journal.Event, attributes map[string]string) {
	if len(b.trace.Spans) >= maxSpans {
		b.dropped++
		return
	}
	if attributes == nil {
		attributes = map[string]string{}
	}
	s := &Span{ID: mission.SpanID(ev.EventID + "\x00" + key), Parent: b.root.ID, Name: name, Start: ev.Timestamp, Attributes: attributes}
	b.trace.Spans = append(b.trace.Spans, s)
	b.open[key] = s
}

func (b *builder) end(key string, at time.Time, failed string) *Span {
	s := b.open[key]
	if s == nil {
		return &Span{Attributes: map[string]string{}} // of no trace
	}
	s.End, s.Failed = at, failed
	delete(b.open, key)
	return s
}

func (b *builder) note(at time.Time, text string) {
	b.root.Notes = append(b.root.Notes, Note{at, text})
}

func (b *builder) take(ev journal.Event, p payload) {
	at := ev.Timestamp
	switch ev.Kind {
	case journal.Starting:
		b.end("queue", at, "")
		b.end("start", at, "begun anew")
		b.start("start", "start", ev, map[string]string{"airlock.cell": p.CellID})
	case journal.Started:
		b.end("start", at, "")
		b.start("session", "session", ev, map[string]string{"airlock.session": p.SessionID})
	case journal.Proposed:
		if !p.Again {
			b.start("call "+p.ProposalID, "call "+p.Tool, ev, map[string]string{"airlock.tool": p.Tool})
		}
	case journal.Decision:
		b.decided(at, p)
	case journal.Executed:
		if s := b.open["call "+p.ProposalID]; s != nil {
			s.Notes = append(s.Notes, Note{at, "admitted"})
			delete(b.open, "call "+p.ProposalID)
			b.open["invocation "+p.InvocationID] = s
		}
	case journal.Completed:
		b.end("invocation "+p.InvocationID, at, "").Attributes["airlock.outcome"] = p.Outcome
	case journal.Failed:
		b.end("invocation "+p.InvocationID, at, p.Outcome).Attributes["airlock.outcome"] = p.Outcome
	case journal.Question:
		if !p.Again {
			b.start("question "+p.HITLID, "waiting for a human", ev, nil)
		}
	case journal.Answered:
		b.end("question "+p.HITLID, at, "").Attributes["airlock.outcome"] = p.Outcome
	case journal.Stop:
		b.start("stop", "stop", ev, map[string]string{"airlock.reason": p.Reason})
	case journal.StopAcknowledged:
		b.end("stop", at, "")
	case journal.RevocationStarted:
		for _, issuer := range p.Issuers {
			b.start("revoke "+issuer, "revoke "+issuer, ev, map[string]string{"airlock.issuer": issuer})
		}
	case journal.RevocationResult:
		if p.Result == "acknowledged" {
			b.end("revoke "+p.Issuer, at, "")
		} else if s := b.open["revoke "+p.Issuer]; s != nil {
			s.Notes = append(s.Notes, Note{at, "failed, and asked again"})
		}
	case journal.Ended:
		b.ended(at, p)
	case journal.Suspended, journal.Reconnected, journal.Paused, journal.Resumed, journal.RulesChanged, journal.IntentChanged, journal.ReplanRequested:
		b.note(at, string(ev.Kind))
	}
}

// decided notes a verdict; one under which the call does not run, and nobody is
// asked, ends its span.
func (b *builder) decided(at time.Time, p payload) {
	key := "call " + p.ProposalID
	s := b.open[key]
	if s == nil {
		return
	}
	s.Attributes["airlock.decision"] = p.Decision.Status
	s.Notes = append(s.Notes, Note{at, "decided: " + p.Decision.Status})
	switch p.Decision.Status {
	case "BLOCK", "REPLAN", "CHALLENGE":
		b.end(key, at, p.Decision.Status)
	}
}

func (b *builder) ended(at time.Time, p payload) {
	failed := ""
	if p.State != "done" {
		failed = p.State
		if p.Reason != "" {
			failed += ": " + p.Reason
		}
	}
	for _, key := range []string{"queue", "start", "session"} {
		b.end(key, at, failed)
	}
	b.root.End, b.root.Failed = at, failed
	b.root.Attributes["airlock.state"] = p.State
	if p.ExitCode != nil {
		b.root.Attributes["airlock.exit_code"] = fmt.Sprint(*p.ExitCode)
	}
}
