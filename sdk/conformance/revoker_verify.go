package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

func verifyChecks() []revokerCheck {
	return []revokerCheck{
		{"verify", "", verifyTruth},
		{"verify-worst-counts", "", verifyWorst},
		{"verify-unknown", "", verifyUnknown},
		{"verify-away", "", verifyAway},
		{"verify-catches-a-lie", "", verifyLie},
	}
}

// verifyTruth: Verify may not know, but it must not say what is not so.
func verifyTruth(ctx context.Context, k *revokerKit) error {
	if !k.real() {
		return notDeclared("the revoker makes no credentials")
	}
	task := k.task()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	before, err := k.verify(ctx, task, g.GetGrantId())
	if err != nil {
		return err
	}
	if before == refusedByIssuer {
		return errors.New("verify says that the issuer refuses a credential that was never revoked")
	}
	if _, err := k.cut(ctx, task, newID(), g.GetGrantId()); err != nil {
		return err
	}
	after, err := k.verify(ctx, task, g.GetGrantId())
	switch {
	case err != nil:
		return err
	case after == stillAccepted:
		return errors.New("verify says that the issuer still accepts a revoked credential")
	case before == cannotTell && after == cannotTell:
		return notDeclared("verify cannot tell")
	case before != stillAccepted || after != refusedByIssuer:
		return fmt.Errorf("verify knows only half: %v before the revocation, %v after", before, after)
	}
	return k.cutOff(ctx, g)
}

// verifyWorst: of several grants the worst finding counts, wherever it stands.
func verifyWorst(ctx context.Context, k *revokerKit) error {
	if !k.real() {
		return notDeclared("the revoker makes no credentials")
	}
	task := k.task()
	live, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	dead, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	if _, err := k.cut(ctx, task, newID(), dead.GetGrantId()); err != nil {
		return err
	}
	ids := []string{live.GetGrantId(), dead.GetGrantId()}
	for range 2 {
		if got, err := k.verify(ctx, task, ids...); err != nil || got == refusedByIssuer {
			return errors.Join(err, fmt.Errorf("verify of a live and a revoked grant says %v", got))
		}
		slices.Reverse(ids)
	}
	return nil
}

func verifyUnknown(ctx context.Context, k *revokerKit) error {
	for _, ids := range [][]string{{newID()}, oddIDs()} {
		if got, err := k.verify(ctx, k.task(), ids...); err != nil || got == stillAccepted {
			return errors.Join(err, fmt.Errorf("verify of unknown grants says %v", got))
		}
	}
	return nil
}

// verifyAway: without the issuer nobody can tell.
func verifyAway(ctx context.Context, k *revokerKit) error {
	if k.opts.Issuer.Away == nil {
		return notDeclared("the issuer cannot be taken away")
	}
	task := k.task()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	return trouble(ctx, "is away", k.opts.Issuer.Away, func() error {
		got, err := k.verify(ctx, task, g.GetGrantId())
		if err == nil && got == refusedByIssuer {
			return errors.New("verify says that an issuer refuses which could not be asked")
		}
		return nil
	})
}

// verifyLie: an issuer that confirms and does not cut is found out.
func verifyLie(ctx context.Context, k *revokerKit) error {
	if k.opts.Issuer.Lie == nil || !k.real() {
		return notDeclared("the issuer cannot be made to lie")
	}
	task := k.task()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	return trouble(ctx, "lies", k.opts.Issuer.Lie, func() error {
		// An acknowledgement is no mistake here; a revoker may also look itself.
		if r, err := k.revoke(ctx, task, newID(), g.GetGrantId()); err != nil || r.GetResult() != acknowledged {
			return nil
		}
		if got, err := k.verify(ctx, task, g.GetGrantId()); err != nil || got == refusedByIssuer {
			return errors.Join(err, fmt.Errorf("the issuer confirmed and cut nothing, and verify says %v", got))
		}
		return nil
	})
}
