package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func runChecks() []runtimeCheck {
	return []runtimeCheck{
		{"run-open-first", runOpenFirst},
		{"run-open-once", runOpenOnce},
		{"run-progress", runProgress},
		{"run-exit-result", runExit},
		{"run-exit-unknown-is-no-success", runExitUnknown},
		{"run-unknown-enum-refused", runUnknownEnum},
		{"run-messages-valid", runMessagesValid},
		{"run-interrupt", runInterrupt},
		{"run-suspend", runSuspend},
		{"run-waiting", runWaiting},
		{"run-many-streams", runMany},
		{"run-cancel", runCancel},
		{"run-deadline", runDeadline},
		{"run-close-without-exit", runClose},
		{"run-large-output", runLarge},
	}
}

// session is the kit's side of one Run stream.
type runSession struct {
	stream grpc.BidiStreamingClient[pluginv1.RunRequest, pluginv1.RunResponse]
	cancel context.CancelFunc
	offset uint64
	got    []*pluginv1.RunResponse
}

// open begins a stream for a session that has the plan of the mission.
func (k *runtimeKit) open(ctx context.Context, state []byte, offset uint64) (*runSession, error) {
	plan, err := k.plan(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := k.client.Run(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("run: %w", err)
	}
	s := &runSession{stream: stream, cancel: cancel, offset: offset}
	return s, s.send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Open{Open: &pluginv1.Open{
		Mission: planRequest(k.opts.Mission).GetMission(), SessionId: "session-1", Plan: plan, State: state, Offset: offset, Generation: 1,
	}}})
}

func (s *runSession) send(m *pluginv1.RunRequest) error {
	if err := s.stream.Send(m); err != nil && !errors.Is(err, io.EOF) { // what went wrong is in Recv
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

func (s *runSession) output(text string) error {
	m := &pluginv1.Output{Stream: pluginv1.Stream_STREAM_STDOUT, Offset: s.offset, Data: []byte(text)}
	s.offset += uint64(len(text))
	return s.send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Output{Output: m}})
}

func (s *runSession) caughtUp() error {
	return s.send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{Offset: s.offset}}})
}

// exit ends the session, and reads the stream to its end.
func (s *runSession) exit(e *pluginv1.Exit) (*pluginv1.Result, error) {
	if err := s.send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Exit{Exit: e}}); err != nil {
		return nil, err
	}
	if err := s.drain(); err != nil {
		return nil, err
	}
	var result *pluginv1.Result
	for _, m := range s.got {
		if r := m.GetResult(); r != nil {
			if result != nil {
				return nil, errors.New("there are two results")
			}
			result = r
		}
	}
	return result, nil
}

// drain reads until the plugin closes the stream; nil = it did so in order.
func (s *runSession) drain() error {
	defer s.cancel()
	for {
		m, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the stream ends with: %w", err)
		}
		s.got = append(s.got, m)
	}
}

// whole runs a session from Open to its end.
func (k *runtimeKit) whole(ctx context.Context, e *pluginv1.Exit, middle ...*pluginv1.RunRequest) (*runSession, *pluginv1.Result, error) {
	s, err := k.open(ctx, nil, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := s.caughtUp(); err != nil {
		return nil, nil, err
	}
	for _, m := range middle {
		if err := s.send(m); err != nil {
			return nil, nil, err
		}
	}
	r, err := s.exit(e)
	return s, r, err
}

func runOpenFirst(ctx context.Context, k *runtimeKit) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := k.client.Run(ctx)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	s := &runSession{stream: stream, cancel: cancel}
	if err := s.caughtUp(); err != nil {
		return err
	}
	return want(errors.Unwrap(s.drain()), "a stream that does not begin with open", codes.InvalidArgument)
}

func runOpenOnce(ctx context.Context, k *runtimeKit) error {
	s, err := k.open(ctx, nil, 0)
	if err != nil {
		return err
	}
	if err := s.send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Open{Open: &pluginv1.Open{SessionId: "session-2"}}}); err != nil {
		return err
	}
	return want(errors.Unwrap(s.drain()), "a second open", codes.InvalidArgument)
}

// runProgress: a mission has at least one progress.
func runProgress(ctx context.Context, k *runtimeKit) error {
	s, _, err := k.whole(ctx, &pluginv1.Exit{})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(s.got, func(m *pluginv1.RunResponse) bool { return m.GetProgress() != nil }) {
		return errors.New("a session from open to its end brings no progress")
	}
	return nil
}

// reasons are the words of a failed mission.
var reasons = []string{"", "non_zero_exit", "signal", "exit_unknown", "dispatch_error", "agent_not_connected", "cell_lost",
	"driver_unavailable", "timeout", "idle", "budget", "blocked", "restart_intensity_exceeded"}

func runExit(ctx context.Context, k *runtimeKit) error {
	for what, e := range map[string]*pluginv1.Exit{
		"code 0": {}, "code 3": {Code: 3}, "code 255": {Code: 255}, "signal 9": {Signal: 9}, "out of memory": {Signal: 9, Oom: true},
	} {
		_, r, err := k.whole(ctx, e)
		if err != nil {
			return fmt.Errorf("after an exit with %s: %w", what, err)
		}
		good := e.GetCode() == 0 && e.GetSignal() == 0
		switch {
		case r == nil: // the exit alone decides
		case r.GetOk() && !good:
			return fmt.Errorf("an exit with %s is called a success", what)
		case !slices.Contains(reasons, r.GetReason()):
			return fmt.Errorf("the reason %q after an exit with %s is none of the contract's words", r.GetReason(), what)
		case r.GetOk() && r.GetReason() != "":
			return fmt.Errorf("a success has the reason %q", r.GetReason())
		}
	}
	return nil
}

func runExitUnknown(ctx context.Context, k *runtimeKit) error {
	_, r, err := k.whole(ctx, &pluginv1.Exit{Unknown: true})
	if err == nil && r.GetOk() {
		err = errors.New("an exit that nobody knows is called a success")
	}
	return err
}

func runUnknownEnum(ctx context.Context, k *runtimeKit) error {
	for what, m := range map[string]*pluginv1.RunRequest{
		"output of an unspecified stream": {Message: &pluginv1.RunRequest_Output{Output: &pluginv1.Output{Data: []byte("x")}}},
		"output of an unknown stream":     {Message: &pluginv1.RunRequest_Output{Output: &pluginv1.Output{Stream: 99, Data: []byte("x")}}},
		"an unspecified decision":         {Message: &pluginv1.RunRequest_Verdict{Verdict: &pluginv1.Verdict{ProposalId: "p"}}},
		"an unknown decision":             {Message: &pluginv1.RunRequest_Verdict{Verdict: &pluginv1.Verdict{ProposalId: "p", Decision: 99}}},
		"a message without content":       {},
	} {
		s, err := k.open(ctx, nil, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(s.caughtUp(), s.send(m)); err != nil {
			return err
		}
		if err := want(errors.Unwrap(s.drain()), what, codes.InvalidArgument); err != nil {
			return err
		}
		if slices.ContainsFunc(s.got, func(m *pluginv1.RunResponse) bool { return m.GetAdmit() != nil }) {
			return fmt.Errorf("%s leads to an admit", what)
		}
	}
	return nil
}

// checkMessages is what a host refuses a message for.
func checkMessages(got []*pluginv1.RunResponse, end uint64) error {
	for _, m := range got {
		switch x := m.GetMessage().(type) {
		case nil:
			return errors.New("a message without content")
		case *pluginv1.RunResponse_Write:
			if x.Write.GetKey() == "" {
				return errors.New("a write without a key: after a restart it would be written twice")
			}
		case *pluginv1.RunResponse_Progress:
			if x.Progress.GetPhase() == "" || x.Progress.Pct != nil && (x.Progress.GetPct() < 0 || x.Progress.GetPct() > 100) {
				return fmt.Errorf("the progress %v has no phase, or a percentage out of range", x.Progress)
			}
		case *pluginv1.RunResponse_Question:
			if x.Question.GetHitlId() == "" || x.Question.GetPrompt() == "" {
				return fmt.Errorf("the question %v has no id or no prompt", x.Question)
			}
		case *pluginv1.RunResponse_Proposal:
			if x.Proposal.GetProposalId() == "" || x.Proposal.GetTool() == "" {
				return fmt.Errorf("the proposal %v has no id or no tool", x.Proposal)
			}
		case *pluginv1.RunResponse_Admit:
			return errors.New("an admit that no verdict has allowed")
		case *pluginv1.RunResponse_Checkpoint:
			if len(x.Checkpoint.GetState()) > 1<<20 || x.Checkpoint.GetOffset() > end {
				return fmt.Errorf("a checkpoint of %d bytes at offset %d, with output up to %d", len(x.Checkpoint.GetState()), x.Checkpoint.GetOffset(), end)
			}
		case *pluginv1.RunResponse_Usage:
			if x.Usage.GetTokens() < 0 || x.Usage.GetCostMicroUsd() < 0 {
				return fmt.Errorf("a negative usage: %v", x.Usage)
			}
		}
	}
	return nil
}

// runMessagesValid shows the plugin output that its agent may not have made.
func runMessagesValid(ctx context.Context, k *runtimeKit) error {
	s, err := k.open(ctx, nil, 0)
	if err != nil {
		return err
	}
	if err := s.caughtUp(); err != nil {
		return err
	}
	for _, text := range []string{"plain\n", "{\"type\":\"nonsense\"}\n", "{\n", "\x1b[31mred\x1b[0m\r", "\xff\xfe\x00\n", strings.Repeat("x", 100_000) + "\n", "no end"} {
		if err := s.output(text); err != nil {
			return err
		}
	}
	if _, err := s.exit(&pluginv1.Exit{}); err != nil {
		return err
	}
	return checkMessages(s.got, s.offset)
}

func runInterrupt(ctx context.Context, k *runtimeKit) error {
	m := &pluginv1.RunRequest{Message: &pluginv1.RunRequest_Interrupt{Interrupt: &pluginv1.Interrupt{}}}
	s, _, err := k.whole(ctx, &pluginv1.Exit{Signal: 2}, m, m)
	if err == nil {
		err = checkMessages(s.got, s.offset)
	}
	return err
}

func runSuspend(ctx context.Context, k *runtimeKit) error {
	m := &pluginv1.RunRequest{Message: &pluginv1.RunRequest_Suspend{Suspend: &pluginv1.Suspend{}}}
	s, _, err := k.whole(ctx, &pluginv1.Exit{}, m)
	if err == nil {
		err = checkMessages(s.got, s.offset)
	}
	return err
}

// runWaiting: the same blocked read is the same question.
func runWaiting(ctx context.Context, k *runtimeKit) error {
	wait := func(offset uint64) *pluginv1.RunRequest {
		return &pluginv1.RunRequest{Message: &pluginv1.RunRequest_Waiting{Waiting: &pluginv1.Waiting{
			Since: timestamppb.Now(), ScreenLine: "Continue? (y/n) ", Offset: offset}}}
	}
	ids := func(s *runSession) (out []string) {
		for _, m := range s.got {
			if q := m.GetQuestion(); q != nil {
				out = append(out, q.GetHitlId())
			}
		}
		return out
	}
	first, _, err := k.whole(ctx, &pluginv1.Exit{}, wait(0))
	if err != nil {
		return err
	}
	if err := k.again(ctx); err != nil {
		return err
	}
	second, _, err := k.whole(ctx, &pluginv1.Exit{}, wait(0))
	if err != nil {
		return err
	}
	if !slices.Equal(ids(first), ids(second)) {
		return fmt.Errorf("the same blocked read is question %q, and after a restart %q", ids(first), ids(second))
	}
	return errors.Join(checkMessages(first.got, first.offset), checkMessages(second.got, second.offset))
}

func runMany(ctx context.Context, k *runtimeKit) error {
	const n = 20
	// A runtime may know better than the exit with code 0, also when it is alone.
	_, alone, err := k.whole(ctx, &pluginv1.Exit{})
	if err != nil {
		return err
	}
	var open []*runSession
	for range n {
		s, err := k.open(ctx, nil, 0)
		if err != nil {
			return err
		}
		defer s.cancel()
		if err := s.caughtUp(); err != nil {
			return err
		}
		open = append(open, s)
	}
	for i, s := range open {
		r, err := s.exit(&pluginv1.Exit{Code: int32(i)})
		if err != nil {
			return err
		}
		if r != nil && r.GetOk() != (i == 0 && alone.GetOk()) {
			return fmt.Errorf("of %d sessions at once, the one with code %d has the result %v", n, i, r)
		}
	}
	return nil
}

// runCancel breaks streams as a host that is killed does.
func runCancel(ctx context.Context, k *runtimeKit) error {
	for range 5 {
		s, err := k.open(ctx, nil, 0)
		if err != nil {
			return err
		}
		if _, err := s.stream.Recv(); err != nil {
			s.cancel()
			return fmt.Errorf("a stream that is open: %w", err)
		}
		s.cancel()
	}
	_, _, err := k.whole(ctx, &pluginv1.Exit{})
	return err
}

func runDeadline(ctx context.Context, k *runtimeKit) error {
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	s, err := k.open(short, nil, 0)
	if err != nil {
		if status.Code(err) == codes.DeadlineExceeded {
			return nil
		}
		return err
	}
	err = s.drain()
	if err == nil {
		return errors.New("a session without an end is closed by the plugin")
	}
	return want(errors.Unwrap(err), "a stream with a deadline", codes.DeadlineExceeded, codes.Canceled)
}

// runClose: the host closes its side; the plugin has nothing more to say.
func runClose(ctx context.Context, k *runtimeKit) error {
	s, err := k.open(ctx, nil, 0)
	if err != nil {
		return err
	}
	if err := s.stream.CloseSend(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return s.drain()
}

func runLarge(ctx context.Context, k *runtimeKit) error {
	s, err := k.open(ctx, nil, 0)
	if err != nil {
		return err
	}
	if err := s.caughtUp(); err != nil {
		return err
	}
	line := strings.Repeat("0123456789", 6000) + "\n"
	for range 200 { // 12 MB
		if err := s.output(line); err != nil {
			return err
		}
	}
	if _, err := s.exit(&pluginv1.Exit{}); err != nil {
		return err
	}
	return checkMessages(s.got, s.offset)
}
