package request

// PostMessage is post_session_message.
type PostMessage struct {
	SessionID   string   `wc:"session_id,required"`
	Kind        string   `wc:"kind,required" enum:"note,proposal,question,answer,decision,risk,progress,guidance,todo"`
	Message     string   `wc:"message,required"`
	Tags        []string `wc:"tags"`
	ReplyTo     *string  `wc:"reply_to"`
	Priority    *string  `wc:"priority" enum:"low,normal,high"`
	RequiresAck bool     `wc:"requires_ack"`
	DeliveryKey *string  `wc:"delivery_key"`
}

// GetAssignment is get_session_assignment.
type GetAssignment struct {
	SessionID string `wc:"session_id,required"`
	MessageID string `wc:"message_id,required"`
}

// CompleteMessage is complete_session_message and the sidecar todo_completion.
type CompleteMessage struct {
	SessionID               string   `wc:"session_id,required"`
	MessageID               string   `wc:"message_id,required"`
	Answer                  string   `wc:"answer,required"`
	CompletionKey           string   `wc:"completion_key,required"`
	ExpectedAssignmentFence string   `wc:"expected_assignment_fence,required"`
	Tags                    []string `wc:"tags"`
	Priority                *string  `wc:"priority" enum:"low,normal,high"`
}

// ResolveMessage is resolve_session_message.
type ResolveMessage struct {
	SessionID  string `wc:"session_id,required"`
	MessageID  string `wc:"message_id,required"`
	Resolution string `wc:"resolution,required"`
}

// ExecutionContext is what calls of a session run with when they do not say.
type ExecutionContext struct {
	DefaultCwd   *string `wc:"default_cwd"`
	DefaultShell *string `wc:"default_shell" enum:"sh,bash"`
	Resource     *string `wc:"resource"`
}

// UpdateContext is update_session_context and the sidecar
// session_context_update, which is reserved.
type UpdateContext struct {
	Project          string           `wc:"project,required"`
	SessionID        string           `wc:"session_id,required"`
	ExecutionContext ExecutionContext `wc:"execution_context,required"`
}

// CloseSession is close_session and the sidecar session_close.
type CloseSession struct {
	SessionID string `wc:"session_id,required"`
}

// FinishTask is finish_coding_task.
type FinishTask struct {
	Project                  string   `wc:"project,required"`
	SessionID                string   `wc:"session_id,required"`
	Outputs                  []string `wc:"outputs" doc:"paths that must be there for the work to count as done"`
	SummaryOnly              bool     `wc:"summary_only"`
	IncludeDiff              bool     `wc:"include_diff"`
	IncludeWorkspace         bool     `wc:"include_workspace"`
	IncludeHygiene           bool     `wc:"include_hygiene"`
	IncludeHandoff           bool     `wc:"include_handoff"`
	IncludeValidationSummary bool     `wc:"include_validation_summary"`
}
