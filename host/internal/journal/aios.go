package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Extension is the namespace of the event names that the AIOS draft has no
// canonical name for: admissions, decisions, approvals, stops and receipts.
const Extension = "io.github.airlock-host."

// OccurrenceLine is one line of an export of occurrences: what happened, under
// the names of the AIOS draft where it has one that means exactly that, else
// under a name of our own. It follows that draft's conventions for events; it is
// our own artifact, and no conformance to any AIOS schema is claimed.
type OccurrenceLine struct {
	EventID    string    `json:"event_id"` // of the line; the same in every export
	EventName  string    `json:"event_name"`
	OccurredAt time.Time `json:"occurred_at"`
	// ObjectType is tool_invocation, agent or run, or a name of our own.
	ObjectType string `json:"object_type"`
	ObjectID   string `json:"object_id"`
	// RunID is the run that owns the task, where the deployment says so. The task
	// id is a correlation, and never taken for a run.
	RunID         string `json:"run_id,omitempty"`
	CorrelationID string `json:"correlation_id"` // the task id
	Producer      struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	} `json:"producer"`
	// Attributes are our own, under Extension.
	Attributes map[string]any `json:"attributes"`
}

// occurred is what an event's payload says, as far as occurrences need it.
type occurred struct {
	ProposalID   string          `json:"proposal_id"`
	DecisionID   string          `json:"decision_id"`
	ResolvedID   string          `json:"resolved_decision_id"`
	InvocationID string          `json:"invocation_id"`
	Tool         string          `json:"tool_name"`
	Action       string          `json:"action"`
	Actor        string          `json:"actor"`
	Outcome      string          `json:"outcome"`
	DurationMS   *int64          `json:"duration_ms"`
	StopID       string          `json:"stop_id"`
	ID           string          `json:"id"` // of a stop
	Result       string          `json:"result"`
	Issuer       string          `json:"issuer"`
	Receipt      json.RawMessage `json:"receipt"`
	Decision     struct {
		Status     string          `json:"status"`
		Risk       json.RawMessage `json:"risk"`
		CausalLink *string         `json:"causal_link"`
	} `json:"decision"`
}

// occurrences turns events into lines. It remembers which proposal a decision
// and an invocation are of, since a call is one object from its proposal to its
// end.
type occurrences struct {
	by        Attribution
	proposals map[string]string // by decision and by invocation
	agent     string
}

// WriteOccurrences reads an export of a journal and writes one line for each
// occurrence in it. The chain is verified on the way; with an error, what was
// written is not to be used. It gives the head of what was read.
func WriteOccurrences(w io.Writer, r io.Reader, by Attribution) (Head, error) {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	o := &occurrences{by: by, proposals: map[string]string{}, agent: by.AgentID}
	head, err := walk(r, func(ev *Event) error {
		lines, err := o.of(ev)
		for i := range lines {
			if err := enc.Encode(&lines[i]); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		return head, err
	}
	return head, out.Flush()
}

// of gives the lines of one event: the canonical one where the draft has a name
// that means it, and our own.
func (o *occurrences) of(ev *Event) ([]OccurrenceLine, error) {
	if ev.Kind == TaskOpened && o.agent == "" {
		o.agent = agentOf(ev)
	}
	switch ev.Kind {
	case Proposed, Decision, Approval, Executed, Completed, Failed, CancelRequested, Stop, StopAcknowledged, RevocationResult:
	default:
		return nil, nil
	}
	var p occurred
	if err := json.Unmarshal([]byte(ev.Payload), &p); err != nil {
		return nil, err
	}
	call := o.call(&p)
	attrs := p.attributes(ev)
	tool := func(name string) OccurrenceLine { return o.line(ev, name, "tool_invocation", call, attrs) }
	switch ev.Kind {
	case Proposed:
		return []OccurrenceLine{tool("aiops.tool.requested")}, nil
	case Decision:
		lines := []OccurrenceLine{o.line(ev, DecisionType, Extension+"decision", p.DecisionID, attrs)}
		switch p.Decision.Status {
		case "ALLOW", "WARN": // also what an approval led to: its causal link says so
			lines = append(lines, tool("aiops.tool.authorized"))
		case "PAUSE", "ESCALATE":
			lines = append(lines, o.line(ev, "aiops.agent.waiting", "agent", o.agent, attrs))
		}
		return lines, nil
	case Approval:
		return []OccurrenceLine{o.line(ev, Extension+"approval", Extension+"decision", p.DecisionID, attrs)}, nil
	case Executed: // an admission to run, and no outcome: the draft has no name for it
		return []OccurrenceLine{tool(Extension + "tool.admitted")}, nil
	case Completed, Failed:
		if p.InvocationID == "" {
			return []OccurrenceLine{tool(Extension + "tool.withdrawn")}, nil
		}
		if ev.Kind == Completed {
			return []OccurrenceLine{tool("aiops.tool.completed")}, nil
		}
		return []OccurrenceLine{tool("aiops.tool.failed")}, nil
	case CancelRequested: // a request, and never a cancellation
		return []OccurrenceLine{tool(Extension + "tool.cancel_requested")}, nil
	case Stop:
		lines := []OccurrenceLine{o.line(ev, Extension+"stop", Extension+"task", ev.TaskID, attrs)}
		if o.by.RunID != "" { // which run a stop cancels is the deployment's to say
			lines = append(lines, o.line(ev, "aiops.run.cancelled", "run", o.by.RunID, attrs))
		}
		return lines, nil
	case StopAcknowledged:
		return []OccurrenceLine{o.line(ev, Extension+"stop.receipt", Extension+"task", ev.TaskID, attrs)}, nil
	default:
		return []OccurrenceLine{o.line(ev, Extension+"revocation.result", Extension+"task", ev.TaskID, attrs)}, nil
	}
}

// call is the proposal that an event is about, from its own words or from what
// came before.
func (o *occurrences) call(p *occurred) string {
	for _, known := range []string{p.ProposalID, o.proposals[p.InvocationID], o.proposals[p.DecisionID]} {
		if known == "" {
			continue
		}
		for _, id := range []string{p.DecisionID, p.InvocationID} {
			if id != "" {
				o.proposals[id] = known
			}
		}
		return known
	}
	return p.InvocationID
}

func (o *occurrences) line(ev *Event, name, objectType, objectID string, attrs map[string]any) OccurrenceLine {
	l := OccurrenceLine{EventID: ev.EventID + "/" + name, EventName: name, OccurredAt: ev.Timestamp, ObjectType: objectType, ObjectID: objectID,
		RunID: o.by.RunID, CorrelationID: ev.TaskID, Attributes: attrs}
	l.Producer.Name, l.Producer.Version = o.by.Source, o.by.SourceVersion
	return l
}

// attributes are what the event says in our own words, and its place in the
// chain. What it does not say is not there; a risk that was not rated is null.
func (p *occurred) attributes(ev *Event) map[string]any {
	a := map[string]any{Extension + "sequence": ev.Sequence, Extension + "digest": ev.Digest.String(), Extension + "kind": ev.Kind}
	for name, v := range map[string]string{"proposal_id": p.ProposalID, "decision_id": p.DecisionID, "resolved_decision_id": p.ResolvedID,
		"invocation_id": p.InvocationID, "tool_name": p.Tool, "action": p.Action, "actor": p.Actor, "outcome": p.Outcome, "stop_id": p.StopID,
		"issuer": p.Issuer, "result": p.Result, "status": p.Decision.Status} {
		if v != "" {
			a[Extension+name] = v
		}
	}
	if ev.Kind == Stop {
		a[Extension+"stop_id"] = p.ID
	}
	if ev.Kind == Decision {
		a[Extension+"risk"], a[Extension+"causal_link"] = p.Decision.Risk, p.Decision.CausalLink
	}
	if p.DurationMS != nil {
		a["duration_ms"] = *p.DurationMS
	}
	var receipt struct {
		Access string `json:"access_revocation"`
	}
	if len(p.Receipt) > 0 && json.Unmarshal(p.Receipt, &receipt) == nil && receipt.Access != "" {
		a[Extension+"access_revocation"] = receipt.Access
	}
	return a
}

// walk verifies an export and hands its events over, one after the other.
func walk(r io.Reader, do func(*Event) error) (Head, error) {
	rd, chain := NewReader(r), NewChain(nil)
	var ev Event
	for {
		err := rd.Next(&ev)
		if errors.Is(err, io.EOF) {
			return chain.Head(), locate(chain.End(), rd)
		}
		if err == nil {
			err = chain.Add(&ev)
		}
		if err != nil {
			return chain.Head(), locate(err, rd)
		}
		if err := do(&ev); err != nil {
			return chain.Head(), fmt.Errorf("%s at sequence %d of task %q: %w", ev.Kind, ev.Sequence, ev.TaskID, err)
		}
	}
}
