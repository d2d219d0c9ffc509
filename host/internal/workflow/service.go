package workflow

import "context"

// Service is what the tools call: one method for each capability. Owner
// isolation is the service's: what the caller's owner does not have is not
// found. Scopes and permissions are the caller's business.
//
// Every error is an *Error. Beside the kinds of each group there is
// mission_not_running, of every mutation. A method that answers without one is durable. Once
// a command was handed to the store it is carried through even if ctx ends; an
// Error with Unknown then says that nobody knows.
type Service interface {
	Goals
	Tasks
	Sessions
	Calls

	// FinishTask computes the outcome of the work from facts of the store. It
	// changes nothing.
	FinishTask(ctx context.Context, by Caller, in FinishTask) (FinishResult, error)
	// Context gives the mission's ids and, once a generation, its proofs. It
	// counts as the delivery of a pending wake.
	Context(ctx context.Context, by Caller) (MissionContext, error)
	// Resume gives the text for the prompt of a resumed agent, with the pending
	// wake's id; ok is false when no wake waits. The wake then is prepared:
	// Delivered says what came of it.
	Resume(ctx context.Context, owner Owner) (p ResumePrompt, ok bool, err error)
	// Delivered says whether a prepared wake reached the agent. Not delivered for
	// certain: it is pending again. Unsure: never sent again blindly.
	Delivered(ctx context.Context, owner Owner, wakeID string, d Delivery) error
}

// Delivery is what is known of handing a wake over.
type Delivery string

// The deliveries.
const (
	DeliveredYes    Delivery = "delivered"
	DeliveredNo     Delivery = "not_delivered"
	DeliveredUnsure Delivery = "delivery_unknown"
)

// Goals are the methods on goals.
//
// Kinds of errors: invalid_goal_id, invalid_goal_revision,
// invalid_goal_checkpoint, invalid_goal_idempotency_key, invalid_goal (of
// create_goal and update_goal), invalid_goal_query, goal_update_empty,
// goal_terminal_reason_requires_terminal_lifecycle, goal_not_found,
// goal_idempotency_conflict, goal_terminal, goal_revision_changed,
// goal_plan_incomplete, goal_capacity_exceeded, agent_not_found,
// identity_allocation_exhausted, goal_store_unavailable. The order of checks of
// both checkpoint and update: shape, goal_not_found, replay, goal_terminal,
// goal_revision_changed, content.
type Goals interface {
	CreateGoal(ctx context.Context, by Caller, in CreateGoal) (GoalResult, error)
	GetGoal(ctx context.Context, by Caller, in GetGoal) (GoalView, error)
	ListGoals(ctx context.Context, by Caller, in ListGoals) (GoalPage, error)
	CheckpointGoal(ctx context.Context, by Caller, in CheckpointGoal) (GoalResult, error)
	UpdateGoal(ctx context.Context, by Caller, in UpdateGoal) (GoalResult, error)
}

// Tasks are the methods on agent tasks, their attempts and wakes.
//
// Kinds of errors: invalid_agent_task (of create), invalid_agent_task_id,
// invalid_agent_task_attempt_id, invalid_agent_id,
// invalid_agent_task_attempt_fence, invalid_agent_task_controller_generation,
// invalid_agent_task_active_turn_proof, invalid_agent_task_active_turn_wake_id,
// invalid_agent_task_active_turn_consume_token, invalid_agent_task_outcome,
// invalid_communication_idempotency_key, communication_idempotency_conflict,
// agent_not_found, agent_task_not_found, agent_task_terminal,
// agent_task_unassigned, agent_task_assignee_mismatch,
// agent_task_attempt_active, agent_task_execution_active,
// agent_task_execution_outcome_unknown, agent_task_attempt_stale,
// agent_task_active_turn_proof_invalid, agent_task_capacity_exceeded,
// goal_not_found, goal_terminal, goal_correlation_capacity_exceeded,
// unknown_session_id, mission_context_not_found; of wakes
// invalid_endpoint_id, invalid_controller_generation, invalid_wake_id,
// invalid_wake_consume_token, endpoint_not_found, endpoint_detached,
// endpoint_expired, endpoint_generation_stale, wake_not_found,
// wake_agent_mismatch, wake_endpoint_fence_mismatch, endpoint_not_wake_capable,
// wake_consume_token_mismatch, wake_not_dispatched; and
// identity_allocation_exhausted, communication_store_unavailable.
type Tasks interface {
	CreateTask(ctx context.Context, by Caller, in CreateTask) (TaskResult, error)
	ReadTask(ctx context.Context, by Caller, in ReadTask) (TaskView, error)
	StartAttempt(ctx context.Context, by Caller, in StartAttempt) (AttemptResult, error)
	Heartbeat(ctx context.Context, by Caller, in Heartbeat) (HeartbeatResult, error)
	CompleteAttempt(ctx context.Context, by Caller, in CompleteAttempt) (CompleteAttemptResult, error)
	ConsumeWake(ctx context.Context, by Caller, in ConsumeWake) (WakeResult, error)
}

// Sessions are the methods on workflow sessions and their messages.
//
// Kinds of errors: unknown_session_id, session_authority_denied,
// session_closed, session_project_mismatch,
// session_execution_context_requires_project, invalid_execution_context,
// invalid_session_message, unknown_message_id, session_message_not_todo,
// session_message_not_open, session_message_is_todo, delivery_key_conflict,
// invalid_delivery_key, invalid_completion_key, invalid_assignment_fence,
// assignment_too_large, assignment_stale, idempotency_conflict,
// already_completed, session_message_capacity_exceeded,
// identity_allocation_exhausted, session_store_unavailable and, where the commit
// of a completion was cut off, completion_persistence_uncertain.
type Sessions interface {
	// Recorder checks that the owner may speak as the session, given by its id or
	// by its selector ~sN: unknown_session_id, session_closed,
	// session_authority_denied.
	Recorder(ctx context.Context, owner Owner, session string) (SessionView, error)
	PostMessage(ctx context.Context, by Caller, in PostMessage) (PostResult, error)
	GetAssignment(ctx context.Context, by Caller, in GetAssignment) (Assignment, error)
	CompleteMessage(ctx context.Context, by Caller, in CompleteMessage) (CompleteResult, error)
	ResolveMessage(ctx context.Context, by Caller, in ResolveMessage) (ResolveResult, error)
	UpdateSessionContext(ctx context.Context, by Caller, in UpdateSessionContext) (SessionContextResult, error)
	CloseSession(ctx context.Context, by Caller, in CloseSession) (CloseResult, error)
	// Ack marks messages of a session as read, and nothing else.
	Ack(ctx context.Context, by Caller, session string, messageIDs []string) (AckResult, error)
	// Attention reads what waits for an acknowledgement.
	Attention(ctx context.Context, by Caller, session string) (Attention, error)
}

// Calls keep the record of composite calls. The order is:
//
//	c := Open(…)                        // in memory only
//	CheckpointGoal(ctx, Caller{Call: c, Phase: Before}, …)  // records the phase with its effect
//	Intend(ctx, c)                      // durable, before main is dispatched
//	… main runs …
//	Settle(ctx, c, outcome, skip)       // durable, before the after phase
//	CompleteMessage(ctx, Caller{Call: c, Phase: After}, …)
//	Close(c)
//
// So a row without an intent proves that main never ran, and one with an intent
// that was not settled says that nobody knows. Kinds of errors:
// invalid_invocation_id, invalid_invocation_nonce, invocation_not_found,
// invocation_store_unavailable.
type Calls interface {
	// Open takes a call into memory.
	Open(owner Owner, n NewCall) (*Call, error)
	// Refuse records that the call ended before main was dispatched: before is
	// what came of that phase (nil: not recorded yet and not asked for), after
	// that of the other one.
	Refuse(ctx context.Context, c *Call, before, after *PhaseOutcome) error
	// Intend makes it durable that main is about to be dispatched. callID is the
	// governed invocation that it is, if it is one.
	Intend(ctx context.Context, c *Call, callID string) error
	// Settle records how main ended and, where the after phase is not to run, why
	// not (a skip code; empty: it follows, or there is none).
	Settle(ctx context.Context, c *Call, m MainOutcome, skip string) error
	// Note records what came of a phase that no method of this service recorded:
	// its panic, its unknown outcome.
	Note(ctx context.Context, c *Call, p Phase, o PhaseOutcome) error
	// SettleStarted records how a main call that was handed off has ended.
	SettleStarted(ctx context.Context, owner Owner, invocationID string, m MainOutcome) error
	// Close takes the call out of memory; the answer is on its way.
	Close(c *Call)
	// Outcome answers get_invocation_outcome.
	Outcome(ctx context.Context, by Caller, in GetOutcome) (CallOutcome, error)
}
