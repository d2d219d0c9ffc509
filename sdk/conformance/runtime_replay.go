package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func replayChecks() []runtimeCheck {
	return []runtimeCheck{
		{"replay-from-checkpoint", replayCheckpoint},
		{"replay-brings-no-decision", replayNoDecision},
		{"replay-same-keys", replayKeys},
		{"replay-foreign-state", replayForeign},
		{"verdict-unknown-proposal", strayVerdicts},
	}
}

// last is the last checkpoint of a stream; nil = none.
func last(got []*pluginv1.RunResponse) *pluginv1.Checkpoint {
	for _, m := range slices.Backward(got) {
		if c := m.GetCheckpoint(); c != nil {
			return c
		}
	}
	return nil
}

// replayCheckpoint breaks a session in the middle and goes on from its last
// checkpoint, in a new process where that is possible.
func replayCheckpoint(ctx context.Context, k *runtimeKit) error {
	s, err := k.open(ctx, nil, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(s.caughtUp(), s.output("one\n"), s.output("two\n"), s.stream.CloseSend()); err != nil {
		return err
	}
	if err := s.drain(); err != nil {
		return err
	}
	if err := checkMessages(s.got, s.offset); err != nil {
		return err
	}
	if err := k.again(ctx); err != nil {
		return err
	}
	point := last(s.got) // none: everything is replayed
	next, err := k.open(ctx, point.GetState(), point.GetOffset())
	if err != nil {
		return err
	}
	if text := "one\ntwo\n"[point.GetOffset():]; text != "" {
		if err := next.output(text); err != nil {
			return err
		}
	}
	if err := errors.Join(next.caughtUp(), next.output("three\n")); err != nil {
		return err
	}
	r, err := next.exit(&pluginv1.Exit{Code: 4})
	if err != nil {
		return fmt.Errorf("from a checkpoint: %w", err)
	}
	if r.GetOk() {
		return errors.New("from a checkpoint, an exit with code 4 is called a success")
	}
	if c := last(next.got); c != nil && c.GetOffset() < point.GetOffset() {
		return fmt.Errorf("a checkpoint goes back from offset %d to %d", point.GetOffset(), c.GetOffset())
	}
	return checkMessages(next.got, next.offset)
}

// replayNoDecision: what comes before CaughtUp is history. Nothing of it may
// be admitted, and no result comes before the exit.
func replayNoDecision(ctx context.Context, k *runtimeKit) error {
	s, err := k.open(ctx, nil, 0)
	if err != nil {
		return err
	}
	for _, text := range []string{"hello\n", "{\"type\":\"control_request\"}\n", "more\n"} {
		if err := s.output(text); err != nil {
			return err
		}
	}
	// The host closes before it has caught up: all that was said is about the past.
	if err := s.stream.CloseSend(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if err := s.drain(); err != nil {
		return err
	}
	for _, m := range s.got {
		switch {
		case m.GetAdmit() != nil:
			return errors.New("an admit comes out of a replay")
		case m.GetSettled() != nil:
			return errors.New("a call is settled that was never admitted")
		case m.GetResult() != nil:
			return errors.New("a result comes without an exit")
		}
	}
	return nil
}

// replayKeys: the same history leads to the same writes, under the same keys.
func replayKeys(ctx context.Context, k *runtimeKit) error {
	keys := func() (out []string, err error) {
		s, err := k.open(ctx, nil, 0)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(s.output("hello\n"), s.caughtUp()); err != nil {
			return nil, err
		}
		if _, err := s.exit(&pluginv1.Exit{}); err != nil {
			return nil, err
		}
		for _, m := range s.got {
			if w := m.GetWrite(); w != nil {
				out = append(out, w.GetKey()+"="+string(w.GetData()))
			}
		}
		return out, nil
	}
	first, err := keys()
	if err != nil {
		return err
	}
	if err := k.again(ctx); err != nil {
		return err
	}
	second, err := keys()
	if err == nil && !slices.Equal(first, second) {
		err = fmt.Errorf("the same history is answered with the writes %q, and after a restart %q", first, second)
	}
	return err
}

// replayForeign gives it a state that it has not made.
func replayForeign(ctx context.Context, k *runtimeKit) error {
	for _, state := range []string{"\xff\x00garbage", "{}", `{"v":99}`} {
		s, err := k.open(ctx, []byte(state), 0)
		if err != nil {
			return err
		}
		if err := s.caughtUp(); err != nil {
			return err
		}
		r, err := s.exit(&pluginv1.Exit{Code: 1})
		if err != nil {
			err = want(errors.Unwrap(err), fmt.Sprintf("a session with the state %q", state), codes.InvalidArgument, codes.FailedPrecondition)
		} else if r.GetOk() {
			err = fmt.Errorf("with the state %q, an exit with code 1 is called a success", state)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// strayVerdicts: verdicts, admissions and answers to what was never asked come
// after a crash of the host; nothing may run because of them.
func strayVerdicts(ctx context.Context, k *runtimeKit) error {
	s, _, err := k.whole(ctx, &pluginv1.Exit{},
		&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Verdict{Verdict: &pluginv1.Verdict{ProposalId: "never-proposed", Decision: pluginv1.Decision_DECISION_ALLOW}}},
		&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Admitted{Admitted: &pluginv1.Admitted{ProposalId: "never-proposed", InvocationId: "i-1"}}},
		&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Refused{Refused: &pluginv1.Refused{ProposalId: "never-proposed", Why: "stopped"}}},
		&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Answer{Answer: &pluginv1.Answer{HitlId: "never-asked", Text: "yes"}}},
	)
	if err != nil {
		return err
	}
	for _, m := range s.got {
		if m.GetSettled() != nil || m.GetAdmit() != nil {
			return fmt.Errorf("a call that was never proposed leads to %v", m)
		}
	}
	return checkMessages(s.got, s.offset)
}
