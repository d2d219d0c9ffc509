package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// find reads a mission, live or ended.
func (e *Engine) find(ctx context.Context, id string) (*mission.Mission, error) {
	if a := e.actor(id); a != nil {
		if m := a.settled(); m.JournalUUID != "" {
			return &m, nil
		}
	}
	r, err := e.opts.Store.Mission(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("mission %q: %w", id, ErrNotFound)
	case err != nil:
		return nil, unavailable(err)
	}
	m, err := fromRow(r)
	if err == nil {
		err = e.catchUp(ctx, &m, r.Head)
	}
	if err != nil {
		return nil, err
	}
	return &m, nil
}

// Mission gives one mission; ErrNotFound when there is none.
func (e *Engine) Mission(ctx context.Context, id string) (mission.View, error) {
	m, err := e.find(ctx, id)
	if err != nil {
		return mission.View{}, err
	}
	return e.view(m), nil
}

// view adds what is not in the journal: why a live mission is left alone.
func (e *Engine) view(m *mission.Mission) mission.View {
	v := m.View()
	if a := e.actor(m.ID); a != nil {
		if why := a.quarantined.Load(); why != nil && !m.Terminal() {
			v.StateReason, v.WaitingFor = *why, "operator"
		}
	}
	return v
}

// Missions gives a page, newest first, and the cursor of the next one.
func (e *Engine) Missions(ctx context.Context, f store.MissionFilter) ([]mission.View, string, error) {
	rows, next, err := e.opts.Store.Missions(ctx, f)
	if err != nil {
		return nil, "", unavailable(err)
	}
	views := make([]mission.View, 0, len(rows))
	for _, r := range rows {
		m, err := fromRow(r)
		if err != nil {
			return nil, "", err
		}
		views = append(views, e.view(&m))
	}
	return views, next, nil
}

// Owned lists the live missions that the orchestrator knows of, oldest first.
func (e *Engine) Owned() []Owned {
	var list []Owned
	for _, a := range e.live() {
		if o, told := a.owned(); told {
			list = append(list, o)
		}
	}
	return list
}

// TrueState restates what a mission is now, ended ones too.
func (e *Engine) TrueState(ctx context.Context, id string) (mission.WireEvent, error) {
	m, err := e.find(ctx, id)
	if err != nil {
		return mission.WireEvent{}, err
	}
	return m.TrueState(e.now()), nil
}

// Live counts the missions that have not ended, by the wire's states.
func (e *Engine) Live() map[string]int {
	states := map[string]int{}
	for _, a := range e.live() {
		if m := a.state(); !m.Terminal() {
			states[string(m.State)]++
		}
	}
	return states
}
