package engine

import (
	"slices"
	"sync"
)

// rungRunning is the result of a rung that is being climbed.
const rungRunning = "running"

// climbing are the rungs of a stop as far as it has come: what an operator sees
// before there is a receipt. It is no evidence; the receipt is.
type climbing struct {
	mu     sync.Mutex
	stopID string
	rungs  []Rung
}

// begin starts anew, with the first rung.
func (c *climbing) begin(stopID string, first Rung) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopID, c.rungs = stopID, []Rung{first}
}

// note puts a rung at its place, or in place of itself as it was before.
func (c *climbing) note(r Rung) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.rungs {
		if c.rungs[i].Name == r.Name && c.rungs[i].Result == rungRunning {
			c.rungs[i] = r
			return
		}
	}
	c.rungs = append(c.rungs, r)
}

// Climbing are the rungs that a stop has come to, the one that is under way with
// the result "running"; none when the host knows of no such stop under way. It
// never waits.
func (e *Engine) Climbing(missionID, stopID string) []Rung {
	a := e.actor(missionID)
	if a == nil {
		return nil
	}
	a.climbing.mu.Lock()
	defer a.climbing.mu.Unlock()
	if a.climbing.stopID != stopID {
		return nil
	}
	return slices.Clone(a.climbing.rungs)
}
