package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// call is one tool call between its first question and its end. What happens
// next follows from its fields alone (advance), in whatever order they came.
type call struct {
	ID         string            `json:"-"`
	Seq        int               `json:"seq"`
	Tool       string            `json:"tool"`
	What       string            `json:"what,omitempty"`
	Agent      string            `json:"agent,omitempty"` // agent_id of the sub-agent that makes it
	Decided    bool              `json:"decided,omitempty"`
	Print      []byte            `json:"print,omitempty"`  // the decision's fingerprint
	Digest     string            `json:"digest,omitempty"` // of the input that was approved
	Rewritten  bool              `json:"rewritten,omitempty"`
	Warning    string            `json:"warning,omitempty"`
	Answers    map[string]string `json:"answers,omitempty"` // of AskUserQuestion
	Invocation string            `json:"invocation,omitempty"`
	Allowed    bool              `json:"allowed,omitempty"` // the second gate was opened

	// The requests of the CLI that have no answer: first gate, second, result.
	Pre  string `json:"pre,omitempty"`
	Can  string `json:"can,omitempty"`
	Post string `json:"post,omitempty"`

	input    json.RawMessage // as it was proposed
	updated  json.RawMessage // what the decision puts in its place
	canInput json.RawMessage // what the second gate was asked about
	event    string          // of Post
	waiting  bool            // the host has been asked
	proposed bool            // the host knows of it
	maybe    bool            // something of it was seen in a replay: it may have been allowed
	gone     bool            // the CLI gave it up
	over     bool            // its result was printed
	ended    *settled        // how it ended
	asked    int             // questions put to a human in this stream
	retry    time.Time
	letGoAt  time.Time // when a question has waited long enough
}

// settled is how a call ended.
type settled struct {
	outcome  pluginv1.Outcome
	digest   []byte
	duration *durationpb.Duration
}

func (m *machine) sorted() []*call {
	out := make([]*call, 0, len(m.st.Calls))
	for _, c := range m.st.Calls {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *call) int { return a.Seq - b.Seq })
	return out
}

func (m *machine) newCall(id, tool, agent string) *call {
	m.seq++
	c := &call{ID: id, Seq: m.seq, Tool: tool, Agent: agent, maybe: !m.live}
	if m.st.Calls == nil {
		m.st.Calls = map[string]*call{}
	}
	m.st.Calls[id] = c
	return c
}

func (m *machine) forget(c *call) {
	for _, id := range []string{c.Pre, c.Can, c.Post} {
		delete(m.asks, id)
	}
	delete(m.st.Calls, c.ID)
	for agent, of := range m.st.Agents {
		if of == c.ID {
			delete(m.st.Agents, agent)
		}
	}
}

func (m *machine) advanceAll() {
	for _, c := range m.sorted() {
		m.advance(c)
	}
}

// refusing says that nothing may begin any more.
func (m *machine) refusing() bool { return m.st.Fatal != "" || m.st.Interrupted }

// ending0 is what is said to a call at the end of its session.
const ending0 = "Airlock ends this session: the call did not run."

// advance does the next thing for a call, if there is one to do.
func (m *machine) advance(c *call) {
	if m.st.Calls[c.ID] != c || !m.live || c.waiting {
		return
	}
	switch {
	case c.Invocation != "":
		m.admitted(c)
	case m.refusing():
		m.refuse(c, ending0, true)
	case !m.st.Ready || m.now.Before(c.retry):
	case c.gone:
		m.withdraw(c)
	case m.st.isUnknown(c.ID):
		m.refuse(c, "Airlock: this call was started before an interruption, and nobody knows whether it took effect. Check that first; make a new call if it did not.", false)
	case !c.Decided:
		m.propose(c)
	case c.Pre != "" && c.Tool == askTool && !m.questions(c, c.asksWhat()):
		m.waits(c)
	case c.Pre != "":
		m.respond(c.Pre, preAnswer("allow", "Airlock's gate has allowed this call", c.updated))
		c.Pre = ""
		m.advance(c)
	case c.Can != "":
		m.secondGate(c)
	case c.ended != nil:
		m.admit(c) // it ran; only the host knows its reservation
	}
}

// propose asks the host for a decision.
func (m *machine) propose(c *call) {
	server, known := m.server(c.Tool)
	if !known {
		m.problem(false, fmt.Sprintf("Claude Code wants to use %q of an MCP server that this runtime does not have; the call is denied", c.Tool))
		m.refuse(c, "Airlock: this MCP server is not one of this mission's.", false)
		return
	}
	if c.input == nil && c.Can != "" && !c.Rewritten {
		c.input = c.canInput
	}
	if c.input == nil {
		m.refuse(c, "Airlock: the decision on this call is void, and its arguments are not known any more. Make the call again.", true)
		return
	}
	provenance := "builtin"
	if server != "" {
		provenance = "mcp:" + server
	}
	c.waiting, c.proposed = true, true
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Proposal{Proposal: &pluginv1.Proposal{
		ProposalId: c.ID, Tool: c.Tool, Args: c.input, Parent: m.st.Agents[c.Agent], Provenance: provenance}}})
}

// secondGate is asked just before a call runs.
func (m *machine) secondGate(c *call) {
	digest, err := inputDigest(c.canInput)
	if err != nil || digest != c.Digest {
		m.problem(false, fmt.Sprintf("Claude Code wants to run %s with another input than was decided on; the call is denied", c.Tool))
		m.refuse(c, "Airlock: the input is not the one that was decided on. Make the call again.", true)
		return
	}
	if c.Tool == askTool && !m.questions(c, c.canInput) {
		return
	}
	m.admit(c)
}

func (m *machine) admit(c *call) {
	c.waiting = true
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Admit{Admit: &pluginv1.Admit{ProposalId: c.ID, Fingerprint: c.Print}}})
}

// admitted goes on with a call that the host has journalled as dispatched.
func (m *machine) admitted(c *call) {
	switch {
	case c.ended != nil:
		m.settle(c)
	case c.Can != "" && m.refusing():
		m.respond(c.Can, denied(ending0))
		c.Can = ""
		m.neverStarted(c)
	case c.Can != "":
		m.respond(c.Can, allowed(c.answered()))
		c.Can, c.Allowed = "", true
		m.checkpoint()
	case c.gone && !c.Allowed:
		m.neverStarted(c)
	}
}

func (m *machine) neverStarted(c *call) {
	c.ended = &settled{outcome: pluginv1.Outcome_OUTCOME_DEFINITELY_NOT_STARTED}
	m.settle(c)
}

// settle ends a call: the host knows of the end before the model does.
func (m *machine) settle(c *call) {
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Settled{Settled: &pluginv1.Settled{
		InvocationId: c.Invocation, Outcome: c.ended.outcome, ResultDigest: c.ended.digest, Duration: c.ended.duration}}})
	m.finish(c)
}

// finish lets the model see a result, and forgets the call.
func (m *machine) finish(c *call) {
	if c.Post != "" {
		warning := ""
		if c.Warning != "" {
			warning = "Airlock warns about this call: " + c.Warning
		}
		m.respond(c.Post, postAnswer(c.event, warning))
	}
	if !c.over && !slices.Contains(m.st.Done, c.ID) {
		m.st.Done = append(m.st.Done, c.ID)
	}
	m.forget(c)
	m.checkpoint()
}

// refuse denies a call at the gate that it is held at.
func (m *machine) refuse(c *call, why string, withdraw bool) {
	switch {
	case c.Pre != "":
		m.respond(c.Pre, preAnswer("deny", why, nil))
	case c.Can != "":
		m.respond(c.Can, denied(why))
	case c.Post != "":
		m.respond(c.Post, postAnswer(c.event, ""))
	}
	if withdraw {
		m.withdraw(c)
		return
	}
	m.forget(c)
}

// withdraw gives a call up that was not admitted.
func (m *machine) withdraw(c *call) {
	if c.proposed || c.Decided || c.maybe {
		m.withdrawID(c.ID)
	}
	m.forget(c)
}

func (m *machine) withdrawID(id string) {
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Withdrawn{Withdrawn: &pluginv1.Withdrawn{ProposalId: id}}})
}
