package workflow

// The requests are the arguments of the tools of the same names, with the same
// members: a schema and a decoder can be made from these types (tags `wc`,
// `enum`, `max`). Limits, formats and trimming are checked by the methods.
// Pointers tell absent from empty.

// CreateGoal makes a goal (create_goal).
type CreateGoal struct {
	Title                string    `wc:"title,required" json:"title" doc:"1 to 200 characters"`
	Objective            string    `wc:"objective,required" json:"objective" doc:"1 to 8192 bytes"`
	CompletionConditions []string  `wc:"completion_conditions" json:"completion_conditions,omitempty" max:"8" doc:"at most 8, 512 bytes each"`
	Steps                []NewStep `wc:"steps" json:"steps,omitempty" max:"32" doc:"the plan, at most 32 steps"`
	ControllerAgentID    *string   `wc:"controller_agent_id" json:"controller_agent_id,omitempty"`
	IdempotencyKey       string    `wc:"idempotency_key,required" json:"idempotency_key" doc:"1 to 128 characters"`
}

// NewStep is a step of a plan.
type NewStep struct {
	ID    string `wc:"id,required" json:"id" doc:"1 to 32 of A-Z a-z 0-9 _ -, unique in the goal"`
	Title string `wc:"title,required" json:"title" doc:"1 to 120 characters"`
}

// GetGoal reads a goal (get_goal).
type GetGoal struct {
	GoalID string `wc:"goal_id,required" json:"goal_id"`
}

// ListGoals reads a page of goals, the last updated first (list_goals).
type ListGoals struct {
	Query     *string `wc:"query" json:"query,omitempty" doc:"part of a title, in any case"`
	Lifecycle *string `wc:"lifecycle" json:"lifecycle,omitempty" enum:"active,completed,cancelled"`
	Offset    *int64  `wc:"offset" json:"offset,omitempty" doc:"0 or more"`
	Limit     *int64  `wc:"limit" json:"limit,omitempty" doc:"1 to 100, 50 if absent"`
}

// CheckpointGoal records progress (checkpoint_goal, sidecar goal_progress).
type CheckpointGoal struct {
	GoalID           string   `wc:"goal_id,required" json:"goal_id"`
	ExpectedRevision int64    `wc:"expected_revision,required" json:"expected_revision" doc:"the revision that you saw last, 1 or more"`
	CompletedStepIDs []string `wc:"completed_step_ids" json:"completed_step_ids,omitempty" max:"32"`
	CurrentStepID    *string  `wc:"current_step_id" json:"current_step_id,omitempty"`
	Summary          string   `wc:"summary,required" json:"summary" doc:"1 to 2048 bytes"`
	IdempotencyKey   string   `wc:"idempotency_key,required" json:"idempotency_key" doc:"1 to 128 characters"`
}

// UpdateGoal changes a goal or ends it (update_goal).
type UpdateGoal struct {
	GoalID            string  `wc:"goal_id,required" json:"goal_id"`
	ExpectedRevision  int64   `wc:"expected_revision,required" json:"expected_revision" doc:"the revision that you saw last, 1 or more"`
	IdempotencyKey    string  `wc:"idempotency_key,required" json:"idempotency_key" doc:"1 to 128 characters"`
	Title             *string `wc:"title" json:"title,omitempty" doc:"1 to 200 characters"`
	Objective         *string `wc:"objective" json:"objective,omitempty" doc:"1 to 8192 bytes"`
	ControllerAgentID *string `wc:"controller_agent_id" json:"controller_agent_id,omitempty"`
	Lifecycle         *string `wc:"lifecycle" json:"lifecycle,omitempty" enum:"active,completed,cancelled"`
	TerminalReason    *string `wc:"terminal_reason" json:"terminal_reason,omitempty" doc:"at most 4096 bytes, only with completed or cancelled"`
}

// CompleteGoal is the sidecar goal_completion: update_goal with lifecycle
// completed and nothing else.
type CompleteGoal struct {
	GoalID           string  `wc:"goal_id,required" json:"goal_id"`
	ExpectedRevision int64   `wc:"expected_revision,required" json:"expected_revision" doc:"the revision that you saw last, 1 or more"`
	IdempotencyKey   string  `wc:"idempotency_key,required" json:"idempotency_key" doc:"1 to 128 characters"`
	TerminalReason   *string `wc:"terminal_reason" json:"terminal_reason,omitempty" doc:"at most 4096 bytes"`
}

// Update is the canonical request that a completion stands for.
func (c CompleteGoal) Update() UpdateGoal {
	completed := string(GoalCompleted)
	return UpdateGoal{GoalID: c.GoalID, ExpectedRevision: c.ExpectedRevision, IdempotencyKey: c.IdempotencyKey,
		Lifecycle: &completed, TerminalReason: c.TerminalReason}
}

// CreateTask makes an agent task (create_agent_task).
type CreateTask struct {
	Title           string  `wc:"title,required" json:"title" doc:"1 to 200 characters"`
	Instruction     string  `wc:"instruction,required" json:"instruction" doc:"1 to 8192 bytes"`
	AssigneeAgentID *string `wc:"assignee_agent_id" json:"assignee_agent_id,omitempty"`
	Project         *string `wc:"project" json:"project,omitempty" doc:"1 to 256 characters"`
	GoalID          *string `wc:"goal_id" json:"goal_id,omitempty"`
	SessionID       *string `wc:"session_id" json:"session_id,omitempty"`
	IdempotencyKey  string  `wc:"idempotency_key,required" json:"idempotency_key" doc:"1 to 128 characters"`
}

// ReadTask reads an agent task (read_agent_task).
type ReadTask struct {
	TaskID string `wc:"task_id,required" json:"task_id"`
}

// StartAttempt claims a task (start_agent_task_attempt).
type StartAttempt struct {
	TaskID          string `wc:"task_id,required" json:"task_id"`
	AssigneeAgentID string `wc:"assignee_agent_id,required" json:"assignee_agent_id"`
	IdempotencyKey  string `wc:"idempotency_key,required" json:"idempotency_key" doc:"1 to 128 characters"`
}

// Heartbeat extends the lease of an attempt (heartbeat_agent_task_attempt,
// sidecar attempt_heartbeat).
type Heartbeat struct {
	TaskID                      string  `wc:"task_id,required" json:"task_id"`
	AttemptID                   string  `wc:"attempt_id,required" json:"attempt_id"`
	AssigneeAgentID             string  `wc:"assignee_agent_id,required" json:"assignee_agent_id"`
	AttemptFence                string  `wc:"attempt_fence,required" json:"attempt_fence"`
	AttemptControllerGeneration int64   `wc:"attempt_controller_generation,required" json:"attempt_controller_generation" doc:"1 or more"`
	ActiveTurnWakeID            *string `wc:"active_turn_wake_id" json:"active_turn_wake_id,omitempty" doc:"only with active_turn_consume_token"`
	ActiveTurnConsumeToken      *string `wc:"active_turn_consume_token" json:"active_turn_consume_token,omitempty" doc:"only with active_turn_wake_id"`
}

// CompleteAttempt ends an attempt and its task (complete_agent_task_attempt).
type CompleteAttempt struct {
	TaskID                      string  `wc:"task_id,required" json:"task_id"`
	AttemptID                   string  `wc:"attempt_id,required" json:"attempt_id"`
	AssigneeAgentID             string  `wc:"assignee_agent_id,required" json:"assignee_agent_id"`
	AttemptFence                string  `wc:"attempt_fence,required" json:"attempt_fence"`
	AttemptControllerGeneration int64   `wc:"attempt_controller_generation,required" json:"attempt_controller_generation" doc:"1 or more"`
	Outcome                     string  `wc:"outcome,required" json:"outcome" enum:"succeeded,failed"`
	TerminalResult              *string `wc:"terminal_result" json:"terminal_result,omitempty" doc:"at most 4096 bytes"`
	TerminalReason              *string `wc:"terminal_reason" json:"terminal_reason,omitempty" doc:"at most 4096 bytes"`
	CompletionKey               string  `wc:"completion_key,required" json:"completion_key" doc:"1 to 128 characters"`
}

// ConsumeWake proves that a continuation really runs (consume_agent_wake,
// sidecar wake_consume).
type ConsumeWake struct {
	AgentID                      string `wc:"agent_id,required" json:"agent_id"`
	EndpointID                   string `wc:"endpoint_id,required" json:"endpoint_id"`
	ExpectedControllerGeneration int64  `wc:"expected_controller_generation,required" json:"expected_controller_generation" doc:"1 or more"`
	WakeID                       string `wc:"wake_id,required" json:"wake_id"`
	ConsumeToken                 string `wc:"consume_token,required" json:"consume_token"`
}

// PostMessage posts into a session (post_session_message).
type PostMessage struct {
	SessionID   string   `wc:"session_id,required" json:"session_id"`
	Kind        string   `wc:"kind,required" json:"kind" enum:"note,proposal,question,answer,decision,risk,progress,guidance,todo"`
	Message     string   `wc:"message,required" json:"message" doc:"1 to 8000 characters"`
	Tags        []string `wc:"tags" json:"tags,omitempty" max:"16" doc:"at most 16, 64 characters each"`
	ReplyTo     *string  `wc:"reply_to" json:"reply_to,omitempty"`
	Priority    *string  `wc:"priority" json:"priority,omitempty" enum:"low,normal,high"`
	RequiresAck *bool    `wc:"requires_ack" json:"requires_ack,omitempty"`
	DeliveryKey *string  `wc:"delivery_key" json:"delivery_key,omitempty" doc:"1 to 128 characters; makes posting repeatable"`
}

// GetAssignment reads a todo with its replies and its fence
// (get_session_assignment).
type GetAssignment struct {
	SessionID string `wc:"session_id,required" json:"session_id"`
	MessageID string `wc:"message_id,required" json:"message_id"`
}

// CompleteMessage answers a todo and resolves it (complete_session_message,
// sidecar todo_completion).
type CompleteMessage struct {
	SessionID               string   `wc:"session_id,required" json:"session_id"`
	MessageID               string   `wc:"message_id,required" json:"message_id"`
	Answer                  string   `wc:"answer,required" json:"answer" doc:"1 to 8000 characters"`
	CompletionKey           string   `wc:"completion_key,required" json:"completion_key" doc:"1 to 128 characters"`
	ExpectedAssignmentFence string   `wc:"expected_assignment_fence,required" json:"expected_assignment_fence"`
	Tags                    []string `wc:"tags" json:"tags,omitempty" max:"16" doc:"at most 16, 64 characters each"`
	Priority                *string  `wc:"priority" json:"priority,omitempty" enum:"low,normal,high"`
}

// ResolveMessage closes a message that is no todo (resolve_session_message).
type ResolveMessage struct {
	SessionID  string `wc:"session_id,required" json:"session_id"`
	MessageID  string `wc:"message_id,required" json:"message_id"`
	Resolution string `wc:"resolution,required" json:"resolution" doc:"1 to 8000 characters"`
}

// UpdateSessionContext replaces a session's defaults (update_session_context).
type UpdateSessionContext struct {
	Project          string           `wc:"project,required" json:"project"`
	SessionID        string           `wc:"session_id,required" json:"session_id"`
	ExecutionContext ExecutionContext `wc:"execution_context,required" json:"execution_context"`
}

// ExecutionContext are the defaults of a session.
type ExecutionContext struct {
	DefaultCwd   *string `wc:"default_cwd" json:"default_cwd,omitempty" doc:"at most 4096 bytes"`
	DefaultShell *string `wc:"default_shell" json:"default_shell,omitempty" enum:"sh,bash"`
	Resource     *string `wc:"resource" json:"resource,omitempty" doc:"1 to 80 of A-Z a-z 0-9 _ . -"`
}

// CloseSession closes a session for good (close_session, sidecar session_close).
type CloseSession struct {
	SessionID string `wc:"session_id,required" json:"session_id"`
}

// FinishTask asks whether work may be closed (finish_coding_task).
type FinishTask struct {
	Project                  string   `wc:"project,required" json:"project"`
	SessionID                string   `wc:"session_id,required" json:"session_id"`
	Outputs                  []string `wc:"outputs" json:"outputs,omitempty" max:"64" doc:"files that the work was to make"`
	SummaryOnly              *bool    `wc:"summary_only" json:"summary_only,omitempty"`
	IncludeDiff              *bool    `wc:"include_diff" json:"include_diff,omitempty"`
	IncludeWorkspace         *bool    `wc:"include_workspace" json:"include_workspace,omitempty"`
	IncludeHygiene           *bool    `wc:"include_hygiene" json:"include_hygiene,omitempty"`
	IncludeHandoff           *bool    `wc:"include_handoff" json:"include_handoff,omitempty"`
	IncludeValidationSummary *bool    `wc:"include_validation_summary" json:"include_validation_summary,omitempty"`
}
