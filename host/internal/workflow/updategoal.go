package workflow

import "context"

// UpdateGoal changes a goal's texts or ends it. A change of nothing succeeds and
// keeps the revision.
func (k *Keeper) UpdateGoal(ctx context.Context, by Caller, in UpdateGoal) (GoalResult, error) {
	return k.onGoal(ctx, by, func(tx Tx) (GoalResult, *goal, error) { return k.updateGoal(tx, by.Owner.Digest(), in) })
}

func (k *Keeper) updateGoal(tx Tx, owner [32]byte, in UpdateGoal) (out GoalResult, _ *goal, err error) {
	if err := in.normalize(); err != nil {
		return out, nil, err
	}
	// The goal comes before the agent that it names, so that a goal of somebody
	// else cannot be used to find out about agents.
	g, err := loadGoal(tx, owner, in.GoalID)
	if err != nil {
		return out, nil, err
	}
	request := requestHash(opUpdateGoal, in)
	seen, err := replayed(tx, owner, opUpdateGoal, in.IdempotencyKey, request, "goal_idempotency_conflict")
	if err != nil {
		return out, nil, conflictOn(g, err)
	}
	if seen != nil {
		return replayedGoal(g, seen), nil, nil
	}
	if err := g.fresh(in.ExpectedRevision); err != nil {
		return out, nil, err
	}
	if err := agentOf(tx, owner, in.ControllerAgentID); err != nil {
		return out, nil, err
	}
	next := g.copied()
	changed, refused := next.change(&in, next.at(k.now()))
	if refused != nil {
		return out, nil, withRevision(g, refused)
	}
	k.used(tx, owner, opUpdateGoal, in.IdempotencyKey, request, in.GoalID, next.Summary.Revision)
	out = GoalResult{Goal: next.view(), ResultRevision: next.Summary.Revision, StateChanged: changed}
	if !changed {
		return out, nil, nil
	}
	tx.Update(rowOf(owner, next))
	return out, next, nil
}

func (in *UpdateGoal) normalize() error {
	if err := goalID(in.GoalID); err != nil {
		return err
	}
	if in.ExpectedRevision < 1 {
		return refuse("invalid_goal_revision", FixInput, "expected_revision must be 1 or more")
	}
	bad := func(text string) error { return refuse("invalid_goal", FixInput, text) }
	in.Title = trimmedPtr(in.Title)
	if t := in.Title; t != nil && (chars(*t) < 1 || chars(*t) > maxTitle) {
		return bad("title must have 1 to 200 characters")
	}
	if o := in.Objective; o != nil && (len(*o) > maxObjective || trimmed(*o) == "") {
		return bad("objective must have 1 to 8192 bytes")
	}
	if a := in.ControllerAgentID; a != nil && !isID(prefixAgent, *a) {
		return refuse("invalid_agent_id", FixInput, "controller_agent_id is not the id of an agent")
	}
	ends := false
	if l := in.Lifecycle; l != nil {
		switch GoalLifecycle(*l) {
		case GoalActive:
		case GoalCompleted, GoalCancelled:
			ends = true
		default:
			return bad("lifecycle must be active, completed or cancelled")
		}
	}
	if r := in.TerminalReason; r != nil {
		if !ends {
			return refuse("goal_terminal_reason_requires_terminal_lifecycle", FixInput, "terminal_reason goes with the lifecycle completed or cancelled only")
		}
		if len(*r) > maxTerminal || trimmed(*r) == "" {
			return bad("terminal_reason must have 1 to 4096 bytes")
		}
	}
	if in.Title == nil && in.Objective == nil && in.ControllerAgentID == nil && in.Lifecycle == nil {
		return refuse("goal_update_empty", FixInput, "the update changes nothing: give title, objective, controller_agent_id or lifecycle")
	}
	var err error
	in.IdempotencyKey, err = key(in.IdempotencyKey, "invalid_goal_idempotency_key")
	return err
}

// change applies an update and says whether anything differs.
func (g *goal) change(in *UpdateGoal, now int64) (changed bool, refused *Error) {
	set := func(to, from *string) {
		if from != nil && *to != *from {
			*to, changed = *from, true
		}
	}
	if l := in.Lifecycle; l != nil && GoalLifecycle(*l) == GoalCompleted && g.unfinished() > 0 {
		return false, refuse("goal_plan_incomplete", FixInput, "a goal can be completed once all of its steps are; record them with a checkpoint first")
	}
	set(&g.Summary.Title, in.Title)
	set(&g.Objective, in.Objective)
	set(&g.ControllerAgentID, in.ControllerAgentID)
	if l := in.Lifecycle; l != nil && GoalLifecycle(*l) != GoalActive {
		g.Summary.Lifecycle, g.Summary.TerminalAt, g.TerminalReason = GoalLifecycle(*l), now, value(in.TerminalReason)
		changed = true
	}
	if changed {
		g.Summary.Revision++
		g.Summary.UpdatedAt = now
	}
	return changed, nil
}
