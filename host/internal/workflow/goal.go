package workflow

import (
	"context"
	"errors"
	"slices"
)

// Limits of goals.
const (
	maxGoals        = 1000 // of an owner
	maxTitle        = 200
	maxObjective    = 8192
	maxConditions   = 8
	maxCondition    = 512
	maxSteps        = 32
	maxStepTitle    = 120
	maxSummary      = 2048
	maxTerminal     = 4096
	maxCorrelations = 64
)

// Operations whose keys are kept apart.
const (
	opCreateGoal = "create_goal"
	opCheckpoint = "checkpoint_goal"
	opUpdateGoal = "update_goal"
)

// goal is the stored form: the view without what is counted.
type goal struct{ GoalView }

func (g *goal) row() Row {
	return Row{Table: TableGoals, ID: g.Summary.GoalID, State: string(g.Summary.Lifecycle)}
}

func (g *goal) terminal() bool { return g.Summary.Lifecycle != GoalActive }

// copied is a goal that can be changed without changing the first.
func (g *goal) copied() *goal {
	c := *g
	c.Plan.Steps = slices.Clone(g.Plan.Steps)
	c.Correlations = slices.Clone(g.Correlations)
	return &c
}

// at is now, but never before what the goal has seen: clocks go backwards.
func (g *goal) at(now int64) int64 { return max(now, g.Summary.UpdatedAt) }

func (g *goal) step(id string) *Step {
	for i := range g.Plan.Steps {
		if g.Plan.Steps[i].ID == id {
			return &g.Plan.Steps[i]
		}
	}
	return nil
}

func (g *goal) unfinished() (n int) {
	for i := range g.Plan.Steps {
		if g.Plan.Steps[i].Status != StepCompleted {
			n++
		}
	}
	return n
}

// correlate ties a task or session to the goal; it says whether that is new.
func (g *goal) correlate(kind, id string, now int64) (bool, error) {
	if slices.Contains(g.Correlations, Correlation{kind, id}) {
		return false, nil
	}
	if len(g.Correlations) >= maxCorrelations {
		return false, refuse("goal_correlation_capacity_exceeded", UserAction, "the goal is tied to as many tasks and sessions as it can be")
	}
	g.Correlations = append(g.Correlations, Correlation{kind, id})
	if kind == correlatedTask {
		g.Summary.TaskCount++
	} else {
		g.Summary.SessionCount++
	}
	g.Summary.Revision++
	g.Summary.UpdatedAt = g.at(now)
	return true, nil
}

// The kinds of correlations.
const (
	correlatedTask    = "agent_task"
	correlatedSession = "workflow_session"
)

// sound checks a plan that was stored (fail closed).
func (g *goal) sound() error {
	seen := map[string]bool{}
	current := 0
	for _, s := range g.Plan.Steps {
		switch {
		case !isStepID(s.ID) || seen[s.ID]:
			return errCorrupt{TableGoals, errors.New("step ids are not valid")}
		case s.Status == StepInProgress:
			current++
		case s.Status != StepPending && s.Status != StepCompleted:
			return errCorrupt{TableGoals, errors.New("a step has no state")}
		}
		seen[s.ID] = true
		if s.CompletedAt > g.Summary.UpdatedAt || s.StartedAt > g.Summary.UpdatedAt {
			return errCorrupt{TableGoals, errors.New("a step is newer than its goal")}
		}
	}
	if current > 1 || g.Summary.Revision < 1 || g.terminal() != (g.Summary.TerminalAt != 0) {
		return errCorrupt{TableGoals, errors.New("the state contradicts itself")}
	}
	return nil
}

func loadGoal(r Reader, owner [32]byte, id string) (*goal, error) {
	g, err := load[goal](r, TableGoals, owner, id)
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, refuse("goal_not_found", FixInput, "there is no such goal")
	}
	return g, g.sound()
}

func goalID(id string) error {
	if !isID(prefixGoal, id) {
		return refuse("invalid_goal_id", FixInput, "goal_id is not the id of a goal")
	}
	return nil
}

func (g *goal) view() GoalView {
	v := g.copied().GoalView
	if v.Plan.CompletionConditions == nil {
		v.Plan.CompletionConditions = []string{}
	}
	if v.Plan.Steps == nil {
		v.Plan.Steps = []Step{}
	}
	if v.Correlations == nil {
		v.Correlations = []Correlation{}
	}
	return v
}

func (r GoalResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged, Replayed: r.Replayed, Revision: r.Goal.Summary.Revision}
}

// replayedGoal answers an exact repetition with the goal as it is now.
func replayedGoal(g *goal, k *KeyRow) GoalResult {
	return GoalResult{Goal: g.view(), ResultRevision: k.Revision, Replayed: true}
}

// withRevision adds the current revision to an error about a goal.
func withRevision(g *goal, e *Error) *Error {
	e.Revision = g.Summary.Revision
	return e
}

// fresh are the checks that checkpoint and update share after the replay:
// terminal, then revision.
func (g *goal) fresh(expected int64) error {
	switch {
	case g.terminal():
		return withRevision(g, refuse("goal_terminal", NoAction, "the goal is completed or cancelled and does not change any more"))
	case g.Summary.Revision != expected:
		return withRevision(g, refuse("goal_revision_changed", Reobserve, "the goal has another revision now; read it and decide anew"))
	}
	return nil
}

// CreateGoal makes a goal.
func (k *Keeper) CreateGoal(ctx context.Context, by Caller, in CreateGoal) (GoalResult, error) {
	return k.onGoal(ctx, by, func(tx Tx) (GoalResult, *goal, error) { return k.createGoal(tx, by.Owner.Digest(), in) })
}

func (k *Keeper) createGoal(tx Tx, owner [32]byte, in CreateGoal) (out GoalResult, g *goal, err error) {
	if err := in.normalize(); err != nil {
		return out, nil, err
	}
	if in.IdempotencyKey, err = key(in.IdempotencyKey, "invalid_goal_idempotency_key"); err != nil {
		return out, nil, err
	}
	request := requestHash(opCreateGoal, in)
	seen, err := replayed(tx, owner, opCreateGoal, in.IdempotencyKey, request, "goal_idempotency_conflict")
	if err != nil {
		return out, nil, err
	}
	if seen != nil {
		if g, err = loadGoal(tx, owner, seen.ResourceID); err != nil {
			return out, nil, err
		}
		return replayedGoal(g, seen), nil, nil
	}
	if err := agentOf(tx, owner, in.ControllerAgentID); err != nil {
		return out, nil, err
	}
	switch n, err := tx.Count(Query{Table: TableGoals, By: ByOwner, Owner: owner}); {
	case err != nil:
		return out, nil, err
	case n >= maxGoals:
		return out, nil, refuse("goal_capacity_exceeded", UserAction, "there are as many goals as there may be")
	}
	if g, err = k.newGoal(tx, in); err != nil {
		return out, nil, err
	}
	tx.Insert(rowOf(owner, g))
	k.used(tx, owner, opCreateGoal, in.IdempotencyKey, request, g.Summary.GoalID, 1)
	return GoalResult{Goal: g.view(), ResultRevision: 1, Created: true, StateChanged: true}, g, nil
}

func (k *Keeper) newGoal(tx Tx, in CreateGoal) (*goal, error) {
	id, err := k.newID(tx, TableGoals, prefixGoal)
	if err != nil {
		return nil, err
	}
	now := k.now()
	g := &goal{}
	g.Summary = GoalSummary{GoalID: id, Title: in.Title, Lifecycle: GoalActive, Revision: 1, CreatedAt: now, UpdatedAt: now}
	g.Objective, g.ControllerAgentID, g.Plan.CompletionConditions = in.Objective, value(in.ControllerAgentID), in.CompletionConditions
	for _, s := range in.Steps {
		g.Plan.Steps = append(g.Plan.Steps, Step{ID: s.ID, Title: s.Title, Status: StepPending})
	}
	return g, nil
}

func (in *CreateGoal) normalize() error {
	bad := func(text string) error { return refuse("invalid_goal", FixInput, text) }
	in.Title = trimmed(in.Title)
	if n := chars(in.Title); n < 1 || n > maxTitle {
		return bad("title must have 1 to 200 characters")
	}
	if n := len(in.Objective); n < 1 || n > maxObjective || trimmed(in.Objective) == "" {
		return bad("objective must have 1 to 8192 bytes")
	}
	if len(in.CompletionConditions) > maxConditions {
		return bad("there may be at most 8 completion_conditions")
	}
	for _, c := range in.CompletionConditions {
		if trimmed(c) == "" || len(c) > maxCondition {
			return bad("each of completion_conditions must have 1 to 512 bytes")
		}
	}
	if len(in.Steps) > maxSteps {
		return bad("there may be at most 32 steps")
	}
	in.Steps = slices.Clone(in.Steps)
	seen := map[string]bool{}
	for i := range in.Steps {
		s := &in.Steps[i]
		s.Title = trimmed(s.Title)
		switch n := chars(s.Title); {
		case !isStepID(s.ID):
			return bad("the id of a step must be 1 to 32 of A-Z a-z 0-9 _ -")
		case seen[s.ID]:
			return bad("the ids of steps must differ")
		case n < 1 || n > maxStepTitle:
			return bad("the title of a step must have 1 to 120 characters")
		}
		seen[s.ID] = true
	}
	if a := in.ControllerAgentID; a != nil && !isID(prefixAgent, *a) {
		return refuse("invalid_agent_id", FixInput, "controller_agent_id is not the id of an agent")
	}
	return nil
}

// onGoal runs a command on a goal; work gives the goal if it has changed.
func (k *Keeper) onGoal(ctx context.Context, by Caller, work func(Tx) (GoalResult, *goal, error)) (GoalResult, error) {
	var report *Progress
	return run(ctx, k, by, ofGoals, func(do func(Tx) error) error {
		return k.opts.Store.Progress(ctx, by.Owner, func(tx Tx) (*Progress, error) {
			report = nil
			err := do(tx)
			return report, err
		})
	}, func(tx Tx) (GoalResult, error) {
		out, changed, err := work(tx)
		if err == nil && changed != nil {
			report, err = progressOf(tx, by.Owner.Digest(), changed)
		}
		return out, err
	})
}
