package mission

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// GoalProgress is what a checkpoint of the mission's goal says of the mission:
// progress for all to see (nil: nothing to tell), and the goal's steps as its
// plan (nil: it stays; rulings 7, 28). It voids no verdict.
func (m *Mission) GoalProgress(p *Progress, plan json.RawMessage) ([]Fact, error) {
	if err := m.alive("progress"); err != nil {
		return nil, err
	}
	if m.Latched() {
		return nil, fmt.Errorf("progress: the mission is being stopped: %w", ErrIllegal)
	}
	var facts []Fact
	if p != nil {
		facts = append(facts, Progressed{V: version, Progress: *p, Goal: true})
	}
	if plan != nil && !bytes.Equal(plan, m.Task.Plan) {
		facts = append(facts, governance.IntentChanged{V: version, Epoch: m.Epoch, Actor: "agent", Plan: plan})
	}
	return facts, nil
}
