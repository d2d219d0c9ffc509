package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// rowEvery is how many events of calls a mission's stored row may be behind its
// journal. The row is large and changes with every call; the events are small
// and are read again at a start (the journal is the truth).
const rowEvery = 32

// rowDue says whether the row is written with these facts: with every one that
// searches and lists look at, and now and then with those of calls.
func (a *actor) rowDue(facts []mission.Fact) bool {
	if len(facts) == 0 {
		return false
	}
	if a.behind+len(facts) > rowEvery {
		return true
	}
	for _, f := range facts {
		switch f := f.(type) {
		case governance.Proposed, governance.Settled:
		case governance.Decided:
			if f.Decision.Status.Waits() { // its arguments are in the row only
				return true
			}
		case governance.Executed:
			if f.Boundary == mission.Launch {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// row is a mission as it is after the event of the given sequence.
func row(m *mission.Mission, sequence uint64) (*store.MissionRow, error) {
	at := *m
	at.Sequence = sequence
	data, err := json.Marshal(&at)
	if err != nil {
		return nil, err
	}
	return &store.MissionRow{MissionID: m.ID, Origin: string(m.Origin), Agent: m.Agent, State: string(m.State),
		Terminal: m.Terminal() && !m.Owes(), CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt, Data: data}, nil
}

// fromRow reads a row. Of a mission that is not over it may be behind the
// journal, see catchUp.
func fromRow(r store.MissionRow) (mission.Mission, error) {
	var m mission.Mission
	if err := json.Unmarshal(r.Data, &m); err != nil {
		return m, fmt.Errorf("row of mission %q: %w", r.MissionID, err)
	}
	return m, nil
}

// catchUp takes a mission that was read from its row to the end of its journal.
func (e *Engine) catchUp(ctx context.Context, m *mission.Mission, head journal.Head) error {
	if m.Sequence == 0 { // written by a release whose rows are never behind
		return nil
	}
	for m.Sequence < head.Sequence {
		events, err := e.opts.Store.Events(ctx, m.ID, m.Sequence, 100)
		if err != nil {
			return unavailable(err)
		}
		if len(events) == 0 {
			return fmt.Errorf("row of mission %q: it is of event %d, the journal ends before %d", m.ID, m.Sequence, head.Sequence)
		}
		for i := range events {
			if err := m.Replay(&events[i]); err != nil {
				return err
			}
			m.Sequence = events[i].Sequence
		}
	}
	return nil
}
