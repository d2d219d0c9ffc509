package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func stopChecks() []isolationCheck {
	return []isolationCheck{
		{"stop-graceful", "", stopGraceful},
		{"stop-escalates-to-kill", "", stopEscalates},
		{"stop-idempotent", "", stopIdempotent},
		{"stop-unknown-id", "", stopUnknown},
		{"stop-kills-grandchildren", "", stopGrandchildren},
		{"stop-while-paused", "pause", stopWhilePaused},
		{"stop-proof-fields-present", "", stopProof},
		{"destroy-running-refused", "", destroyRunning},
		{"destroy-force", "", destroyForce},
		{"destroy-idempotent", "", destroyIdempotent},
		{"destroy-unknown", "", destroyUnknown},
		{"destroy-while-paused", "pause", destroyPaused},
		{"stop-spares-others", "", stopSparesOthers},
	}
}

func (p *place) stop(ctx context.Context, grace time.Duration) (*pluginv1.Proof, error) {
	r, err := p.kit.client.Stop(ctx, &pluginv1.StopRequest{Ref: p.cell.GetRef(), Grace: durationpb.New(grace)})
	if err != nil {
		return nil, fmt.Errorf("stop: %w", err)
	}
	return r.GetProof(), checkProof(r.GetProof())
}

func checkProof(p *pluginv1.Proof) error {
	switch {
	case p.GetMethod() == pluginv1.ProofMethod_PROOF_METHOD_UNSPECIFIED:
		return errors.New("the proof has no method")
	case p.GetDetail() == "" || p.GetAt() == nil:
		return fmt.Errorf("the proof lacks detail or time: %v", p)
	case p.GetMethod() == pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN:
		return fmt.Errorf("the end of a healthy cell is unproven: %s", p.GetDetail())
	}
	return nil
}

func stopGraceful(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.start(ctx, "trap 'echo asked > asked; exit 0' TERM; "+beat("b")); err != nil {
		return err
	}
	if err := p.awaitBeat(ctx, "b"); err != nil {
		return err
	}
	if _, err := p.stop(ctx, 10*time.Second); err != nil {
		return err
	}
	if p.beatAt("asked") != "asked" {
		return errors.New("with a grace the workload was not asked to end first")
	}
	return nil
}

func stopEscalates(ctx context.Context, k *kit) error {
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
	if _, err := p.stop(ctx, 50*time.Millisecond); err != nil {
		return err
	}
	return p.still(ctx, "b")
}

func stopIdempotent(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := p.stop(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

func stopUnknown(ctx context.Context, k *kit) error {
	_, err := k.client.Stop(ctx, &pluginv1.StopRequest{Ref: &pluginv1.CellRef{CellId: newID(), Incarnation: 1}})
	return want(err, "stop of an unknown cell", codes.NotFound)
}

// escapees starts processes that try to get away: into a session of their own,
// by a double fork, by ignoring signals, and out of the environment.
func (p *place) escapees(ctx context.Context) (names []string, err error) {
	script := "(" + beat("child") + ") & " +
		"setsid sh -c '" + beat("setsid") + "' & " +
		"(sh -c '" + beat("double") + "' &) ; " +
		"nohup sh -c '" + beat("nohup") + "' >/dev/null 2>&1 & " +
		"(trap \"\" TERM INT HUP; " + beat("deaf") + ") & " +
		"wait"
	if _, err := p.start(ctx, script); err != nil {
		return nil, err
	}
	names = []string{"child", "setsid", "double", "nohup", "deaf"}
	for _, n := range names {
		if err := p.awaitBeat(ctx, n); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func stopGrandchildren(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	names, err := p.escapees(ctx)
	if err != nil {
		return err
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	return p.still(ctx, names...)
}

func stopWhilePaused(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	names, err := p.escapees(ctx)
	if err != nil {
		return err
	}
	if _, err := k.client.Pause(ctx, &pluginv1.PauseRequest{Ref: p.cell.GetRef()}); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	before := map[string]string{}
	for _, n := range names {
		before[n] = p.beatAt(n)
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	for _, n := range names {
		if now := p.beatAt(n); now != before[n] {
			return fmt.Errorf("the process %s ran between pause and the end of stop", n)
		}
	}
	return p.still(ctx, names...)
}

func stopProof(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	begun := time.Now()
	proof, err := p.stop(ctx, 0)
	if err != nil {
		return err
	}
	if at := proof.GetAt().AsTime(); at.Before(begun.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute)) {
		return fmt.Errorf("the proof is from %v", at)
	}
	return nil
}

func destroyRunning(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	_, err = k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: p.cell.GetRef()})
	if err := want(err, "destroy of a running cell without force", codes.FailedPrecondition); err != nil {
		return err
	}
	if _, err := p.sh(ctx, "true"); err != nil {
		return err
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: p.cell.GetRef()}); err != nil {
		return fmt.Errorf("destroy of a stopped cell: %w", err)
	}
	return k.gone(ctx, p)
}

func destroyForce(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	names, err := p.escapees(ctx)
	if err != nil {
		return err
	}
	// From the id alone, as for a cell that the host knows from its own row only.
	ref := &pluginv1.CellRef{CellId: p.spec.GetCellId(), Incarnation: 1}
	if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: ref, Force: true}); err != nil {
		return fmt.Errorf("destroy with force: %w", err)
	}
	if err := p.still(ctx, names...); err != nil {
		return err
	}
	return k.gone(ctx, p)
}

func destroyIdempotent(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: p.cell.GetRef(), Force: true}); err != nil {
			return fmt.Errorf("destroy: %w", err)
		}
	}
	if err := k.gone(ctx, p); err != nil {
		return err
	}
	// The id is free again, for the next incarnation.
	next := p.spec
	next.Incarnation = 2
	r, err := k.client.Create(ctx, &pluginv1.CreateRequest{Spec: next})
	if err != nil {
		return fmt.Errorf("create of the next incarnation: %w", err)
	}
	_, err = k.client.Inspect(ctx, &pluginv1.InspectRequest{Ref: p.cell.GetRef()})
	if err := want(err, "inspect of the incarnation before", codes.FailedPrecondition, codes.NotFound); err != nil {
		return err
	}
	_, err = k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: p.cell.GetRef(), Force: true})
	if err == nil {
		_, err = k.client.Inspect(ctx, &pluginv1.InspectRequest{Ref: r.GetCell().GetRef()})
		if err != nil {
			return fmt.Errorf("destroy of the incarnation before took the next one along: %w", err)
		}
	}
	return nil
}

func destroyUnknown(ctx context.Context, k *kit) error {
	for _, force := range []bool{false, true} {
		ref := &pluginv1.CellRef{CellId: newID(), Incarnation: 1}
		if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: ref, Force: force}); err != nil {
			return fmt.Errorf("destroy of a cell that never was (force %v): %w", force, err)
		}
	}
	return nil
}

func destroyPaused(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	names, err := p.escapees(ctx)
	if err != nil {
		return err
	}
	if _, err := k.client.Pause(ctx, &pluginv1.PauseRequest{Ref: p.cell.GetRef()}); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	_, err = k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: p.cell.GetRef()})
	if err := want(err, "destroy of a paused cell without force", codes.FailedPrecondition); err != nil {
		return err
	}
	if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: p.cell.GetRef(), Force: true}); err != nil {
		return fmt.Errorf("destroy of a paused cell with force: %w", err)
	}
	if err := p.still(ctx, names...); err != nil {
		return err
	}
	return k.gone(ctx, p)
}

func stopSparesOthers(ctx context.Context, k *kit) error {
	other, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := other.start(ctx, beat("b")); err != nil {
		return err
	}
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: p.cell.GetRef()}); err != nil {
		return fmt.Errorf("destroy: %w", err)
	}
	return other.awaitBeat(ctx, "b")
}

// gone checks that nothing knows a cell any more.
func (k *kit) gone(ctx context.Context, p *place) error {
	ref := p.cell.GetRef()
	_, err := k.client.Inspect(ctx, &pluginv1.InspectRequest{Ref: ref})
	if err := want(err, "inspect of a destroyed cell", codes.NotFound); err != nil {
		return err
	}
	_, err = k.client.Recover(ctx, &pluginv1.RecoverRequest{Ref: ref})
	if err := want(err, "recover of a destroyed cell", codes.NotFound); err != nil {
		return err
	}
	_, err = k.client.Stop(ctx, &pluginv1.StopRequest{Ref: ref})
	if err := want(err, "stop of a destroyed cell", codes.NotFound); err != nil {
		return err
	}
	cells, err := k.list(ctx)
	if err == nil && cells[ref.GetCellId()] != nil {
		err = errors.New("list shows a destroyed cell")
	}
	return err
}
