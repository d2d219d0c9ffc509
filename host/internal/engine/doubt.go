package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// doubt quarantines a mission whose stored state must not be believed: its row
// is gone, cannot be read, or says that it is over while its journal does not.
// It is then named in status and can be stopped like any other quarantined one,
// which ends what is left of it with a proof. c is its cell, nil when the store
// knows of none; the reaper freezes it.
func (e *Engine) doubt(ctx context.Context, id string, c *cells.Cell, cause string) {
	r, err := e.opts.Store.Mission(ctx, id)
	lost := errors.Is(err, store.ErrNotFound)
	if err != nil && !lost {
		e.log.Error("a mission whose stored state is not trusted cannot be read", "mission", id, "error", err)
		return
	}
	m := e.rebuilt(ctx, id, r, c)
	g := e.fleet.Load().byName[m.Agent]
	switch {
	case m.Harness:
		g = e.noAgent
	case g == nil:
		g = newAgent(goneAgent(m))
	}
	a := e.newActor(id, g)
	a.m, a.head, a.behind, a.away, a.rowless = m, r.Head, rowEvery, true, lost
	why := "its stored state is not to be trusted: " + cause + "; stop the host and put missions.db back from a copy, or `airlock control stop " + id + "` ends it"
	a.quarantined.Store(&why)
	a.publish()
	if c != nil {
		a.setCell(c)
	}
	e.mu.Lock()
	e.missions[id] = a
	e.mu.Unlock()
	a.setLatch()
	close(a.done)
	a.log().Error("mission is quarantined: its stored state is not to be trusted", "why", cause)
	if t := e.buried(id); t != nil { // the stop is carried on
		e.goRun(func(ctx context.Context) { _ = e.endQuarantined(ctx, a, t.Stop) })
	}
}

// rebuilt is a mission out of its journal, as far as that can be read, and where
// that says nothing out of what else there is. It counts as not over.
func (e *Engine) rebuilt(ctx context.Context, id string, r store.MissionRow, c *cells.Cell) mission.Mission {
	m := mission.Mission{ID: id}
	for m.Sequence < r.Head.Sequence {
		events, err := e.opts.Store.Events(ctx, id, m.Sequence, 100)
		if err != nil {
			e.log.Error("the journal of a mission whose stored state is not trusted cannot be read further", "mission", id, "after", m.Sequence, "error", err)
		}
		before := m.Sequence
		for i := range events {
			next := m
			if err := next.Replay(&events[i]); err != nil {
				e.log.Error("an event of a mission whose stored state is not trusted is passed over", "mission", id, "error", err)
				next = m
			}
			if m = next; events[i].Sequence > before {
				m.Sequence = events[i].Sequence
			}
		}
		if m.Sequence == before {
			break
		}
	}
	if m.JournalUUID == "" {
		m.V, m.JournalUUID, m.Origin, m.Agent, m.CreatedAt = 1, r.Head.JournalUUID, mission.Origin(r.Origin), r.Agent, r.CreatedAt
		m.State, m.Phase = mission.StateRunning, mission.PhaseLive
	}
	if m.Terminal() { // which of the two is right is for the operator to say
		m.State, m.Phase = mission.StateRunning, mission.PhaseLive
	}
	if m.JournalUUID == "" { // the row is gone too: nobody is told of it but the operator
		m.JournalUUID, m.Origin = "lost", mission.OriginLocal
	}
	if c != nil {
		m.CellID, m.Incarnation, m.Generation = c.ID, c.Incarnation, max(m.Generation, c.Generation)
		if m.Agent == "" {
			m.Agent, m.Isolation = c.Spec.Agent, c.Spec.Isolation
		}
	}
	return m
}

// lastKinds is how many of the last events of a live mission are looked at for
// its end: what follows an end are the answers of issuers.
const lastKinds = 16

// saysEnded is an error when the journal of a mission that counts as live says
// that it has ended.
func (e *Engine) saysEnded(ctx context.Context, id string, head journal.Head) error {
	events, err := e.opts.Store.Events(ctx, id, head.Sequence-min(head.Sequence, lastKinds), lastKinds)
	if err != nil {
		return nil // whoever verifies it says so
	}
	for i := range events {
		if events[i].Kind == journal.Ended {
			return fmt.Errorf("it says that the mission has ended (event %d), and the mission's stored state does not", events[i].Sequence)
		}
	}
	return nil
}
