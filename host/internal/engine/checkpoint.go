package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// featureCheckpoint is the feature of drivers that write a cell to disk.
const featureCheckpoint = "checkpoint"

// saveTime bounds how long a planned shutdown waits for one cell to be written
// to disk; the host's unit is given more (TimeoutStopSec).
const saveTime = 60 * time.Second

// save writes a mission's cell to disk, where its agent asks for it and the
// driver can, and gives the row to store with the mission's suspension. nil: the
// cell lives on, as it does without checkpoints. The row that says what is being
// done is durable before the driver is asked, so that a crash in the middle is
// carried on by load.
func (e *Engine) save(ctx context.Context, a *actor, id string) *cells.Cell {
	a.ops.Lock()
	defer a.ops.Unlock()
	m, c := a.state(), a.cell()
	sp, err := a.spec()
	if err != nil || !sp.Save || c == nil || c.State != cells.StateBound || m.Phase != mission.PhaseLive || m.Terminal() || a.latch.Load() {
		return nil
	}
	if !slices.Contains(e.opts.Plugins.Features(c.Instance), featureCheckpoint) {
		a.log().Info("checkpoint = \"on-suspend\": the driver cannot write cells to disk; the cell stays alive", "instance", c.Instance)
		return nil
	}
	if slices.ContainsFunc(m.Task.Grants, func(g governance.Grant) bool { return !g.Over() }) {
		// A secret that was granted would lie on the disk (rulings 45).
		a.log().Info("checkpoint = \"on-suspend\": the mission holds grants; its cell stays alive")
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	next, err := cells.ToSave(c, id)
	if err == nil {
		err = e.putCellRow(ctx, next)
	}
	if err != nil {
		a.log().Error("cell is not written to disk, it stays alive", "error", err)
		return nil
	}
	a.setCell(next)
	saved := *next
	if err := e.opts.Cells.Save(ctx, &saved); err != nil {
		// What became of it is found out at the start, like after a crash.
		a.log().Error("cell could not be written to disk", "cell", c.ID, "error", err)
		return nil
	}
	a.setCell(&saved)
	return &saved
}

// load brings a cell back that the host has written to disk, or was writing
// when it was killed. errGone: it is lost.
func (e *Engine) load(ctx context.Context, a *actor, c *cells.Cell) (*cells.Cell, error) {
	keep := func(next *cells.Cell) error {
		if err := e.putCellRow(ctx, next); err != nil {
			return err
		}
		a.setCell(next)
		c = next
		return nil
	}
	if c.State == cells.StateSaving {
		next := *c
		if err := asked(a, func() error {
			ctx, cancel := context.WithTimeout(ctx, saveTime)
			defer cancel()
			return e.opts.Cells.Save(ctx, &next)
		}); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			a.log().Warn("the checkpoint that was being written could not be finished; the cell is looked for as it was", "cell", c.ID, "error", err)
			return c, keep(cells.Unsaved(c))
		}
		if err := keep(&next); err != nil {
			return nil, err
		}
	}
	if c.State == cells.StateSaved {
		if err := keep(cells.ToLoad(c)); err != nil {
			return nil, err
		}
	}
	if c.State == cells.StateLoading {
		next := *c
		if err := asked(a, func() error { return e.opts.Cells.Load(ctx, &next) }); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			return nil, fmt.Errorf("%w the host's absence: its checkpoint cannot be restored: %w", errGone, err)
		}
		if err := keep(&next); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// loadTries is how often a driver is asked that is not there or cannot now. Each
// try has minutes.
const loadTries = 4

// asked tries until the driver has said yes or no.
func asked(a *actor, ask func() error) error {
	for try := 1; ; try++ {
		err := ask()
		if err == nil || try == loadTries || !cells.Retryable(err) && status.Code(err) != codes.DeadlineExceeded {
			return err
		}
		a.log().Warn("driver cannot bring the mission's cell back yet", "error", err)
		if err := wait(a.launchCtx(), 200*time.Millisecond); err != nil {
			return err
		}
	}
}
