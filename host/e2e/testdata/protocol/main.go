// Command protocol is a runtime plugin for tests whose agent asks before each
// call, one line each:
//
//	agent → PROPOSE id tool {args}      plugin → GO id {args} | NO id reason
//	agent → DONE id ok|failed
//	agent → ASK id question|option|option   plugin → ANSWER id text | NONE id why
//
// A session can end with the work undone:
//
//	agent → KEEP text    a checkpoint; a session that ends badly is followed by
//	                     another, which finds the text in $KEPT
//	agent → FATAL text   the plugin cannot go on
//	agent → LATER        the question was put off, like a call
//	agent → DEFER id     the call was put off: once it is decided another session
//	                     follows
//
// The objective is the agent's shell script. The plugin holds no state but its
// checkpoint and what it is shown again after a restart. A further session has
// $WHY and, for calls whose end nobody knows, $LOST.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/runtime"
)

type protocol struct {
	plugin.Defaults
	runtime.Unimplemented
}

func main() { runtime.Serve(&protocol{}) }

func (*protocol) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{Kind: pluginv1.Kind_KIND_RUNTIME, Name: "protocol", Version: "1", Contracts: []string{plugin.Contract},
		Capabilities: []string{"runtime:custom:protocol"}, Schema: &pluginv1.ConfigSchema{}}
}

func (*protocol) Configure(context.Context, *pluginv1.ConfigureRequest) error { return nil }

func (*protocol) Plan(_ context.Context, req *pluginv1.PlanRequest) (*pluginv1.PlanResponse, error) {
	env := map[string]string{"STATE": "${AIRLOCK_STATE}"}
	if r := req.GetResume(); r != nil {
		var k kept
		if err := json.Unmarshal(r.GetState(), &k); err != nil && len(r.GetState()) > 0 {
			return nil, err
		}
		env["KEPT"], env["WHY"] = k.Text, r.GetReason()
		for _, c := range r.GetOpenCalls() {
			env["LOST"] = strings.TrimSpace(env["LOST"] + " " + c.GetProposalId())
		}
	}
	return &pluginv1.PlanResponse{Plan: &pluginv1.LaunchPlan{
		Env:      env,
		Argv:     []string{"/bin/sh", "-c", req.GetMission().GetObjective()},
		Boundary: pluginv1.Boundary_BOUNDARY_PROTOCOL,
		Output:   pluginv1.OutputNeed_OUTPUT_NEED_LINES,
		OnFull:   pluginv1.OnFull_ON_FULL_BLOCK,
	}}, nil
}

// call is what is known of a call in this stream.
type call struct {
	args       []byte
	invocation string
	done       string // told before the invocation was known
}

// kept is the checkpoint.
type kept struct {
	Text string `json:"text"`
	On   bool   `json:"on"` // KEEP was said
}

type session struct {
	stream   runtime.Stream
	calls    map[string]*call
	kept     kept
	deferred bool // in this session
}

func (*protocol) Run(stream runtime.Stream) error {
	s := &session{stream: stream, calls: map[string]*call{}}
	for {
		in, err := stream.Recv()
		if err != nil {
			return nil
		}
		switch m := in.GetMessage().(type) {
		case *pluginv1.RunRequest_Open:
			if st := m.Open.GetState(); len(st) > 0 {
				if err := json.Unmarshal(st, &s.kept); err != nil {
					return err
				}
			}
		case *pluginv1.RunRequest_Answer:
			text := fmt.Sprintf("ANSWER %s %s\n", m.Answer.GetHitlId(), m.Answer.GetText())
			if m.Answer.GetNone() != "" {
				text = fmt.Sprintf("NONE %s %s\n", m.Answer.GetHitlId(), m.Answer.GetNone())
			}
			if err := s.write("answer/"+m.Answer.GetHitlId(), text); err != nil {
				return err
			}
		case *pluginv1.RunRequest_Interrupt:
			if err := stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Write{Write: &pluginv1.Write{
				Key: "interrupt", Data: []byte("INTERRUPT\n"), Interrupt: true}}}); err != nil {
				return err
			}
		case *pluginv1.RunRequest_Output:
			for line := range bytes.Lines(m.Output.GetData()) {
				if err := s.line(strings.TrimSpace(string(line))); err != nil {
					return err
				}
			}
		case *pluginv1.RunRequest_Verdict:
			if err := s.verdict(m.Verdict); err != nil {
				return err
			}
		case *pluginv1.RunRequest_Admitted:
			c := s.calls[m.Admitted.GetProposalId()]
			c.invocation = m.Admitted.GetInvocationId()
			if err := s.write("go/"+m.Admitted.GetProposalId(), fmt.Sprintf("GO %s %s\n", m.Admitted.GetProposalId(), c.args)); err != nil {
				return err
			}
			if c.done != "" {
				if err := s.settle(c, c.done); err != nil {
					return err
				}
			}
		case *pluginv1.RunRequest_Refused:
			if c := s.calls[m.Refused.GetProposalId()]; c != nil && c.done != "" {
				continue // a replay: it ran, and its end is recorded
			}
			if err := s.write("no/"+m.Refused.GetProposalId(), fmt.Sprintf("NO %s %s\n", m.Refused.GetProposalId(), m.Refused.GetWhy())); err != nil {
				return err
			}
		case *pluginv1.RunRequest_Exit:
			ok := m.Exit.GetCode() == 0 && m.Exit.GetSignal() == 0 && !m.Exit.GetUnknown()
			res := &pluginv1.Result{Ok: ok}
			switch {
			case s.deferred:
				res.Continuation = pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED
			case !ok && s.kept.On:
				res.Continuation, res.Summary = pluginv1.Continuation_CONTINUATION_RESUME, "the agent died"
			}
			return stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Result{Result: res}})
		}
	}
}

func (s *session) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	id, rest, _ := strings.Cut(rest, " ")
	switch word {
	case "KEEP":
		s.kept.On, s.kept.Text = true, strings.TrimSpace(id+" "+rest)
		return s.checkpoint()
	case "DEFER":
		s.deferred = true
		return s.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Deferred{Deferred: &pluginv1.Deferred{ProposalId: id}}})
	case "FATAL":
		return s.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Problem{Problem: &pluginv1.Problem{
			Fatal: true, Message: strings.TrimSpace(id + " " + rest)}}})
	case "LATER":
		s.deferred = true
		return nil
	case "STOPPED":
		return s.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Interrupted{Interrupted: &pluginv1.Interrupted{}}})
	case "ASK":
		parts := strings.Split(rest, "|")
		return s.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Question{Question: &pluginv1.Question{
			HitlId: id, Prompt: parts[0], Options: parts[1:]}}})
	case "PROPOSE":
		tool, args, _ := strings.Cut(rest, " ")
		if s.calls[id] == nil {
			s.calls[id] = &call{args: []byte(args)}
		}
		return s.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Proposal{Proposal: &pluginv1.Proposal{
			ProposalId: id, Tool: tool, Args: []byte(args), Provenance: "builtin"}}})
	case "DONE":
		c := s.calls[id]
		if c == nil {
			return nil
		}
		if c.invocation == "" {
			c.done = rest
			return nil
		}
		return s.settle(c, rest)
	}
	return nil
}

// checkpoint stores what must be known again; all output is replayed.
func (s *session) checkpoint() error {
	state, err := json.Marshal(s.kept)
	if err != nil {
		return err
	}
	return s.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Checkpoint{Checkpoint: &pluginv1.Checkpoint{State: state}}})
}

func (s *session) settle(c *call, how string) error {
	o := pluginv1.Outcome_OUTCOME_FAILED
	if how == "ok" {
		o = pluginv1.Outcome_OUTCOME_SUCCEEDED
	}
	return s.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Settled{Settled: &pluginv1.Settled{
		InvocationId: c.invocation, Outcome: o, Duration: durationpb.New(0)}}})
}

func (s *session) verdict(v *pluginv1.Verdict) error {
	switch v.GetDecision() {
	case pluginv1.Decision_DECISION_ALLOW, pluginv1.Decision_DECISION_WARN:
		if c := s.calls[v.GetProposalId()]; c != nil && len(v.GetUpdatedArgs()) > 0 {
			c.args = v.GetUpdatedArgs()
		}
		return s.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Admit{Admit: &pluginv1.Admit{
			ProposalId: v.GetProposalId(), Fingerprint: v.GetFingerprint()}}})
	default:
		return s.write("no/"+v.GetProposalId(), fmt.Sprintf("NO %s %s %s\n", v.GetProposalId(), v.GetDecision(), v.GetReason()))
	}
}

func (s *session) write(key, text string) error {
	return s.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Write{Write: &pluginv1.Write{Key: key, Data: []byte(text)}}})
}
