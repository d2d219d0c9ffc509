package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/store"
)

// takeWarm gives a ready cell that was made from an equal spec, or nil.
func (g *agent) takeWarm(m *cells.Manager, want cells.Spec) *cells.Cell {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.warm {
		if m.Fits(c, want) {
			g.warm = append(g.warm[:i:i], g.warm[i+1:]...)
			return c
		}
	}
	return nil
}

// warmRetry is how soon a warm cell that could not be made is tried again.
const warmRetry = time.Second

// refillWarm says that a cell may be missing. It is said after a start, not when
// the cell is claimed, so that the next cell's start does not take processor
// time from this one's.
func (e *Engine) refillWarm() {
	select {
	case e.warmTaken <- struct{}{}:
	default:
	}
}

// keepWarm makes cells ahead of their missions, as many as each agent asks
// for, and takes up the cells whose end failed before.
func (e *Engine) keepWarm(ctx context.Context) {
	for {
		for _, g := range e.fleet.Load().agents {
			e.fillWarm(ctx, g)
		}
		select {
		case <-ctx.Done():
			return
		case <-e.warmTaken:
		case <-time.After(warmRetry):
		}
	}
}

// endWarm ends the cells that wait for a mission; a host that goes away on
// purpose leaves only cells that hold work.
func (e *Engine) endWarm(ctx context.Context) {
	var wg sync.WaitGroup
	f := e.fleet.Load()
	for _, g := range slices.Concat(f.agents, f.gone) {
		g.mu.Lock()
		waiting := g.warm
		g.warm = nil
		g.mu.Unlock()
		for _, c := range waiting {
			wg.Go(func() { e.endCell(ctx, c) })
		}
	}
	wg.Wait()
}

func (e *Engine) fillWarm(ctx context.Context, g *agent) {
	f, block := e.fleet.Load(), g.block()
	sp := specOf(*block).Cell
	if block.Warm < 1 {
		return
	}
	if _, err := e.health(g); err != nil {
		return
	}
	g.mu.Lock()
	missing := block.Warm - len(g.warm)
	g.mu.Unlock()
	for range missing {
		c, err := e.makeWarm(ctx, sp, block.Runtime)
		if err != nil {
			e.log.Warn("warm cell could not be made", "agent", block.Name, "error", err)
			return
		}
		if e.fleet.Load() != f { // a reload came in between: it may be of another kind
			e.endCell(context.WithoutCancel(ctx), c)
			return
		}
		g.mu.Lock()
		g.warm = append(g.warm, c)
		g.mu.Unlock()
	}
}

func (e *Engine) makeWarm(ctx context.Context, sp cells.Spec, runtime string) (*cells.Cell, error) {
	c, err := e.opts.Cells.Prepare(sp)
	if err != nil {
		return nil, err
	}
	c.FileDirs = e.needed(runtime, needCellDir)
	if err := e.putCellRow(ctx, c); err != nil {
		e.opts.Cells.Release(c)
		return nil, err
	}
	if err := e.opts.Cells.Create(ctx, c); err != nil {
		e.endCell(context.WithoutCancel(ctx), c)
		return nil, err
	}
	c.State = cells.StateWarm
	if err := e.putCellRow(ctx, c); err != nil {
		e.endCell(context.WithoutCancel(ctx), c)
		return nil, err
	}
	return c, nil
}

func (e *Engine) putCellRow(ctx context.Context, c *cells.Cell) error {
	var b store.Batch
	if err := putCell(&b, c); err != nil {
		return err
	}
	return e.opts.Store.Commit(ctx, b)
}

// endCell destroys a cell and drops its row. When the driver cannot do it now
// the row says so, and the next start of the host tries again. What an ended
// mission changed in it is stored before.
func (e *Engine) endCell(ctx context.Context, c *cells.Cell) {
	unsettled := e.settleWork(ctx, c)
	if unsettled != nil && ctx.Err() != nil {
		return // the host goes; the row says where it stood
	}
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	c.Uncollected = unsettled != nil
	err := unsettled
	if err == nil {
		err = e.opts.Cells.Destroy(endCtx, c)
	}
	if err == nil {
		err = e.opts.Store.Commit(endCtx, store.Batch{DropCells: []string{c.ID}})
	}
	if err != nil {
		e.log.Error("cell could not be destroyed yet; it is tried again", "cell", c.ID, "instance", c.Instance, "error", err)
		c.State = cells.StateEnding
		if err := e.putCellRow(endCtx, c); err != nil {
			e.log.Error("cell row could not be written", "cell", c.ID, "error", err)
		}
	}
}
