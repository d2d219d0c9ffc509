package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// request takes what the CLI asks. A request that cannot be understood is
// never allowed.
func (m *machine) request(f *frame, at uint64) {
	var r request
	if err := json.Unmarshal(f.Request, &r); err != nil || f.RequestID == "" {
		m.fatal("Claude Code asked something that cannot be read: " + excerpt(f.Request))
		return
	}
	m.asks[f.RequestID] = at
	switch r.Subtype {
	case "hook_callback":
		var in hookInput
		if err := json.Unmarshal(r.Input, &in); err != nil || in.ToolUseID == "" || in.ToolName == "" {
			m.unreadable(f, &r)
			return
		}
		switch in.Event {
		case "PreToolUse":
			m.firstGate(f.RequestID, &in)
		case "PostToolUse", "PostToolUseFailure":
			m.ran(f.RequestID, &in)
		default:
			m.unreadable(f, &r)
		}
	case "can_use_tool":
		m.asksToRun(f.RequestID, &r)
	default:
		m.write("answer/"+f.RequestID, failure(f.RequestID, "Airlock does not answer requests of this kind"))
		delete(m.asks, f.RequestID)
	}
}

// unreadable refuses a request and ends the session: a gate that is not
// understood is no gate.
func (m *machine) unreadable(f *frame, r *request) {
	m.write("answer/"+f.RequestID, failure(f.RequestID, "Airlock cannot read this request"))
	delete(m.asks, f.RequestID)
	m.fatal(fmt.Sprintf("Claude Code asked something (%q) whose contents cannot be read: %s", r.Subtype, excerpt(r.Input)))
}

// firstGate is the hook before a call.
func (m *machine) firstGate(id string, in *hookInput) {
	c := m.st.Calls[in.ToolUseID]
	switch {
	case c == nil:
		c = m.newCall(in.ToolUseID, in.ToolName, in.AgentID)
	case c.Tool != in.ToolName:
		m.respond(id, preAnswer("deny", "Airlock: the id of this call is another call's.", nil))
		return
	}
	if i := slices.Index(m.st.Deferred, in.ToolUseID); i >= 0 {
		m.st.Deferred = slices.Delete(m.st.Deferred, i, i+1)
	}
	c.Pre, c.input, c.What = id, in.ToolInput, describe(in.ToolName, in.ToolInput)
	m.advance(c)
}

// asksToRun is the permission prompt. The first gate is behind the call then.
func (m *machine) asksToRun(id string, r *request) {
	c := m.st.Calls[r.ToolUseID]
	if c == nil || c.Tool != r.ToolName {
		m.respond(id, denied("Airlock has not decided on this call."))
		return
	}
	if c.Pre != "" {
		delete(m.asks, c.Pre)
		if m.live && !c.maybe {
			// Nothing of ours has opened the first gate.
			m.fatal(fmt.Sprintf("Claude Code went past the first gate with %s before it was decided on", c.Tool))
			m.respond(id, denied(ending0))
			return
		}
		c.Pre = ""
	}
	c.Can, c.canInput, c.maybe = id, r.Input, c.maybe || !m.live
	m.advance(c)
}

// ran is the hook after a call. The CLI shows the result to the model once it
// is answered.
func (m *machine) ran(id string, in *hookInput) {
	c := m.st.Calls[in.ToolUseID]
	if c == nil && slices.Contains(m.st.Done, in.ToolUseID) {
		m.respond(id, postAnswer(in.Event, ""))
		return
	}
	if c == nil || m.live && c.Invocation == "" && !c.maybe {
		m.respond(id, postAnswer(in.Event, ""))
		m.fatal(fmt.Sprintf("Claude Code ran %s without an admission (call %s): its gates do not hold", in.ToolName, in.ToolUseID))
		return
	}
	delete(m.asks, c.Can)
	c.Can, c.Post, c.event, c.Allowed = "", id, in.Event, true
	c.ended = &settled{outcome: pluginv1.Outcome_OUTCOME_SUCCEEDED}
	what := in.Response
	if in.Event == "PostToolUseFailure" {
		c.ended.outcome, what = pluginv1.Outcome_OUTCOME_FAILED, in.Error
	}
	if len(what) > 0 {
		sum := sha256.Sum256(what)
		c.ended.digest = sum[:]
	}
	if d := in.DurationMS; d != nil && *d >= 0 && *d < 1e12 {
		c.ended.duration = durationpb.New(time.Duration(*d * float64(time.Millisecond)))
	}
	m.advance(c)
}

// printed is a call's result as the CLI prints it: the last word where no hook
// has told of the end.
func (m *machine) printed(b *block, why meta) {
	if i := slices.Index(m.st.Done, b.ToolUseID); i >= 0 {
		m.st.Done = slices.Delete(m.st.Done, i, i+1)
		return
	}
	c := m.st.Calls[b.ToolUseID]
	kept := why.NotRun != "" || why.Permission.Decision == "reject"
	if c == nil {
		if m.live && !b.IsError && !kept {
			m.fatal(fmt.Sprintf("Claude Code printed the result of a call that was never decided on (%s): its gates do not hold", b.ToolUseID))
		}
		return
	}
	c.over = true
	if c.Post != "" { // answered by an earlier stream
		delete(m.asks, c.Post)
		c.Post = ""
	}
	switch {
	case c.ended != nil:
	case c.Invocation == "" && (kept || b.IsError):
		c.gone = true // denied, or given up
		delete(m.asks, c.Pre)
		delete(m.asks, c.Can)
		c.Pre, c.Can = "", ""
		if c.waiting && !c.Decided {
			c.waiting = false
		}
	case m.live && c.Invocation == "" && !c.maybe:
		m.fatal(fmt.Sprintf("Claude Code ran %s without an admission (call %s): its gates do not hold", c.Tool, c.ID))
		return
	case why.Permission.Decision == "reject":
		c.ended = &settled{outcome: pluginv1.Outcome_OUTCOME_DEFINITELY_NOT_STARTED}
	case kept:
		c.ended = &settled{outcome: pluginv1.Outcome_OUTCOME_UNKNOWN}
	default:
		sum := sha256.Sum256(b.Content)
		c.ended = &settled{outcome: pluginv1.Outcome_OUTCOME_SUCCEEDED, digest: sum[:]}
		if b.IsError {
			c.ended.outcome = pluginv1.Outcome_OUTCOME_FAILED
		}
	}
	m.advance(c)
}

// cancel is the CLI taking a request back.
func (m *machine) cancel(requestID string) {
	delete(m.asks, requestID)
	for _, c := range m.sorted() {
		switch requestID {
		case c.Pre:
			c.Pre, c.gone = "", true
			c.waiting = false // a verdict that comes now is on nothing
		case c.Can:
			c.Can, c.gone = "", true // an admission may be on its way
		case c.Post:
			c.Post = ""
			continue
		default:
			continue
		}
		m.advance(c)
	}
}

// verdict is the host's decision.
func (m *machine) verdict(v *pluginv1.Verdict) {
	c := m.st.Calls[v.GetProposalId()]
	if c == nil || !c.waiting || c.Decided {
		return
	}
	c.waiting = false
	if c.gone && c.Invocation == "" {
		m.withdraw(c)
		return
	}
	reason := strings.TrimSpace(v.GetReason())
	switch v.GetDecision() {
	case pluginv1.Decision_DECISION_ALLOW, pluginv1.Decision_DECISION_WARN:
		input := c.input
		c.updated, c.Rewritten = nil, false
		if u := bytes.TrimSpace(v.GetUpdatedArgs()); len(u) > 0 {
			if u[0] != '{' || !json.Valid(u) {
				m.problem(false, fmt.Sprintf("the decision on %s puts arguments in place that are no JSON object; the call is denied", c.Tool))
				m.refuse(c, "Airlock: the arguments that the gate put in place cannot be used.", true)
				return
			}
			input, c.updated, c.Rewritten = u, u, true
		}
		digest, err := inputDigest(input)
		if err != nil {
			m.refuse(c, "Airlock: "+err.Error(), true)
			return
		}
		c.Decided, c.Print, c.Digest = true, v.GetFingerprint(), digest
		if v.GetDecision() == pluginv1.Decision_DECISION_WARN {
			c.Warning = reason
		}
		m.advance(c)
	case pluginv1.Decision_DECISION_PAUSE, pluginv1.Decision_DECISION_ESCALATE:
		m.pause(c, reason)
	default:
		m.refuse(c, refusal(v.GetDecision(), reason), false)
	}
}

// pause lets go of a call that a human has not decided on in time. The CLI can
// let one call of a turn go, and only at the first gate of its main agent.
func (m *machine) pause(c *call, reason string) {
	switch {
	case c.Pre == "":
		c.retry = m.now.Add(oneSecond) // the second gate can wait
	case c.Agent != "":
		m.refuse(c, "Airlock: a human has to approve this call and has not done so yet ("+reason+"). A sub-agent cannot wait for it: go on without it, and say in your report that it is still to be done by the main agent.", true)
	case m.st.letGo():
		m.refuse(c, "Airlock: a human has to approve this call ("+reason+"). Another call of this turn waits for a human already; make this one again afterwards.", true)
	default:
		m.letGo(c, reason)
	}
}

// letGo ends the turn without the call; a later session begins with it.
func (m *machine) letGo(c *call, reason string) {
	m.respond(c.Pre, preAnswer("defer", reason, nil))
	m.st.Deferred = append(m.st.Deferred, c.ID)
	m.st.Let = c.ID
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Deferred{Deferred: &pluginv1.Deferred{ProposalId: c.ID}}})
	m.forget(c)
	m.checkpoint()
}

func (m *machine) gotAdmitted(a *pluginv1.Admitted) {
	c := m.st.Calls[a.GetProposalId()]
	if c == nil || !c.waiting || !c.Decided || a.GetInvocationId() == "" {
		return
	}
	c.waiting, c.Invocation = false, a.GetInvocationId()
	m.advance(c)
}

// refused says that a call may not run; some refusals are for now only.
func (m *machine) refused(r *pluginv1.Refused) {
	c := m.st.Calls[r.GetProposalId()]
	if c == nil || !c.waiting || !c.Decided {
		return
	}
	c.waiting = false
	switch why := r.GetWhy(); {
	case c.ended != nil: // a replay: its end is in the journal
		m.finish(c)
	case c.gone:
		m.withdraw(c)
	case why == "journal_unavailable":
		c.retry = m.now.Add(oneSecond)
	case why == "paused" || why == "stale_epoch":
		c.Decided, c.retry = false, m.now.Add(oneSecond)
	default:
		m.refuse(c, "Airlock: the call was not admitted ("+strings.ReplaceAll(why, "_", " ")+").", false)
	}
}

// interrupt ends what the agent does, by its own protocol.
func (m *machine) interrupt() {
	if m.st.Interrupted {
		return
	}
	m.st.Interrupted = true
	m.interrupting = true // else nothing would reach a session that is being stopped
	m.write("interrupt", interrupt())
	m.interrupting = false
	m.advanceAll()
	m.closeInput()
}

// stopped tells the host that the interrupted agent has stopped.
func (m *machine) stopped() {
	if m.st.Interrupted && !m.st.Stopped {
		m.st.Stopped = true
		m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Interrupted{Interrupted: &pluginv1.Interrupted{}}})
	}
}

// refusal says to the model what a decision means.
func refusal(d pluginv1.Decision, reason string) string {
	if reason == "" {
		reason = "no reason was given"
	}
	switch d {
	case pluginv1.Decision_DECISION_CHALLENGE:
		return "Airlock wants this call justified before it may run: " + reason + ". Say why it is needed and what it will change, or take another way. The same call again is decided on again."
	case pluginv1.Decision_DECISION_REPLAN:
		return "Airlock wants another plan before this call: " + reason + ". Stop following the present plan, make a new one that takes this into account, and go on with that."
	default:
		return "Airlock blocked this call: " + reason + ". Do not try to have the same effect in another way; go on without it, or end and say what is missing."
	}
}
