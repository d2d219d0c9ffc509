package workflow

// Times are milliseconds since 1970; 0 or absent: none.

// GoalLifecycle is how far a goal is.
type GoalLifecycle string

// The lifecycles of a goal; the last two are terminal.
const (
	GoalActive    GoalLifecycle = "active"
	GoalCompleted GoalLifecycle = "completed"
	GoalCancelled GoalLifecycle = "cancelled"
)

// StepStatus is how far a step is. It never goes back.
type StepStatus string

// The states of a step.
const (
	StepPending    StepStatus = "pending"
	StepInProgress StepStatus = "in_progress"
	StepCompleted  StepStatus = "completed"
)

// Step is one step of a goal's plan.
type Step struct {
	ID          string     `json:"id"`
	Title       string     `json:"title"`
	Status      StepStatus `json:"status"`
	StartedAt   int64      `json:"started_at_unix_ms,omitempty"`
	CompletedAt int64      `json:"completed_at_unix_ms,omitempty"`
}

// GoalSummary is a goal in a list.
type GoalSummary struct {
	GoalID       string        `json:"goal_id"`
	Title        string        `json:"title"`
	Lifecycle    GoalLifecycle `json:"lifecycle"`
	Revision     int64         `json:"revision"`
	CreatedAt    int64         `json:"created_at_unix_ms"`
	UpdatedAt    int64         `json:"updated_at_unix_ms"`
	TerminalAt   int64         `json:"terminal_at_unix_ms,omitempty"`
	TaskCount    int           `json:"agent_task_count"`
	SessionCount int           `json:"workflow_session_count"`
}

// GoalPlan is what a goal is made of.
type GoalPlan struct {
	CompletionConditions []string `json:"completion_conditions"`
	Steps                []Step   `json:"steps"`
	ProgressSummary      string   `json:"progress_summary,omitempty"`
	CheckpointAt         int64    `json:"checkpoint_at_unix_ms,omitempty"`
}

// Correlation ties a goal to a task or a session.
type Correlation struct {
	Kind string `json:"kind"` // "agent_task" | "workflow_session"
	ID   string `json:"id"`
}

// GoalView is a goal as it is now.
type GoalView struct {
	Summary           GoalSummary   `json:"summary"`
	Plan              GoalPlan      `json:"plan"`
	Objective         string        `json:"objective"`
	ControllerAgentID string        `json:"controller_agent_id,omitempty"`
	TerminalReason    string        `json:"terminal_reason,omitempty"`
	Correlations      []Correlation `json:"correlations"`
}

// GoalResult answers a mutation of a goal. Of a replay Goal is as it is now and
// ResultRevision the revision that the first call made.
type GoalResult struct {
	Goal           GoalView `json:"goal"`
	ResultRevision int64    `json:"result_revision"`
	Created        bool     `json:"created"`
	Replayed       bool     `json:"replayed"`
	StateChanged   bool     `json:"state_changed"`
}

// GoalPage is a page of goals.
type GoalPage struct {
	TotalCount int           `json:"total_count"`
	Offset     int           `json:"offset"`
	NextOffset *int          `json:"next_offset,omitempty"`
	Truncated  bool          `json:"truncated"`
	Goals      []GoalSummary `json:"goals"`
}

// TaskState is how far an agent task is, as read now: a task whose attempt has
// expired is ready again, unless its execution holds it.
type TaskState string

// The states of a task; the last two are terminal.
const (
	TaskReady     TaskState = "ready"
	TaskActive    TaskState = "active"
	TaskSucceeded TaskState = "succeeded"
	TaskFailed    TaskState = "failed"
)

// TaskSummary is an agent task.
type TaskSummary struct {
	TaskID          string    `json:"task_id"`
	Title           string    `json:"title"`
	Instruction     string    `json:"instruction"`
	AssigneeAgentID string    `json:"assignee_agent_id,omitempty"`
	Project         string    `json:"project,omitempty"`
	GoalID          string    `json:"goal_id,omitempty"`
	SessionID       string    `json:"session_id,omitempty"`
	State           TaskState `json:"state"`
	AttemptCount    int       `json:"attempt_count"`
	CreatedAt       int64     `json:"created_at_unix_ms"`
	UpdatedAt       int64     `json:"updated_at_unix_ms"`
	TerminalAt      int64     `json:"terminal_at_unix_ms,omitempty"`
}

// AttemptState is how far an attempt is, as read now.
type AttemptState string

// The states of an attempt; only active is not terminal.
const (
	AttemptActive    AttemptState = "active"
	AttemptExpired   AttemptState = "expired"
	AttemptSucceeded AttemptState = "succeeded"
	AttemptFailed    AttemptState = "failed"
)

// AttemptRecord is an attempt; it never holds the fence.
type AttemptRecord struct {
	AttemptID            string       `json:"attempt_id"`
	TaskID               string       `json:"task_id"`
	AttemptNumber        int          `json:"attempt_number"`
	AssigneeAgentID      string       `json:"assignee_agent_id"`
	State                AttemptState `json:"state"`
	LeaseExpiresAt       int64        `json:"lease_expires_at_unix_ms"`
	LeaseActive          bool         `json:"lease_active"`
	ControllerGeneration int64        `json:"attempt_controller_generation"`
	CreatedAt            int64        `json:"created_at_unix_ms"`
	StartedAt            int64        `json:"started_at_unix_ms"`
	TerminalAt           int64        `json:"terminal_at_unix_ms,omitempty"`
	TerminalResult       string       `json:"terminal_result,omitempty"`
	TerminalReason       string       `json:"terminal_reason,omitempty"`
}

// TaskResult answers create_agent_task.
type TaskResult struct {
	Task TaskSummary `json:"task"`
	// GoalRevision is that of the goal that the task was tied to.
	GoalRevision int64 `json:"goal_revision,omitempty"`
	Created      bool  `json:"created"`
	Replayed     bool  `json:"replayed"`
	StateChanged bool  `json:"state_changed"`
}

// TaskView answers read_agent_task.
type TaskView struct {
	Task     TaskSummary     `json:"task"`
	Attempts []AttemptRecord `json:"attempts"` // the newest 20, the newest first
}

// AttemptResult answers start_agent_task_attempt, the only answer with the
// fence. A replay gives the same id and fence again, stale or not.
type AttemptResult struct {
	Task         TaskSummary   `json:"task"`
	Attempt      AttemptRecord `json:"attempt"`
	AttemptFence string        `json:"attempt_fence"`
	Replayed     bool          `json:"replayed"`
	StateChanged bool          `json:"state_changed"`
}

// HeartbeatResult answers heartbeat_agent_task_attempt. There is no replay of a
// heartbeat: StateChanged says whether the lease moved.
type HeartbeatResult struct {
	Task         TaskSummary   `json:"task"`
	Attempt      AttemptRecord `json:"attempt"`
	StateChanged bool          `json:"state_changed"`
}

// CompleteAttemptResult answers complete_agent_task_attempt.
type CompleteAttemptResult struct {
	Task         TaskSummary   `json:"task"`
	Attempt      AttemptRecord `json:"attempt"`
	Replayed     bool          `json:"replayed"`
	StateChanged bool          `json:"state_changed"`
}

// WakeResult answers consume_agent_wake; it never holds the token.
type WakeResult struct {
	WakeID          string `json:"wake_id"`
	TargetAgentID   string `json:"target_agent_id"`
	State           string `json:"state"`
	AlreadyConsumed bool   `json:"already_consumed"`
	ConsumedAt      int64  `json:"consumed_at_unix_ms"`
	StateChanged    bool   `json:"state_changed"`
}

// MessageView is a message of a session.
type MessageView struct {
	MessageID     string   `json:"message_id"`
	SessionID     string   `json:"session_id"`
	Kind          string   `json:"kind"`
	Status        string   `json:"status"` // open | resolved
	Message       string   `json:"message"`
	Tags          []string `json:"tags"`
	Priority      string   `json:"priority"`
	ReplyTo       string   `json:"reply_to,omitempty"`
	AuthorSession string   `json:"author_session_id,omitempty"`
	RequiresAck   bool     `json:"requires_ack"`
	AckedAt       int64    `json:"acked_at_unix_ms,omitempty"`
	CreatedAt     int64    `json:"created_at_unix_ms"`
	ResolvedAt    int64    `json:"resolved_at_unix_ms,omitempty"`
	Resolution    string   `json:"resolution,omitempty"`
}

// PostResult answers post_session_message.
type PostResult struct {
	Message      MessageView `json:"message"`
	Replayed     bool        `json:"replayed"`
	StateChanged bool        `json:"state_changed"`
}

// Assignment is a todo with everything that was said to it.
type Assignment struct {
	Todo    MessageView   `json:"todo"`
	Replies []MessageView `json:"replies"`
	// Fence proves that its holder saw exactly this; it is no permission.
	Fence string `json:"assignment_fence"`
}

// CompleteResult answers complete_session_message.
type CompleteResult struct {
	Todo         MessageView `json:"todo"`
	Answer       MessageView `json:"answer"`
	Replayed     bool        `json:"replayed"`
	StateChanged bool        `json:"state_changed"`
}

// ResolveResult answers resolve_session_message.
type ResolveResult struct {
	Message      MessageView `json:"message"`
	Replayed     bool        `json:"replayed"` // it was resolved with this text before
	StateChanged bool        `json:"state_changed"`
}

// SessionContextResult answers update_session_context.
type SessionContextResult struct {
	Previous        ExecutionContext `json:"previous_execution_context"`
	Context         ExecutionContext `json:"execution_context"`
	ContextRevision int64            `json:"context_revision"`
	Changed         bool             `json:"changed"`
}

// CloseResult answers close_session.
type CloseResult struct {
	SessionID     string `json:"session_id"`
	Lifecycle     string `json:"lifecycle"`
	AlreadyClosed bool   `json:"already_closed"`
	ShellsClosed  int    `json:"persistent_shells_closed"`
	StateChanged  bool   `json:"state_changed"`
}

// SessionView is a workflow session.
type SessionView struct {
	SessionID string           `json:"session_id"`
	Selector  string           `json:"selector"` // ~sN: a name for people, no authority
	Project   string           `json:"project,omitempty"`
	Mode      string           `json:"mode"`      // normal | read_only
	Lifecycle string           `json:"lifecycle"` // active | closed
	Context   ExecutionContext `json:"execution_context"`
}

// Attention is what a session's reader has not acknowledged yet.
type Attention struct {
	SessionID    string        `json:"session_id"`
	RequiresAck  int           `json:"requires_ack"` // how many wait for it
	Messages     []MessageView `json:"messages"`     // the oldest three of them, whole
	OmittedCount int           `json:"omitted_count"`
}

// AckResult says what came of acknowledging messages.
type AckResult struct {
	Accepted int `json:"accepted_count"`
	Ignored  int `json:"ignored_count"` // unknown, not asking for it, or acknowledged before
}

// TaskOutcome is the verdict of finish_coding_task. Blocking is true exactly
// when Status is fail.
type TaskOutcome struct {
	Status          string   `json:"status"` // pass | warn | fail
	Blocking        bool     `json:"blocking"`
	BlockingReasons []string `json:"blocking_reasons"`
	WarningReasons  []string `json:"warning_reasons"`
}

// FinishResult answers finish_coding_task.
type FinishResult struct {
	TaskOutcome TaskOutcome `json:"task_outcome"`
	// Facts are what the verdict was made from.
	Facts FinishFacts `json:"facts"`
}

// FinishFacts are the facts of the store that a verdict is made from.
type FinishFacts struct {
	OpenTodos          int `json:"open_todos"`
	UnackedMessages    int `json:"unacknowledged_messages"`
	OpenQuestions      int `json:"open_questions"` // of the session; a warning only
	UnknownInvocations int `json:"unknown_invocations"`
	RunningJobs        int `json:"running_jobs"`
	FailedAttempts     int `json:"failed_attempts"`
	ExpiredAttempts    int `json:"expired_attempts"`  // a warning only
	UnfinishedSteps    int `json:"unfinished_steps"`  // of the mission's goal; a warning only
	UnknownReads       int `json:"unknown_reads"`     // calls without effect beyond the store; a warning only
	UncheckedOutputs   int `json:"unchecked_outputs"` // declared, and not looked at here; a warning only
}
