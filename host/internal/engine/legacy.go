package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// Legacy is a mission that an older sandbox had in flight.
type Legacy struct {
	ID, Objective, Completion string
	CreatedAt                 time.Time
}

// TakeOver gives an older sandbox's mission its end: its process belongs to a
// program that is gone and cannot be adopted, and the orchestrator would else
// count it as running for ever. A mission that is known already is left alone.
// Call it before Start.
func (e *Engine) TakeOver(ctx context.Context, l Legacy) error {
	if _, err := e.opts.Store.Mission(ctx, l.ID); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	a := e.newActor(l.ID, nil)
	o := mission.Opened{JournalUUID: newUUID(), Origin: mission.OriginOrchestrator, Agent: "legacy",
		Objective: l.Objective, Completion: l.Completion, PayloadDigest: "legacy"}
	a.m = mission.Mission{ID: l.ID}
	a.head = journal.Genesis(l.ID, o.JournalUUID)
	err := a.commit(func(*mission.Mission) ([]mission.Fact, error) {
		facts := mission.Open(o, l.CreatedAt)
		return append(facts, mission.Ended{V: 1, State: mission.StateFailed, Reason: "cell_lost",
			Error: "taken over from an older sandbox's missions.json; its process cannot be adopted"}), nil
	}, nil)
	if err != nil {
		return fmt.Errorf("mission %q of the older sandbox: %w", l.ID, err)
	}
	return nil
}
