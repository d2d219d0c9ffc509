package main

import (
	"encoding/json"
	"fmt"
	"strings"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// response is an answer of the CLI to one of our requests.
func (m *machine) response(raw json.RawMessage) {
	var r response
	if err := json.Unmarshal(raw, &r); err != nil {
		return
	}
	switch r.RequestID {
	case initID:
		m.initialized(&r)
	case rulesID:
		m.listed(&r)
	default:
		return // of an interrupt, or of another host's doing
	}
	if m.greeting != nil && m.ruled && !m.st.Ready && m.st.Fatal == "" {
		m.ready()
	}
}

const gatesHint = ": its calls cannot be governed, so no prompt was given to it. Use a Claude Code of the tested version"

func (m *machine) initialized(r *response) {
	var got initialized
	if m.st.Ready || m.greeting != nil {
		return
	}
	switch err := json.Unmarshal(r.Response, &got); {
	case r.Subtype != "success":
		m.fatal("Claude Code refused the hooks (" + clip(r.Error, 200) + ")" + gatesHint)
	case err != nil:
		m.fatal("Claude Code's answer to initialize cannot be read" + gatesHint)
	case !got.HooksApplied:
		m.fatal("Claude Code " + clip(got.Version, 40) + " did not take the hooks" + gatesHint)
	case !got.FailureSupported:
		m.fatal("Claude Code " + clip(got.Version, 40) + " does not block a call whose hook fails" + gatesHint)
	default:
		m.greeting = &got
	}
}

func (m *machine) listed(r *response) {
	if m.st.Ready || m.ruled {
		return
	}
	if r.Subtype != "success" {
		m.fatal("Claude Code does not list its permission rules" + gatesHint)
		return
	}
	if m.ruled = asksAlways(r.Response); m.ruled {
		return
	}
	m.fatal(`Claude Code does not have the rule that asks before every call (ask "*")` + gatesHint)
}

// asksAlways says whether a list of rules has the one that asks before every
// call, given on the command line.
func asksAlways(raw json.RawMessage) bool {
	var got rules
	if json.Unmarshal(raw, &got) != nil {
		return false
	}
	for _, rule := range got.State.Rules {
		if rule.Behavior == "ask" && rule.Rule == "*" && rule.Source == "flagSettings" {
			return true
		}
	}
	return false
}

// ready gives the prompt, now that both gates are known to stand.
func (m *machine) ready() {
	m.st.Ready = true
	switch {
	case m.fresh:
		text := m.opts.prompt
		if note := unknownNote(m.st.Unknown); note != "" {
			text = "An earlier attempt at this was interrupted and what was said in it is lost. " + note + "\n\n" + text
		}
		if m.st.Notice != "" {
			text = m.st.Notice + "\n\n" + text
		}
		m.write("prompt", userMessage(text))
	case m.st.After == afterDeferred && m.greeting.SessionState != "idle":
		// It goes on by itself, with the call that it let go.
	default:
		m.write("prompt", userMessage("The session was interrupted; go on with the mission where it stopped. "+unknownNote(m.st.Unknown)+
			strings.TrimSpace("A call that is shown as interrupted and is not in such a list did not run. "+m.st.Notice)))
	}
	m.st.After, m.st.Notice = "", ""
	m.checkpoint()
	m.advanceAll()
}

// assistant is one part of a turn of the model.
func (m *machine) assistant(f *frame) {
	m.agent(f.AgentID, f.Parent)
	var msg message
	if json.Unmarshal(f.Message, &msg) != nil {
		return
	}
	if msg.ID != "" && m.st.Turns[f.Parent] != msg.ID {
		if m.st.Turns == nil || len(m.st.Turns) > 64 {
			m.st.Turns = map[string]string{}
		}
		m.st.Turns[f.Parent] = msg.ID
		m.st.Iteration++
		m.st.Tokens += msg.Usage.total()
	}
	for _, b := range msg.blocks() {
		switch b.Type {
		case "text":
			if text := firstLine(b.Text); text != "" {
				m.report("planning", text)
			}
		case "tool_use":
			summary := b.Name
			if what := shown(b.Name, b.Input); what != "" {
				summary += ": " + what
			}
			m.report("execution", summary)
		}
	}
}

// user frames carry what came of calls.
func (m *machine) user(f *frame) {
	m.agent(f.AgentID, f.Parent)
	var msg message
	if json.Unmarshal(f.Message, &msg) != nil {
		return
	}
	for _, b := range msg.blocks() {
		if b.Type != "tool_result" {
			continue
		}
		var why meta
		for _, x := range f.Meta {
			if x.ID == b.ToolUseID {
				why = x
			}
		}
		m.printed(&b, why)
	}
}

func (m *machine) system(f *frame) {
	switch f.Subtype {
	case "task_started":
		m.agent(f.TaskID, f.ToolUse)
	case "api_retry":
		m.report("execution", fmt.Sprintf("the model API did not answer (%v, status %d); try %d of %d", f.Err, f.ErrorStatus, f.Attempt, f.MaxRetries))
	case "session_state_changed":
		if f.State == "idle" && m.st.Result != nil {
			m.stopped()
			m.closeInput()
		}
	}
}

// agent notes which call a sub-agent is part of.
func (m *machine) agent(id, call string) {
	if id == "" || call == "" || m.st.Agents[id] != "" || len(m.st.Agents) > 256 || m.st.Calls[call] == nil {
		return
	}
	if m.st.Agents == nil {
		m.st.Agents = map[string]string{}
	}
	m.st.Agents[id] = call
}

// report holds progress back until a second has passed since the last.
func (m *machine) report(phase, summary string) {
	iteration, tokens := m.st.Iteration, m.st.Tokens
	m.news = &pluginv1.Progress{Phase: phase, Iteration: &iteration, Tokens: &tokens, Summary: clip(summary, 200)}
	m.flush(false)
}

func (m *machine) flush(now bool) {
	if m.news == nil || !m.live && m.st.At != 0 || !now && m.now.Before(m.told.Add(oneSecond)) {
		return
	}
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Progress{Progress: m.news}})
	m.news, m.told = nil, m.now
}

// result is the end of the agent's work, or of one stretch of it.
func (m *machine) result(text []byte) {
	e, u := readEnding(text)
	if e == nil {
		m.garbage(text)
		return
	}
	m.st.Result = e
	m.stopped()
	m.count(u)
	m.report("execution", e.line())
	m.flush(true)
	m.checkpoint()
	// "idle" follows. Should it not, in a version that we do not know, the
	// session ends all the same.
	m.closeAt = m.now.Add(10 * oneSecond)
}

// count turns the CLI's running totals into what was used since the last.
func (m *machine) count(u totals) {
	tokens, cost := u.tokens-m.st.Counted, u.costMicro-m.st.CostMicro
	if tokens < 0 || cost < 0 { // the totals began anew
		tokens, cost = u.tokens, u.costMicro
	}
	m.st.Counted, m.st.CostMicro = u.tokens, u.costMicro
	if tokens == 0 && cost == 0 {
		return
	}
	m.st.Tokens = max(m.st.Tokens, u.tokens)
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Usage{Usage: &pluginv1.Usage{Tokens: tokens, CostMicroUsd: cost}}})
}

// exit ends the session: what is open is settled as far as it is known, and
// the result says what follows.
func (m *machine) exit(e *pluginv1.Exit) {
	for _, c := range m.sorted() {
		switch {
		case c.Invocation == "":
			m.withdraw(c)
		case c.ended == nil && !c.Allowed:
			m.neverStarted(c)
		default:
			if c.ended == nil {
				c.ended = &settled{outcome: pluginv1.Outcome_OUTCOME_UNKNOWN}
				m.st.unknown(c.ID, c)
			}
			m.settle(c)
		}
	}
	r := m.outcome(e)
	if r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME && r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED {
		for _, id := range m.st.Deferred {
			m.withdrawID(id)
		}
		m.st.Deferred = nil
	}
	m.flush(true)
	m.checkpoint()
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Result{Result: r}})
}

func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// clip cuts a text to so many runes.
func clip(s string, n int) string {
	if r := []rune(strings.ToValidUTF8(s, "?")); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
