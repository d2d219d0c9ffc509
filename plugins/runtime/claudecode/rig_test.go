package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// bench drives a machine by hand: lines of the CLI and messages of the host go
// in, and what comes out is looked at.
type bench struct {
	t      *testing.T
	m      *machine
	now    time.Time
	offset uint64
	log    []*pluginv1.Output // all output, for replays
	out    []*pluginv1.RunResponse
	all    []*pluginv1.RunResponse
	writes map[string]string // by key; the first counts
	point  *pluginv1.Checkpoint
	open   *pluginv1.Open
	opts   sessionOptions
}

const testSession = "11111111-2222-5333-8444-555555555555"

func newBench(t *testing.T, flag string, state []byte) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Unix(1_800_000_000, 0), writes: map[string]string{},
		opts: sessionOptions{prompt: "do it", servers: []string{"tools"}, resume: true}}
	b.open = &pluginv1.Open{Generation: 1, State: state, Mission: &pluginv1.MissionSpec{MissionId: "m", Objective: "do it"},
		Plan: &pluginv1.LaunchPlan{Argv: []string{"claude", "-p", flag, testSession}}}
	b.m = newMachine(b.open, b.opts)
	b.took(b.m.start(b.now, 0))
	return b
}

// begin is a bench whose session has passed its handshake.
func begin(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, "--session-id", nil)
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{}}})
	b.hello()
	if !b.m.st.Ready || !strings.Contains(b.writes["prompt"], "do it") {
		t.Fatalf("after the handshake: %+v %q", b.m.st, b.writes)
	}
	b.out = nil
	return b
}

func (b *bench) hello() {
	b.cli(`{"type":"control_response","response":{"subtype":"success","request_id":"airlock-initialize","response":{"hooks_applied":true,"hook_on_failure_supported":true,"session_state":"idle"}}}`)
	b.cli(`{"type":"control_response","response":{"subtype":"success","request_id":"airlock-rules","response":{"state":{"rules":[{"behavior":"ask","source":"flagSettings","rule":"*"}]}}}}`)
}

func (b *bench) took(out []*pluginv1.RunResponse) {
	b.t.Helper()
	for _, r := range out {
		if w := r.GetWrite(); w != nil {
			if w.GetKey() == "" || !strings.HasSuffix(string(w.GetData()), "\n") || !json.Valid(w.GetData()) {
				b.t.Fatalf("write %q %q", w.GetKey(), w.GetData())
			}
			if _, known := b.writes[w.GetKey()]; !known {
				b.writes[w.GetKey()] = string(w.GetData())
			}
		}
		if c := r.GetCheckpoint(); c != nil {
			if c.GetOffset() > b.offset || b.point != nil && c.GetOffset() < b.point.GetOffset() {
				b.t.Fatalf("checkpoint at %d, after %d, output to %d", c.GetOffset(), b.point.GetOffset(), b.offset)
			}
			b.point = c
		}
	}
	b.out, b.all = append(b.out, out...), append(b.all, out...)
}

// cli is a line of the CLI.
func (b *bench) cli(line string) {
	b.t.Helper()
	o := &pluginv1.Output{Stream: pluginv1.Stream_STREAM_STDOUT, Offset: b.offset, Data: []byte(line + "\n")}
	b.offset += uint64(len(o.Data))
	b.log = append(b.log, o)
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Output{Output: o}})
}

func (b *bench) host(in *pluginv1.RunRequest) {
	b.t.Helper()
	b.took(b.m.handle(proto.CloneOf(in), b.now))
}

func (b *bench) tick(d time.Duration) {
	b.t.Helper()
	b.now = b.now.Add(d)
	b.took(b.m.tick(b.now))
}

// restart is a new stream after a crash of the plugin, from the last
// checkpoint; live says whether the host gets as far as CaughtUp.
func (b *bench) restart() {
	b.t.Helper()
	open := proto.CloneOf(b.open)
	open.State, open.Offset = b.point.GetState(), b.point.GetOffset()
	b.m = newMachine(open, b.opts)
	b.out = nil
	b.took(b.m.start(b.now, open.GetOffset()))
	for _, o := range b.log {
		end := o.GetOffset() + uint64(len(o.GetData()))
		if end <= open.GetOffset() {
			continue
		}
		o := proto.CloneOf(o)
		if skip := int64(open.GetOffset()) - int64(o.GetOffset()); skip > 0 {
			o.Data, o.Offset = o.Data[skip:], open.GetOffset()
		}
		b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Output{Output: o}})
	}
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{Offset: b.offset}}})
}

func (b *bench) pre(id, tool, input, agent string) {
	b.t.Helper()
	b.cli(fmt.Sprintf(`{"type":"control_request","request_id":"pre-%s","request":{"subtype":"hook_callback","callback_id":"pre","tool_use_id":%q,"input":{"hook_event_name":"PreToolUse","tool_name":%q,"tool_input":%s,"tool_use_id":%q,"agent_id":%q}}}`, id, id, tool, input, id, agent))
}

func (b *bench) can(id, tool, input string) {
	b.t.Helper()
	b.cli(fmt.Sprintf(`{"type":"control_request","request_id":"can-%s","request":{"subtype":"can_use_tool","tool_name":%q,"input":%s,"tool_use_id":%q}}`, id, tool, input, id))
}

func (b *bench) post(id, tool, event string) {
	b.t.Helper()
	b.cli(fmt.Sprintf(`{"type":"control_request","request_id":"post-%s","request":{"subtype":"hook_callback","callback_id":"post","tool_use_id":%q,"input":{"hook_event_name":%q,"tool_name":%q,"tool_input":{},"tool_response":{"stdout":"x"},"error":"e","tool_use_id":%q,"duration_ms":12}}}`, id, id, event, tool, id))
}

func (b *bench) printed(id string, isError bool, meta string) {
	b.t.Helper()
	b.cli(fmt.Sprintf(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":"c","is_error":%v}]},"tool_result_meta":[{"id":%q%s}]}`, id, isError, id, meta))
}

func (b *bench) verdict(id string, d pluginv1.Decision, updated string) {
	b.t.Helper()
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Verdict{Verdict: &pluginv1.Verdict{
		ProposalId: id, Decision: d, Reason: "because", UpdatedArgs: []byte(updated), Fingerprint: []byte("fp-" + id)}}})
}

func (b *bench) admitted(id string) {
	b.t.Helper()
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Admitted{Admitted: &pluginv1.Admitted{ProposalId: id, InvocationId: "inv-" + id}}})
}

func (b *bench) refused(id, why string) {
	b.t.Helper()
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Refused{Refused: &pluginv1.Refused{ProposalId: id, Why: why}}})
}

func (b *bench) result(members string) {
	b.t.Helper()
	b.cli(`{"type":"result","subtype":"success","is_error":false,"result":"all done","terminal_reason":"completed","total_cost_usd":0.01,"usage":{"input_tokens":5},"modelUsage":{"m":{"inputTokens":10,"outputTokens":2}}` + members + `}`)
}

func (b *bench) exit(e *pluginv1.Exit) *pluginv1.Result {
	b.t.Helper()
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Exit{Exit: e}})
	last := b.out[len(b.out)-1].GetResult()
	if last == nil {
		b.t.Fatalf("the last message is %v", b.out[len(b.out)-1])
	}
	return last
}

// said is what came out since the last look, as short words.
func (b *bench) said() string {
	var words []string
	for _, r := range b.out {
		switch x := r.GetMessage().(type) {
		case *pluginv1.RunResponse_Write:
			words = append(words, word(x.Write))
		case *pluginv1.RunResponse_Proposal:
			words = append(words, "propose("+x.Proposal.GetProposalId()+")")
		case *pluginv1.RunResponse_Admit:
			words = append(words, "admit("+x.Admit.GetProposalId()+","+string(x.Admit.GetFingerprint())+")")
		case *pluginv1.RunResponse_Settled:
			words = append(words, "settled("+x.Settled.GetInvocationId()+","+strings.TrimPrefix(x.Settled.GetOutcome().String(), "OUTCOME_")+")")
		case *pluginv1.RunResponse_Withdrawn:
			words = append(words, "withdrawn("+x.Withdrawn.GetProposalId()+")")
		case *pluginv1.RunResponse_Deferred:
			words = append(words, "deferred("+x.Deferred.GetProposalId()+")")
		case *pluginv1.RunResponse_Question:
			words = append(words, "question("+x.Question.GetHitlId()+")")
		case *pluginv1.RunResponse_Problem:
			words = append(words, fmt.Sprintf("problem(%v)", x.Problem.GetFatal()))
		case *pluginv1.RunResponse_CloseInput:
			words = append(words, "close")
		case *pluginv1.RunResponse_Interrupted:
			words = append(words, "interrupted")
		}
	}
	b.out = nil
	return strings.Join(words, " ")
}

// word names a write by what it does.
func word(w *pluginv1.Write) string {
	s := string(w.GetData())
	for what, has := range map[string]string{"allow": `"permissionDecision":"allow"`, "deny": `"permissionDecision":"deny"`, "defer": `"permissionDecision":"defer"`,
		"run": `"behavior":"allow"`, "stop": `"behavior":"deny"`, "seen": `"PostToolUse`, "message": `"type":"user"`, "interrupt": `"subtype":"interrupt"`} {
		if strings.Contains(s, has) && (what != "seen" || !strings.Contains(s, "initialize")) {
			return what + "(" + strings.TrimPrefix(w.GetKey(), "answer/") + ")"
		}
	}
	return w.GetKey()
}

func (b *bench) want(say string) {
	b.t.Helper()
	if got := b.said(); got != say {
		b.t.Errorf("said %q\nwant %q", got, say)
	}
}
