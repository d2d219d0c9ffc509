package request

// CreateAgentTask is create_agent_task.
type CreateAgentTask struct {
	Title           string  `wc:"title,required"`
	Instruction     string  `wc:"instruction,required"`
	AssigneeAgentID *string `wc:"assignee_agent_id"`
	Project         *string `wc:"project"`
	GoalID          *string `wc:"goal_id"`
	SessionID       *string `wc:"session_id"`
	IdempotencyKey  string  `wc:"idempotency_key,required"`
}

// StartAttempt is start_agent_task_attempt.
type StartAttempt struct {
	TaskID          string `wc:"task_id,required"`
	AssigneeAgentID string `wc:"assignee_agent_id,required"`
	IdempotencyKey  string `wc:"idempotency_key,required"`
}

// HeartbeatAttempt is heartbeat_agent_task_attempt and the sidecar
// attempt_heartbeat.
type HeartbeatAttempt struct {
	TaskID                      string  `wc:"task_id,required"`
	AttemptID                   string  `wc:"attempt_id,required"`
	AssigneeAgentID             string  `wc:"assignee_agent_id,required"`
	AttemptFence                string  `wc:"attempt_fence,required"`
	AttemptControllerGeneration int64   `wc:"attempt_controller_generation,required"`
	ActiveTurnWakeID            *string `wc:"active_turn_wake_id"`
	ActiveTurnConsumeToken      *string `wc:"active_turn_consume_token"`
}

// CompleteAttempt is complete_agent_task_attempt.
type CompleteAttempt struct {
	TaskID                      string  `wc:"task_id,required"`
	AttemptID                   string  `wc:"attempt_id,required"`
	AssigneeAgentID             string  `wc:"assignee_agent_id,required"`
	AttemptFence                string  `wc:"attempt_fence,required"`
	AttemptControllerGeneration int64   `wc:"attempt_controller_generation,required"`
	Outcome                     string  `wc:"outcome,required" enum:"succeeded,failed"`
	TerminalResult              *string `wc:"terminal_result"`
	TerminalReason              *string `wc:"terminal_reason"`
	CompletionKey               string  `wc:"completion_key,required"`
}

// ReadAgentTask is read_agent_task.
type ReadAgentTask struct {
	TaskID string `wc:"task_id,required"`
}

// ConsumeWake is consume_agent_wake and the sidecar wake_consume.
type ConsumeWake struct {
	AgentID                      string `wc:"agent_id,required"`
	EndpointID                   string `wc:"endpoint_id,required"`
	ExpectedControllerGeneration int64  `wc:"expected_controller_generation,required"`
	WakeID                       string `wc:"wake_id,required"`
	ConsumeToken                 string `wc:"consume_token,required"`
}
