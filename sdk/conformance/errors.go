package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func errorChecks() []isolationCheck {
	return []isolationCheck{
		{"error-codes", "", errorCodes},
		{"undeclared-unimplemented", "", undeclaredCalls},
		{"panic-safe", "", emptyRequests},
		{"deadline-propagation", "", deadlines},
	}
}

// calls are all calls that name a cell.
func (k *kit) calls(ref *pluginv1.CellRef) map[string]func(context.Context) error {
	c := k.client
	calls := map[string]func(context.Context) error{
		"recover": func(ctx context.Context) error {
			_, err := c.Recover(ctx, &pluginv1.RecoverRequest{Ref: ref})
			return err
		},
		"stop": func(ctx context.Context) error { _, err := c.Stop(ctx, &pluginv1.StopRequest{Ref: ref}); return err },
		"inspect": func(ctx context.Context) error {
			_, err := c.Inspect(ctx, &pluginv1.InspectRequest{Ref: ref})
			return err
		},
		"stats": func(ctx context.Context) error {
			s, err := c.Stats(ctx, &pluginv1.StatsRequest{Ref: ref, Interval: durationpb.New(100 * time.Millisecond)})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	}
	if slices.Contains(k.opts.Features, "pause") {
		calls["pause"] = func(ctx context.Context) error { _, err := c.Pause(ctx, &pluginv1.PauseRequest{Ref: ref}); return err }
		calls["resume"] = func(ctx context.Context) error {
			_, err := c.Resume(ctx, &pluginv1.ResumeRequest{Ref: ref})
			return err
		}
	}
	return calls
}

// errorCodes: an unknown cell and another incarnation of a known one are
// NotFound, everywhere; what is gone is destroyed already.
func errorCodes(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	for what, ref := range map[string]*pluginv1.CellRef{
		"an unknown cell":     {CellId: newID(), Incarnation: 1},
		"another incarnation": {CellId: p.spec.GetCellId(), Incarnation: 7},
	} {
		for name, call := range k.calls(ref) {
			if err := want(call(ctx), name+" of "+what, codes.NotFound, codes.FailedPrecondition); err != nil {
				return err
			}
			if status.Code(call(ctx)) == codes.FailedPrecondition && what == "an unknown cell" {
				return fmt.Errorf("%s of %s is refused with FailedPrecondition, not NotFound", name, what)
			}
		}
	}
	if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: &pluginv1.CellRef{CellId: newID(), Incarnation: 1}}); err != nil {
		return fmt.Errorf("destroy of an unknown cell: %w", err)
	}
	_, err = p.sh(ctx, "true")
	return err
}

// undeclaredCalls: what is not declared is Unimplemented, not a crash.
func undeclaredCalls(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	c, ref := k.client, p.cell.GetRef()
	tried := 0
	try := func(feature, what string, call func() error) error {
		if slices.Contains(k.opts.Features, feature) {
			return nil
		}
		tried++
		return want(call(), what+" without the feature "+feature, codes.Unimplemented)
	}
	err = errors.Join(
		try("pause", "pause", func() error { _, err := c.Pause(ctx, &pluginv1.PauseRequest{Ref: ref}); return err }),
		try("checkpoint", "checkpoint", func() error {
			_, err := c.Checkpoint(ctx, &pluginv1.CheckpointRequest{Ref: ref, CheckpointId: newID()})
			return err
		}),
	)
	if err == nil && tried == 0 {
		return notDeclared("every feature is declared")
	}
	if err == nil {
		_, err = p.sh(ctx, "true")
	}
	return err
}

// emptyRequests sends what a careless host could: nothing at all. A panic that
// the SDK has caught is Internal, and a failure here.
func emptyRequests(ctx context.Context, k *kit) error {
	calls := k.calls(nil)
	calls["create"] = func(ctx context.Context) error { _, err := k.client.Create(ctx, &pluginv1.CreateRequest{}); return err }
	calls["destroy"] = func(ctx context.Context) error {
		_, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{})
		return err
	}
	for name, call := range calls {
		if err := want(call(ctx), "an empty "+name, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition); err != nil {
			return err
		}
	}
	// And what nothing but a proto allows.
	p, err := k.create(ctx, nil)
	if err != nil {
		return fmt.Errorf("after empty requests: %w", err)
	}
	_, err = k.client.Stop(ctx, &pluginv1.StopRequest{Ref: p.cell.GetRef(), Grace: durationpb.New(-time.Hour)})
	if err != nil && status.Code(err) != codes.InvalidArgument {
		return fmt.Errorf("stop with a negative grace: %w", err)
	}
	return nil
}

// deadlines: a call gives up when its time is over, and the call after it is
// answered.
func deadlines(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.start(ctx, "trap '' TERM INT HUP; "+beat("b")); err != nil {
		return err
	}
	if err := p.awaitBeat(ctx, "b"); err != nil {
		return err
	}
	over, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	for name, call := range k.calls(p.cell.GetRef()) {
		if err := want(call(over), name+" after its deadline", codes.DeadlineExceeded); err != nil {
			cancel()
			return err
		}
	}
	cancel()
	// A stream ends with its caller.
	watch, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
	defer cancel()
	stream, err := k.client.Stats(watch, &pluginv1.StatsRequest{Ref: p.cell.GetRef(), Interval: durationpb.New(100 * time.Millisecond)})
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return errors.New("stats ends while the cell lives")
	}
	if err := want(err, "stats with a deadline", codes.DeadlineExceeded); err != nil {
		return err
	}
	// Asked to wait for longer than there is time, a stop is given up or done;
	// the next one comes to an end.
	short, cancelStop := context.WithTimeout(ctx, 300*time.Millisecond)
	begun := time.Now()
	_, err = k.client.Stop(short, &pluginv1.StopRequest{Ref: p.cell.GetRef(), Grace: durationpb.New(time.Hour)})
	cancelStop()
	if err != nil {
		if err := want(err, "stop with a short deadline", codes.DeadlineExceeded); err != nil {
			return err
		}
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return fmt.Errorf("after a stop that ran out of time (%v ago): %w", time.Since(begun).Round(time.Millisecond), err)
	}
	return p.still(ctx, "b")
}
