// Package request holds the one typed request of each tool that the MCP endpoint
// has, with its shape: the decoder and the advertised schema are both made of
// it. It imports strict only.
//
// The one idea: a request says which members there are and of which type, and
// which must be there. What their values may be (lengths, forms of ids, keys) is
// the domain's to say, with an error_kind of its own. A sidecar's payload is the
// same type as the request of its canonical tool, but for GoalCompletion.
package request

// GoalStep is one step of a plan.
type GoalStep struct {
	ID    string `wc:"id,required" doc:"1 to 32 of A-Z a-z 0-9 _ -"`
	Title string `wc:"title,required"`
}

// CreateGoal is create_goal.
type CreateGoal struct {
	Title                string     `wc:"title,required"`
	Objective            string     `wc:"objective,required"`
	CompletionConditions []string   `wc:"completion_conditions"`
	Steps                []GoalStep `wc:"steps"`
	ControllerAgentID    *string    `wc:"controller_agent_id"`
	IdempotencyKey       string     `wc:"idempotency_key,required"`
}

// GetGoal is get_goal.
type GetGoal struct {
	GoalID string `wc:"goal_id,required"`
}

// ListGoals is list_goals.
type ListGoals struct {
	Query     *string `wc:"query"`
	Lifecycle *string `wc:"lifecycle" enum:"active,completed,cancelled"`
	Offset    *int64  `wc:"offset"`
	Limit     *int64  `wc:"limit" doc:"1 to 100, 50 if left out"`
}

// CheckpointGoal is checkpoint_goal and the sidecar goal_progress.
type CheckpointGoal struct {
	GoalID           string   `wc:"goal_id,required"`
	ExpectedRevision int64    `wc:"expected_revision,required"`
	CompletedStepIDs []string `wc:"completed_step_ids"`
	CurrentStepID    *string  `wc:"current_step_id"`
	Summary          string   `wc:"summary,required"`
	IdempotencyKey   string   `wc:"idempotency_key,required"`
}

// UpdateGoal is update_goal.
type UpdateGoal struct {
	GoalID            string  `wc:"goal_id,required"`
	ExpectedRevision  int64   `wc:"expected_revision,required"`
	IdempotencyKey    string  `wc:"idempotency_key,required"`
	Title             *string `wc:"title"`
	Objective         *string `wc:"objective"`
	ControllerAgentID *string `wc:"controller_agent_id"`
	Lifecycle         *string `wc:"lifecycle" enum:"active,completed,cancelled"`
	TerminalReason    *string `wc:"terminal_reason"`
}

// GoalCompletion is the sidecar goal_completion: an UpdateGoal whose lifecycle
// is completed, and says nothing else.
type GoalCompletion struct {
	GoalID           string  `wc:"goal_id,required"`
	ExpectedRevision int64   `wc:"expected_revision,required"`
	IdempotencyKey   string  `wc:"idempotency_key,required"`
	TerminalReason   *string `wc:"terminal_reason"`
}

// Update is the canonical request of a completion.
func (g GoalCompletion) Update() UpdateGoal {
	lifecycle := "completed"
	return UpdateGoal{GoalID: g.GoalID, ExpectedRevision: g.ExpectedRevision, IdempotencyKey: g.IdempotencyKey,
		Lifecycle: &lifecycle, TerminalReason: g.TerminalReason}
}
