package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

const (
	// sweepBatch is how many missions are removed with one walk of the workflow.
	sweepBatch = 100
	// settled is how long a mission is over before its size may push it out: the
	// orchestrator reads ends back, and people look at what has just failed.
	settled = time.Hour
)

// work is what is left to be removed of a mission beside the store.
type work struct {
	Sessions []string `json:"sessions"`
}

// Pass removes what an earlier pass has left, archives and removes what is due,
// and gives the space back. It says how many missions it has archived. A mission
// that cannot be archived stays, and is in the error; the others go on.
func (k *Keeper) Pass(ctx context.Context) (archived int, err error) {
	if err := k.sweep(ctx); err != nil {
		return 0, err
	}
	now := k.o.Now()
	archived, problems := k.walk(ctx, now.Add(-k.o.Rules.After), nil)
	if k.o.Rules.MaxSize > 0 {
		n, more := k.walk(ctx, now.Add(-min(settled, k.o.Rules.After)), func() (bool, error) {
			used, _, err := k.o.Store.Space(ctx)
			return used > k.o.Rules.MaxSize, err
		})
		archived, problems = archived+n, append(problems, more...)
	}
	if ctx.Err() == nil {
		problems = append(problems, k.o.Store.Vacuum(ctx))
	}
	return archived, errors.Join(problems...)
}

// walk archives what ended before a moment, the oldest first, while wanted says
// so (nil: all of it).
func (k *Keeper) walk(ctx context.Context, before time.Time, wanted func() (bool, error)) (archived int, problems []error) {
	var at store.OverCursor
	for ctx.Err() == nil {
		if wanted != nil {
			if more, err := wanted(); err != nil || !more {
				return archived, append(problems, err)
			}
		}
		rows, next, err := k.o.Store.Over(ctx, before, at, sweepBatch)
		if err != nil || len(rows) == 0 {
			return archived, append(problems, err)
		}
		at = next
		for i := range rows {
			if ctx.Err() != nil {
				break
			}
			gone, err := k.archive(ctx, &rows[i])
			switch {
			case errors.Is(err, store.ErrConflict): // it is not over after all; the next pass looks again
			case err != nil:
				problems = append(problems, fmt.Errorf("mission %q: %w", rows[i].MissionID, err))
			case gone:
				archived++
			}
		}
		if err := k.sweep(ctx); err != nil {
			return archived, append(problems, err)
		}
	}
	return archived, problems
}

// archive writes a mission's bundle and takes it out of the list. It says
// whether it did; a mission that somebody still needs stays.
func (k *Keeper) archive(ctx context.Context, row *store.MissionRow) (bool, error) {
	if !slices.Contains(k.o.Rules.States, row.State) || k.o.Engine.Holds(row.MissionID) {
		return false, nil
	}
	if owes, err := k.o.Store.OutboxOf(ctx, row.MissionID); err != nil || len(owes) > 0 {
		return false, err
	}
	var m mission.Mission
	if err := json.Unmarshal(row.Data, &m); err != nil {
		return false, fmt.Errorf("its stored state cannot be read: %w", err)
	}
	b, err := k.bundle(ctx, row)
	if err != nil {
		return false, err
	}
	left, err := json.Marshal(work{Sessions: b.sessions})
	if err != nil {
		return false, err
	}
	if k.o.Engine.Holds(row.MissionID) { // since it was looked at
		return false, nil
	}
	err = k.o.Store.Retire(ctx, store.Retirement{TaskID: row.MissionID, Head: b.head, PayloadDigest: m.PayloadDigest, Bundle: b.file, At: k.o.Now(), Work: left})
	if err != nil {
		return false, err
	}
	k.o.Log.Info("mission was archived and is removed", "mission", row.MissionID, "state", row.State, "bundle", b.file)
	return true, k.o.Hook.At(PointRetired)
}

// sweep removes what is left of missions that are gone.
func (k *Keeper) sweep(ctx context.Context) error {
	for ctx.Err() == nil {
		gone, err := k.o.Store.Unswept(ctx, sweepBatch)
		if err != nil || len(gone) == 0 {
			return err
		}
		for _, r := range gone {
			var w work
			if err := json.Unmarshal(r.Work, &w); err != nil {
				return fmt.Errorf("what is left of mission %q: %w", r.TaskID, err)
			}
			if err := k.o.Engine.Discard(r.TaskID, w.Sessions); err != nil {
				return fmt.Errorf("remove output and files of mission %q: %w", r.TaskID, err)
			}
		}
		if err := k.o.Hook.At(PointDiscarded); err != nil {
			return err
		}
		if err := k.o.Store.Sweep(ctx, gone); err != nil {
			return err
		}
		if err := k.o.Hook.At(PointSwept); err != nil {
			return err
		}
	}
	return ctx.Err()
}
