package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func issuerChecks() []revokerCheck {
	return []revokerCheck{
		{"retryable", "", retryable},
		{"permanent", "", permanent},
		{"partial-failure-report", "", partialFailure},
		{"deadline", "", deadline},
		{"cancel", "", cancelled},
	}
}

// retryable: an issuer that is away makes a failure that a retry, with the
// same key, turns into an acknowledgement.
func retryable(ctx context.Context, k *revokerKit) error {
	if k.opts.Issuer.Away == nil {
		return notDeclared("the issuer cannot be taken away")
	}
	task, stop := k.task(), newID()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	err = trouble(ctx, "is away", k.opts.Issuer.Away, func() error {
		again, wrong := failed(k.revoke(ctx, task, stop, g.GetGrantId()))
		if wrong != nil {
			return fmt.Errorf("with the issuer away: %w", wrong)
		}
		if !again {
			return errors.New("a failure with the issuer away is said to be permanent")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := k.cut(ctx, task, stop, g.GetGrantId()); err != nil {
		return fmt.Errorf("the same stop, with the issuer back: %w", err)
	}
	return k.cutOff(ctx, g)
}

func permanent(ctx context.Context, k *revokerKit) error {
	if k.opts.Issuer.Refuse == nil {
		return notDeclared("the issuer cannot be made to refuse")
	}
	task, stop := k.task(), newID()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	return trouble(ctx, "refuses", k.opts.Issuer.Refuse, func() error {
		again, wrong := failed(k.revoke(ctx, task, stop, g.GetGrantId()))
		if wrong != nil {
			return fmt.Errorf("with an issuer that refuses: %w", wrong)
		}
		if again {
			return errors.New("a refusal for good is said to be worth another try")
		}
		return nil
	})
}

// partialFailure: one grant that fails is named, and does not keep the others.
func partialFailure(ctx context.Context, k *revokerKit) error {
	if k.opts.Issuer.Hold == nil {
		return notDeclared("the issuer cannot be made to fail for one grant")
	}
	task, stop := k.task(), newID()
	var grants []*pluginv1.Grant
	var ids []string
	for range 3 {
		g, err := k.grant(ctx, task, newID())
		if err != nil {
			return err
		}
		grants, ids = append(grants, g), append(ids, g.GetGrantId())
	}
	hold := func(ctx context.Context) (func() error, error) { return k.opts.Issuer.Hold(ctx, ids[1]) }
	err := trouble(ctx, "fails for one grant", hold, func() error {
		r, err := k.revoke(ctx, task, stop, ids...)
		if _, wrong := failed(r, err); wrong != nil {
			return fmt.Errorf("with one of three grants failing: %w", wrong)
		}
		said := r.GetDetail()
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, ids[1]) {
			return fmt.Errorf("the grant %s that failed is not named: %s", ids[1], said)
		}
		for _, i := range []int{0, 2} {
			if err := k.cutOff(ctx, grants[i]); err != nil {
				return fmt.Errorf("the failure of another grant kept it: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := k.cut(ctx, task, stop, ids...); err != nil {
		return fmt.Errorf("the same stop, afterwards: %w", err)
	}
	for _, g := range grants {
		if err := k.cutOff(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// deadline: an issuer that does not answer is a failure worth another try, by
// the revoker's own patience, and holds up nothing else.
func deadline(ctx context.Context, k *revokerKit) error {
	if k.opts.Issuer.Stall == nil {
		return notDeclared("the issuer cannot be made to hang")
	}
	task, stop := k.task(), newID()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	err = trouble(ctx, "does not answer", k.opts.Issuer.Stall, func() error {
		again, wrong := failed(k.revoke(ctx, task, stop, g.GetGrantId()))
		switch {
		case ctx.Err() != nil:
			return errors.New("the revoker waits without an end for an issuer that does not answer")
		case wrong != nil:
			return fmt.Errorf("with an issuer that does not answer: %w", wrong)
		case !again:
			return errors.New("a failure for want of an answer is said to be permanent")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := k.cut(ctx, task, stop, g.GetGrantId()); err != nil {
		return fmt.Errorf("the same stop, afterwards: %w", err)
	}
	return k.cutOff(ctx, g)
}

// cancelled: a caller that gives up leaves nothing behind that keeps the next
// one out.
func cancelled(ctx context.Context, k *revokerKit) error {
	if k.opts.Issuer.Stall == nil {
		return notDeclared("the issuer cannot be made to hang")
	}
	task, stop := k.task(), newID()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	err = trouble(ctx, "does not answer", k.opts.Issuer.Stall, func() error {
		for range 5 {
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			r, err := k.revoke(short, task, stop, g.GetGrantId())
			cancel()
			if _, wrong := failed(r, err); wrong != nil {
				return fmt.Errorf("with a short deadline: %w", wrong)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := k.cut(ctx, task, stop, g.GetGrantId()); err != nil {
		return fmt.Errorf("after calls that were given up: %w", err)
	}
	return k.cutOff(ctx, g)
}
