package store

import (
	"context"
	"errors"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Workflow is the workflow's rows by themselves, as a workflow.Store: what work
// reports goes nowhere. The host uses the engine's, which puts it into the
// mission's journal.
type Workflow struct{ S *Store }

var _ workflow.Store = Workflow{}

// Update implements workflow.Store.
func (w Workflow) Update(ctx context.Context, _ workflow.Owner, work func(workflow.Tx) error) error {
	return w.S.Commit(ctx, Batch{Work: func(tx workflow.Tx, _ *Batch) error { return work(tx) }})
}

// Progress implements workflow.Store.
func (w Workflow) Progress(ctx context.Context, owner workflow.Owner, work func(workflow.Tx) (*workflow.Progress, error)) error {
	return w.Update(ctx, owner, func(tx workflow.Tx) error {
		_, err := work(tx)
		return err
	})
}

// View implements workflow.Store.
func (w Workflow) View(ctx context.Context, f func(workflow.Reader) error) error {
	return w.S.ViewWork(ctx, f)
}

// Uncertain implements workflow.Store.
func (Workflow) Uncertain(err error) bool { return errors.Is(err, ErrUncertain) }
