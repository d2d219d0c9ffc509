package conformance

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func checkpointChecks() []isolationCheck {
	return []isolationCheck{
		{"checkpoint-stops", "checkpoint", checkpointStops},
		{"checkpoint-restore", "checkpoint", checkpointRestore},
	}
}

// checkpointed makes a cell in which something counts, and checkpoints it.
func (k *kit) checkpointed(ctx context.Context) (*place, *pluginv1.CellCheckpoint, error) {
	p, err := k.create(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	if _, err := p.start(ctx, beat("b")); err != nil {
		return nil, nil, err
	}
	if err := p.awaitBeat(ctx, "b"); err != nil {
		return nil, nil, err
	}
	req := &pluginv1.CheckpointRequest{Ref: p.cell.GetRef(), CheckpointId: newID()}
	r, err := k.client.Checkpoint(ctx, req)
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoint: %w", err)
	}
	again, err := k.client.Checkpoint(ctx, req)
	if err != nil {
		return nil, nil, fmt.Errorf("the same checkpoint again: %w", err)
	}
	if got := again.GetCheckpoint().GetCheckpointId(); got != req.GetCheckpointId() || r.GetCheckpoint().GetCheckpointId() != got {
		return nil, nil, fmt.Errorf("checkpoint %s is answered as %s", req.GetCheckpointId(), got)
	}
	if len(r.GetCheckpoint().GetKeys()) == 0 {
		return nil, nil, fmt.Errorf("the checkpoint does not say what it was made with")
	}
	return p, r.GetCheckpoint(), nil
}

func checkpointStops(ctx context.Context, k *kit) error {
	p, _, err := k.checkpointed(ctx)
	if err != nil {
		return err
	}
	if err := p.still(ctx, "b"); err != nil {
		return err
	}
	return p.expect(ctx, pluginv1.CellState_CELL_STATE_EXITED)
}

// checkpointRestore brings the cell back under the next incarnation, once.
func checkpointRestore(ctx context.Context, k *kit) error {
	p, point, err := k.checkpointed(ctx)
	if err != nil {
		return err
	}
	ref := p.cell.GetRef()
	next := proto.CloneOf(p.spec)
	next.Incarnation = 2
	if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: ref}); err != nil {
		return fmt.Errorf("destroy of the checkpointed cell: %w", err)
	}
	r, err := k.client.Restore(ctx, &pluginv1.RestoreRequest{Spec: next, Checkpoint: point})
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if got := r.GetCell().GetRef().GetIncarnation(); got != 2 {
		return fmt.Errorf("the restored cell has incarnation %d", got)
	}
	if err := p.awaitBeat(ctx, "b"); err != nil {
		return fmt.Errorf("what counted before the checkpoint does not count after it: %w", err)
	}
	third := proto.CloneOf(next)
	third.CellId, third.Incarnation = newID(), 3
	_, err = k.client.Restore(ctx, &pluginv1.RestoreRequest{Spec: third, Checkpoint: point})
	return want(err, "a second restore from the same checkpoint", codes.NotFound, codes.FailedPrecondition)
}
