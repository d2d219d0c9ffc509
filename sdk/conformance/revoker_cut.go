package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func cutChecks() []revokerCheck {
	return []revokerCheck{
		{"revoke-cuts", "", revokeCuts},
		{"revoke-only-what-is-named", "", revokeOnlyNamed},
		{"revoke-idempotent", "", revokeIdempotent},
		{"revoke-concurrent", "", revokeConcurrent},
		{"revoke-unknown", "", revokeUnknown},
		{"revoke-odd-ids", "", revokeOddIDs},
		{"revoke-many", "", revokeMany},
		{"dry-run", "", dryRun},
	}
}

// revokeCuts: what was accepted before is refused by the issuer after.
func revokeCuts(ctx context.Context, k *revokerKit) error {
	if k.opts.Issuer.Accepts == nil || !k.real() {
		return notDeclared("the issuer cannot be asked")
	}
	task := k.task()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	if err := k.accepted(ctx, g); err != nil {
		return fmt.Errorf("before the revocation: %w", err)
	}
	if _, err := k.cut(ctx, task, newID(), g.GetGrantId()); err != nil {
		return err
	}
	return k.cutOff(ctx, g)
}

// revokeOnlyNamed: a relaunched mission gets a new grant and the old one is
// revoked, so that the revocation of one must leave the other.
func revokeOnlyNamed(ctx context.Context, k *revokerKit) error {
	if !k.real() {
		return notDeclared("the revoker makes no credentials")
	}
	task := k.task()
	var grants []*pluginv1.Grant
	for _, of := range []*pluginv1.TaskRef{task, task, k.task()} {
		g, err := k.grant(ctx, of, newID())
		if err != nil {
			return err
		}
		grants = append(grants, g)
	}
	if _, err := k.cut(ctx, task, newID(), grants[0].GetGrantId()); err != nil {
		return err
	}
	for _, g := range grants[1:] {
		if err := k.accepted(ctx, g); err != nil {
			return fmt.Errorf("a grant that was not named: %w", err)
		}
		if got, err := k.verify(ctx, task, g.GetGrantId()); err != nil || got == refusedByIssuer {
			return errors.Join(err, fmt.Errorf("verify of a grant that was not named says %v", got))
		}
	}
	return k.cutOff(ctx, grants[0])
}

func revokeIdempotent(ctx context.Context, k *revokerKit) error {
	task, stop := k.task(), newID()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	for _, id := range []string{stop, stop, stop, newID()} {
		if _, err := k.cut(ctx, task, id, g.GetGrantId()); err != nil {
			return err
		}
		if err := k.cutOff(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// revokeConcurrent: the host retries a call that it has given up while the
// first still runs.
func revokeConcurrent(ctx context.Context, k *revokerKit) error {
	const callers = 6
	task, stop := k.task(), newID()
	var ids []string
	var grants []*pluginv1.Grant
	for range 2 {
		g, err := k.grant(ctx, task, newID())
		if err != nil {
			return err
		}
		ids, grants = append(ids, g.GetGrantId()), append(grants, g)
	}
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		wg.Go(func() {
			// In both orders: locks that are taken in the order of the list
			// would wait for each other.
			order := []string{ids[i%2], ids[1-i%2]}
			if _, errs[i] = k.cut(ctx, task, stop, order...); errs[i] != nil {
				return
			}
			for _, g := range grants { // each answer holds when it is given
				errs[i] = errors.Join(errs[i], k.cutOff(ctx, g))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// revokeUnknown: what the issuer has never heard of, or has forgotten, is cut.
func revokeUnknown(ctx context.Context, k *revokerKit) error {
	if _, err := k.cut(ctx, k.task(), newID(), newID(), newID()); err != nil {
		return fmt.Errorf("unknown grants: %w", err)
	}
	if _, err := k.cut(ctx, k.task(), newID()); err != nil {
		return fmt.Errorf("a task without grants: %w", err)
	}
	_, err := k.callRevoke(ctx, &pluginv1.RevokeRequest{
		Task: k.task(), StopId: newID(), Sessions: []string{newID()}, Delegations: []string{newID()}, Reason: "conformance",
	})
	if err != nil {
		return fmt.Errorf("unknown sessions and delegations: %w", err)
	}
	return nil
}

func revokeOddIDs(ctx context.Context, k *revokerKit) error {
	for _, id := range oddIDs() {
		r, err := k.callRevoke(ctx, &pluginv1.RevokeRequest{
			Task: &pluginv1.TaskRef{TaskId: id, HostId: k.opts.HostID}, StopId: newID(),
			Grants: []string{id, id}, Sessions: []string{id}, Delegations: []string{id}, Reason: id,
		})
		if err != nil || r.GetResult() != acknowledged {
			return errors.Join(err, fmt.Errorf("revoke for the id %.40q is %v: %s", id, r.GetResult(), r.GetDetail()))
		}
	}
	return nil
}

// revokeMany: a task that was resumed many times has many grants.
func revokeMany(ctx context.Context, k *revokerKit) error {
	task := k.task()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	ids := make([]string, 0, 101)
	for i := range 100 {
		ids = append(ids, "unknown-"+strconv.Itoa(i))
	}
	if _, err := k.cut(ctx, task, newID(), append(ids, g.GetGrantId())...); err != nil {
		return err
	}
	return k.cutOff(ctx, g)
}

// dryRun: nothing is cut, and the detail says what would be.
func dryRun(ctx context.Context, k *revokerKit) error {
	task, stop := k.task(), newID()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	r, err := k.callRevoke(ctx, &pluginv1.RevokeRequest{
		Task: task, StopId: stop, Grants: []string{g.GetGrantId()}, Reason: "conformance", DryRun: true,
	})
	switch {
	case err != nil:
		return fmt.Errorf("dry run: %w", err)
	case r.GetDetail() == "":
		return errors.New("a dry run does not say what would be done")
	}
	if k.real() {
		if err := k.accepted(ctx, g); err != nil {
			return fmt.Errorf("after a dry run: %w", err)
		}
		if got, err := k.verify(ctx, task, g.GetGrantId()); err != nil || got == refusedByIssuer {
			return errors.Join(err, fmt.Errorf("verify after a dry run says %v", got))
		}
	}
	// The stop's key is not used up by it.
	if _, err := k.cut(ctx, task, stop, g.GetGrantId()); err != nil {
		return fmt.Errorf("after a dry run: %w", err)
	}
	return k.cutOff(ctx, g)
}
