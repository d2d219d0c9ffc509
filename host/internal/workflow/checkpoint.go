package workflow

import (
	"context"
	"slices"
)

// CheckpointGoal records progress: steps that are done, the one that is worked
// on, and a summary. It never ends a goal.
func (k *Keeper) CheckpointGoal(ctx context.Context, by Caller, in CheckpointGoal) (GoalResult, error) {
	return k.onGoal(ctx, by, func(tx Tx) (GoalResult, *goal, error) { return k.checkpoint(tx, by.Owner.Digest(), in) })
}

func (k *Keeper) checkpoint(tx Tx, owner [32]byte, in CheckpointGoal) (out GoalResult, _ *goal, err error) {
	if err := in.normalize(); err != nil {
		return out, nil, err
	}
	g, err := loadGoal(tx, owner, in.GoalID)
	if err != nil {
		return out, nil, err
	}
	request := requestHash(opCheckpoint, in)
	seen, err := replayed(tx, owner, opCheckpoint, in.IdempotencyKey, request, "goal_idempotency_conflict")
	if err != nil {
		return out, nil, conflictOn(g, err)
	}
	if seen != nil {
		return replayedGoal(g, seen), nil, nil
	}
	if err := g.fresh(in.ExpectedRevision); err != nil {
		return out, nil, err
	}
	next := g.copied()
	if err := next.advance(&in, next.at(k.now())); err != nil {
		return out, nil, withRevision(g, err)
	}
	tx.Update(rowOf(owner, next))
	k.used(tx, owner, opCheckpoint, in.IdempotencyKey, request, in.GoalID, next.Summary.Revision)
	return GoalResult{Goal: next.view(), ResultRevision: next.Summary.Revision, StateChanged: true}, next, nil
}

// conflictOn adds the goal's revision to an idempotency conflict.
func conflictOn(g *goal, err error) error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // it was made one call below
		return withRevision(g, e)
	}
	return err
}

// normalize trims and checks the form: id, revision, shape, key.
func (in *CheckpointGoal) normalize() error {
	if err := goalID(in.GoalID); err != nil {
		return err
	}
	if in.ExpectedRevision < 1 {
		return refuse("invalid_goal_revision", FixInput, "expected_revision must be 1 or more")
	}
	bad := func(text string) error { return refuse("invalid_goal_checkpoint", FixInput, text) }
	if len(in.CompletedStepIDs) > maxSteps {
		return bad("completed_step_ids may have at most 32 ids")
	}
	for i, id := range in.CompletedStepIDs {
		switch {
		case !isStepID(id):
			return bad("an id of completed_step_ids is not valid")
		case slices.Contains(in.CompletedStepIDs[:i], id):
			return bad("an id of completed_step_ids is there twice")
		}
	}
	if c := in.CurrentStepID; c != nil {
		if !isStepID(*c) {
			return bad("current_step_id is not valid")
		}
		if slices.Contains(in.CompletedStepIDs, *c) {
			return bad("current_step_id is among completed_step_ids")
		}
	}
	in.Summary = trimmed(in.Summary)
	if in.Summary == "" || len(in.Summary) > maxSummary {
		return bad("summary must have 1 to 2048 bytes")
	}
	if len(in.CompletedStepIDs) == 0 {
		in.CompletedStepIDs = nil // absent and empty are one request
	}
	var err error
	in.IdempotencyKey, err = key(in.IdempotencyKey, "invalid_goal_idempotency_key")
	return err
}

// advance applies a checkpoint; nothing is changed where it is refused.
func (g *goal) advance(in *CheckpointGoal, now int64) *Error {
	bad := func(text string) *Error { return refuse("invalid_goal_checkpoint", FixInput, text) }
	for _, id := range in.CompletedStepIDs {
		if g.step(id) == nil {
			return bad("completed_step_ids names a step that the goal does not have")
		}
	}
	if c := in.CurrentStepID; c != nil {
		s := g.step(*c)
		if s == nil {
			return bad("current_step_id names a step that the goal does not have")
		}
		if s.Status == StepCompleted {
			return bad("current_step_id names a step that is completed")
		}
		for i := range g.Plan.Steps {
			other := &g.Plan.Steps[i]
			if other.Status == StepInProgress && other.ID != *c && !slices.Contains(in.CompletedStepIDs, other.ID) {
				return bad("another step is in progress; complete it in the same checkpoint")
			}
		}
	}
	for _, id := range in.CompletedStepIDs {
		if s := g.step(id); s.Status != StepCompleted { // one that is done keeps its time
			s.Status, s.CompletedAt = StepCompleted, now
		}
	}
	if c := in.CurrentStepID; c != nil {
		if s := g.step(*c); s.Status == StepPending {
			s.Status, s.StartedAt = StepInProgress, now
		}
	}
	g.Plan.ProgressSummary, g.Plan.CheckpointAt = in.Summary, now
	g.Summary.Revision++
	g.Summary.UpdatedAt = now
	return nil
}
