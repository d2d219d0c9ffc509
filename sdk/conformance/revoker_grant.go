package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func grantChecks() []revokerCheck {
	return []revokerCheck{
		{"grant-ok", featureGrants, grantOK},
		{"grant-idempotent", featureGrants, grantIdempotent},
		{"grant-concurrent", featureGrants, grantConcurrent},
		{"grant-odd-ids", featureGrants, grantOddIDs},
		{"grant-after-revoke", featureGrants, grantAfterRevoke},
	}
}

func grantOK(ctx context.Context, k *revokerKit) error {
	first, err := k.callGrant(ctx, k.task(), newID())
	if err != nil {
		return err
	}
	second, err := k.callGrant(ctx, k.task(), newID())
	if err != nil {
		return err
	}
	if maps.Equal(first.GetEnv(), second.GetEnv()) {
		return errors.New("two grants have the same credential")
	}
	return errors.Join(k.accepted(ctx, first), k.accepted(ctx, second))
}

// grantIdempotent: the same id answers the same credential, or a new one after
// the old was voided.
func grantIdempotent(ctx context.Context, k *revokerKit) error {
	task, id := k.task(), newID()
	first, err := k.callGrant(ctx, task, id)
	if err != nil {
		return err
	}
	again, err := k.callGrant(ctx, task, id)
	if err != nil {
		return fmt.Errorf("the same grant again: %w", err)
	}
	if err := k.accepted(ctx, again); err != nil {
		return fmt.Errorf("after the same grant again: %w", err)
	}
	if !maps.Equal(first.GetEnv(), again.GetEnv()) {
		if err := k.cutOff(ctx, first); err != nil {
			return fmt.Errorf("the same grant again made a second credential: %w", err)
		}
	}
	if _, err := k.cut(ctx, task, newID(), id); err != nil {
		return err
	}
	return errors.Join(k.cutOff(ctx, first), k.cutOff(ctx, again))
}

// grantConcurrent: of many answers to one id, none outlives the revocation.
func grantConcurrent(ctx context.Context, k *revokerKit) error {
	const callers = 8
	task, id := k.task(), newID()
	var wg sync.WaitGroup
	grants, errs := make([]*pluginv1.Grant, callers), make([]error, callers)
	for i := range callers {
		wg.Go(func() { grants[i], errs[i] = k.callGrant(ctx, task, id) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, err := k.cut(ctx, task, newID(), id); err != nil {
		return err
	}
	for _, g := range grants {
		if err := k.cutOff(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// oddIDs are ids that a host may use: they name nothing but themselves.
func oddIDs() []string {
	return []string{
		"a/../b-" + newID(), "..", ".", `"; DROP ROLE postgres; --` + newID(), "it's $1 \\ %s\x7f" + newID(),
		"two\nlines " + newID(), strings.Repeat("𝒂", 300), strings.Repeat("𝒂", 299) + "𝒃", "UPPER", "upper", " upper",
	}
}

// grantOddIDs: odd ids work, and two of them never meet.
func grantOddIDs(ctx context.Context, k *revokerKit) error {
	var grants []*pluginv1.Grant
	var tasks []*pluginv1.TaskRef
	for _, id := range oddIDs() {
		task := &pluginv1.TaskRef{TaskId: id, HostId: k.opts.HostID}
		g, err := k.callGrant(ctx, task, id+"!"+newID())
		if err != nil {
			return fmt.Errorf("id %.40q: %w", id, err)
		}
		for _, other := range grants {
			if maps.Equal(other.GetEnv(), g.GetEnv()) {
				return fmt.Errorf("%.40q and %.40q have one credential", other.GetGrantId(), g.GetGrantId())
			}
		}
		grants, tasks = append(grants, g), append(tasks, task)
	}
	for i, g := range grants {
		if err := k.accepted(ctx, g); err != nil {
			return fmt.Errorf("before its turn: %w", err)
		}
		if _, err := k.cut(ctx, tasks[i], newID(), g.GetGrantId()); err != nil {
			return fmt.Errorf("id %.40q: %w", g.GetGrantId(), err)
		}
		if err := k.cutOff(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// grantAfterRevoke: a Grant that was on its way while the stop ran must not
// bring the access back.
func grantAfterRevoke(ctx context.Context, k *revokerKit) error {
	for _, before := range []bool{true, false} {
		task, id := k.task(), newID()
		if before {
			if _, err := k.callGrant(ctx, task, id); err != nil {
				return err
			}
		}
		if _, err := k.cut(ctx, task, newID(), id); err != nil {
			return err
		}
		late, err := k.callGrant(ctx, task, id)
		if err != nil {
			continue // refused: the best answer
		}
		if k.opts.Issuer.Accepts == nil {
			return errors.New("a revoked grant is handed out again")
		}
		if err := k.cutOff(ctx, late); err != nil {
			return fmt.Errorf("a late grant brings the access back: %w", err)
		}
	}
	return nil
}
