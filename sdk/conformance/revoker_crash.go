package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func crashChecks() []revokerCheck {
	return []revokerCheck{
		{"revoke-after-restart", "", revokeAfterRestart},
		{"crash-mid-revoke", "", crashMidRevoke},
	}
}

func (k *revokerKit) restart(ctx context.Context) error {
	client, err := k.opts.Restart(ctx)
	if err != nil {
		return fmt.Errorf("restart the plugin: %w", err)
	}
	k.use(client)
	return nil
}

// revokeAfterRestart: a new process revokes what the old one granted, and
// remembers what it revoked.
func revokeAfterRestart(ctx context.Context, k *revokerKit) error {
	if k.opts.Restart == nil {
		return notDeclared("the plugin cannot be restarted")
	}
	task := k.task()
	var grants []*pluginv1.Grant
	for range 2 {
		g, err := k.grant(ctx, task, newID())
		if err != nil {
			return err
		}
		grants = append(grants, g)
	}
	if _, err := k.cut(ctx, task, newID(), grants[0].GetGrantId()); err != nil {
		return err
	}
	if err := k.restart(ctx); err != nil {
		return err
	}
	if err := errors.Join(k.cutOff(ctx, grants[0]), k.accepted(ctx, grants[1])); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	if k.real() {
		if got, err := k.verify(ctx, task, grants[1].GetGrantId()); err != nil || got == refusedByIssuer {
			return errors.Join(err, fmt.Errorf("after a restart verify of a live grant says %v", got))
		}
	}
	for _, g := range grants {
		if _, err := k.cut(ctx, task, newID(), g.GetGrantId()); err != nil {
			return err
		}
		if err := k.cutOff(ctx, g); err != nil {
			return fmt.Errorf("revoked by the next process: %w", err)
		}
	}
	return nil
}

// crashMidRevoke kills the plugin while it revokes, ever later, and sends the
// same stop to the next process, as the host does.
func crashMidRevoke(ctx context.Context, k *revokerKit) error {
	if k.opts.Restart == nil {
		return notDeclared("the plugin cannot be restarted")
	}
	for _, after := range []time.Duration{0, time.Millisecond, 4 * time.Millisecond, 15 * time.Millisecond} {
		if err := k.crash(ctx, after); err != nil {
			return fmt.Errorf("killed %v after the call: %w", after, err)
		}
	}
	if k.opts.Issuer.Stall == nil {
		return nil
	}
	// Surely in the middle: the issuer keeps the request.
	i, err := k.begin(ctx)
	if err != nil {
		return err
	}
	err = trouble(ctx, "does not answer", k.opts.Issuer.Stall, func() error { return k.interrupt(ctx, i, 50*time.Millisecond) })
	if err != nil {
		return err
	}
	return k.finish(ctx, i)
}

func (k *revokerKit) crash(ctx context.Context, after time.Duration) error {
	i, err := k.begin(ctx)
	if err != nil {
		return err
	}
	if err := k.interrupt(ctx, i, after); err != nil {
		return err
	}
	return k.finish(ctx, i)
}

// interruption is a stop whose call is cut short.
type interruption struct {
	task   *pluginv1.TaskRef
	stop   string
	grants []*pluginv1.Grant
}

func (i *interruption) ids() (ids []string) {
	for _, g := range i.grants {
		ids = append(ids, g.GetGrantId())
	}
	return ids
}

func (k *revokerKit) begin(ctx context.Context) (*interruption, error) {
	i := &interruption{task: k.task(), stop: newID()}
	for range 3 {
		g, err := k.grant(ctx, i.task, newID())
		if err != nil {
			return nil, err
		}
		i.grants = append(i.grants, g)
	}
	return i, nil
}

// interrupt begins the revocation and kills the plugin after a while.
func (k *revokerKit) interrupt(ctx context.Context, i *interruption, after time.Duration) error {
	type answer struct {
		r   *pluginv1.RevokeResponse
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		r, err := k.revoke(ctx, i.task, i.stop, i.ids()...)
		answered <- answer{r, err}
	}()
	if err := rest(ctx, after); err != nil {
		return err
	}
	restarted := k.restart(ctx)
	a := <-answered
	if restarted != nil {
		return restarted
	}
	if a.err != nil || a.r.GetResult() != acknowledged {
		return nil
	}
	// It was quicker than the kill, and must have meant it.
	return k.allCutOff(ctx, i)
}

// finish sends the stop again, to the next process.
func (k *revokerKit) finish(ctx context.Context, i *interruption) error {
	if _, err := k.cut(ctx, i.task, i.stop, i.ids()...); err != nil {
		return fmt.Errorf("the same stop at the next process: %w", err)
	}
	return k.allCutOff(ctx, i)
}

func (k *revokerKit) allCutOff(ctx context.Context, i *interruption) error {
	for _, g := range i.grants {
		if err := k.cutOff(ctx, g); err != nil {
			return err
		}
	}
	return nil
}
