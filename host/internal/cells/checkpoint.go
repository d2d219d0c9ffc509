package cells

import (
	"context"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// ToSave is a cell that is about to be written to disk under an id. The caller
// stores its row before it calls Save. c stays as it was.
func ToSave(c *Cell, checkpointID string) (*Cell, error) {
	next := *c
	next.State = StateSaving
	var err error
	next.Checkpoint, err = proto.Marshal(&pluginv1.CellCheckpoint{CheckpointId: checkpointID})
	return &next, err
}

// Save writes a cell to disk; it does not run any more then. It is idempotent.
// After an error the cell is as it was, as far as the driver could manage.
func (m *Manager) Save(ctx context.Context, c *Cell) error {
	point, err := c.checkpoint()
	if err != nil {
		return err
	}
	return m.insist(ctx, "write the cell to disk with "+c.Instance, c, func(driver pluginv1.IsolationClient) error {
		resp, err := driver.Checkpoint(ctx, &pluginv1.CheckpointRequest{Ref: c.CellRef(), CheckpointId: point.GetCheckpointId()})
		if err != nil {
			return err
		}
		c.State = StateSaved
		c.Checkpoint, err = proto.Marshal(resp.GetCheckpoint())
		return err
	})
}

// Unsaved is a cell that goes on as if no checkpoint had been asked for.
func Unsaved(c *Cell) *Cell {
	next := *c
	next.State, next.Checkpoint = StateBound, nil
	return &next
}

// ToLoad is a saved cell that is about to be restored, as the next incarnation:
// with another secret, since the one it was saved with lies in its memory. The
// caller stores its row before it calls Load. c stays as it was.
func ToLoad(c *Cell) *Cell {
	next := *c
	next.Incarnation++
	next.State, next.Secret, next.Ref, next.Link = StateLoading, newSecret(), nil, ""
	return &next
}

// Load makes the cell from its checkpoint, which is used up by it. It is
// idempotent.
func (m *Manager) Load(ctx context.Context, c *Cell) error {
	ctx, cancel := context.WithTimeout(ctx, m.opts.CreateTimeout)
	defer cancel()
	point, err := c.checkpoint()
	if err != nil {
		return err
	}
	volumes, err := m.volume(c)
	if err != nil {
		return err
	}
	before := &pluginv1.CellRef{CellId: c.ID, Incarnation: c.Incarnation - 1}
	return m.insist(ctx, "restore a cell with "+c.Instance, c, func(driver pluginv1.IsolationClient) error {
		// Without force: what it was has ended, and its checkpoint is to stay.
		if _, err := driver.Destroy(ctx, &pluginv1.DestroyRequest{Ref: before}); err != nil && status.Code(err) != codes.NotFound && status.Code(err) != codes.FailedPrecondition {
			return err
		}
		if err := os.MkdirAll(c.LinkDir, 0o700); err != nil {
			return err
		}
		resp, err := driver.Restore(ctx, &pluginv1.RestoreRequest{Spec: m.cellSpec(c, volumes), Checkpoint: point})
		if err != nil {
			return err
		}
		c.State, c.Checkpoint = StateBound, nil
		return c.took(resp.GetCell())
	})
}

func (c *Cell) checkpoint() (*pluginv1.CellCheckpoint, error) {
	point := &pluginv1.CellCheckpoint{}
	return point, proto.Unmarshal(c.Checkpoint, point)
}
