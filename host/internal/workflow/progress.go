package workflow

import "encoding/json"

// Progress is what a mission's record says after a change of its goal: steps and
// the share that is done come from here and from nothing else (rulings 7, 28).
type Progress struct {
	// Reported is false when only the plan has changed: there is nothing to tell.
	Reported bool
	Phase    string // the step that is worked on
	Steps    int64  // that are completed
	Summary  string
	Pct      *float64        // 0 to 100; nil: the goal has no steps
	Plan     json.RawMessage // array of steps; nil: none
}

// progressOf says what a change of a goal means to its mission: nothing if the
// goal is not the one that the mission's progress is read from. That is the
// mission's own goal, or, while that one has no steps, the goal that the agent
// has planned and touched last.
func progressOf(r Reader, owner [32]byte, g *goal) (*Progress, error) {
	run, err := loadRun(r, owner)
	if err != nil || run == nil {
		return nil, err
	}
	if g.Summary.GoalID != run.GoalID {
		if len(g.Plan.Steps) == 0 {
			return nil, nil
		}
		own, err := load[goal](r, TableGoals, owner, run.GoalID)
		if err != nil || own != nil && len(own.Plan.Steps) > 0 {
			return nil, err
		}
	}
	p := &Progress{Phase: "execution", Summary: g.Plan.ProgressSummary, Reported: g.Plan.CheckpointAt > 0 || g.terminal()}
	if n := len(g.Plan.Steps); n > 0 {
		done := n - g.unfinished()
		pct := float64(done) * 100 / float64(n)
		p.Steps, p.Pct = int64(done), &pct
		for _, s := range g.Plan.Steps {
			if s.Status == StepInProgress {
				p.Phase = s.ID
			}
		}
		if p.Plan, err = json.Marshal(g.Plan.Steps); err != nil {
			return nil, err
		}
	}
	return p, nil
}
