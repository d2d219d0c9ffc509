package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

func exitChecks() []isolationCheck {
	return []isolationCheck{
		{"exit-code", "", exitCodes},
		{"signal-exit", "", exitSignal},
		{"wait-after", "", waitAfter},
		{"wait-many", "", waitMany},
		{"exit-recorded-once", "", exitOnce},
	}
}

func exitCodes(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	for _, code := range []int32{0, 1, 126, 127, 255} {
		s, err := p.start(ctx, fmt.Sprintf("exit %d", code))
		if err != nil {
			return err
		}
		_, exit, err := s.finish(ctx)
		if err != nil {
			return err
		}
		if exit.GetCode() != code || exit.GetSignal() != 0 || exit.GetOom() {
			return fmt.Errorf("exit %d is reported as code %d, signal %d, oom %v", code, exit.GetCode(), exit.GetSignal(), exit.GetOom())
		}
	}
	return nil
}

func exitSignal(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	for _, sig := range []int32{9, 15, 6} {
		s, err := p.start(ctx, fmt.Sprintf("kill -%d $$; sleep 60", sig))
		if err != nil {
			return err
		}
		_, exit, err := s.finish(ctx)
		if err != nil {
			return err
		}
		if exit.GetSignal() != sig || exit.GetOom() {
			return fmt.Errorf("an end by signal %d is reported as code %d, signal %d, oom %v", sig, exit.GetCode(), exit.GetSignal(), exit.GetOom())
		}
	}
	return nil
}

// waitAfter: an end that nobody was connected to see is kept.
func waitAfter(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.start(ctx, "touch up; while [ ! -e go ]; do sleep 0.02; done; touch done; exit 42")
	if err != nil {
		return err
	}
	if err := until(ctx, "the session", func() bool { return p.exists("up") }); err != nil {
		return err
	}
	_ = p.conn.Close()
	if err := touch(p.work, "go"); err != nil {
		return err
	}
	if err := until(ctx, "the end of the session", func() bool { return p.exists("done") }); err != nil {
		return err
	}
	exit, err := p.exitOnDial(ctx, s.id)
	if err == nil && exit.GetCode() != 42 {
		err = fmt.Errorf("an end that nobody was connected to see is code %d, not 42", exit.GetCode())
	}
	return err
}

// exitOnDial connects, and finds the end of a session in the agent's hello or
// among its events.
func (p *place) exitOnDial(ctx context.Context, id string) (*cellv1.Exited, error) {
	if err := p.dial(ctx); err != nil {
		return nil, err
	}
	for _, s := range p.conn.Hello().GetSessions() {
		if s.GetSessionId() == id && s.GetExited() != nil {
			return s.GetExited(), nil
		}
	}
	// The agent tells of an end once its output was read.
	_, exit, err := (&session{p, id}).finish(ctx)
	return exit, err
}

// waitMany asks for the same end on several connections, one after the other.
func waitMany(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.start(ctx, "exit 3")
	if err != nil {
		return err
	}
	if _, _, err := s.finish(ctx); err != nil {
		return err
	}
	for range 3 {
		_ = p.conn.Close()
		exit, err := p.exitOnDial(ctx, s.id)
		if err != nil {
			return err
		}
		if exit.GetCode() != 3 {
			return fmt.Errorf("asked again, the code is %d, not 3", exit.GetCode())
		}
	}
	return nil
}

// exitOnce: an acknowledged end is forgotten, and its session never runs again.
func exitOnce(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.start(ctx, "echo run >> runs")
	if err != nil {
		return err
	}
	if _, _, err := s.finish(ctx); err != nil {
		return err
	}
	extra, cancel := context.WithTimeout(ctx, quiet)
	e, err := p.nextExit(extra)
	cancel()
	if err == nil {
		return fmt.Errorf("a second end came: %v", e)
	}
	if err := p.conn.AckExit(ctx, s.id); err != nil {
		return fmt.Errorf("acknowledge the end: %w", err)
	}
	facts := p.cell.GetFacts()
	_, err = p.conn.Start(ctx, &cellv1.Start{
		SessionId: s.id, Generation: 1, Argv: []string{"/bin/sh", "-c", "echo run >> runs"}, Cwd: facts.GetWorkspace(),
		Uid: facts.GetUid(), Gid: facts.GetGid(), OnFull: cellv1.OnFull_ON_FULL_BLOCK,
	})
	if err == nil {
		return errors.New("a session that has ended is started again under its id")
	}
	if err := rest(ctx, 50*time.Millisecond); err != nil {
		return err
	}
	if got := p.beatAt("runs"); got != "run" {
		return fmt.Errorf("the session ran more than once: %q", got)
	}
	return nil
}
