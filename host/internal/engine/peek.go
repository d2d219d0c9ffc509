package engine

import "github.com/airlock-host/airlock/host/internal/mission"

// Peek shows a live mission as it was last published. It never waits, not for a
// commit that hangs either; false when no live mission has the id.
func (e *Engine) Peek(id string) (mission.View, bool) {
	a := e.actor(id)
	if a == nil {
		return mission.View{}, false
	}
	m := a.view.Load()
	if m == nil {
		return mission.View{}, false
	}
	return m.View(), true
}
