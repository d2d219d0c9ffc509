package workflow

// Phase is a phase of a composite call beside its main call.
type Phase string

// The phases.
const (
	Before Phase = "before"
	After  Phase = "after_success"
)

// ExecutionState is what is known of something that was to be done.
type ExecutionState string

// The execution states. Only a main call can be started.
const (
	Succeeded    ExecutionState = "succeeded"
	Failed       ExecutionState = "failed"
	Started      ExecutionState = "started"
	Unknown      ExecutionState = "outcome_unknown"
	NeverStarted ExecutionState = "definitely_not_started"
)

// MainOutcome is how a main call ended. A nil StateChanged is unknown.
type MainOutcome struct {
	State        ExecutionState `json:"execution_state"`
	StateChanged *bool          `json:"state_changed"`
}

// PhaseOutcome is what came of a phase.
type PhaseOutcome struct {
	Kind         string         `json:"kind"` // goal_progress, …
	State        ExecutionState `json:"execution_state"`
	StateChanged *bool          `json:"state_changed"`
	Replayed     bool           `json:"replayed"`
	Revision     int64          `json:"revision,omitempty"` // of a goal
	ErrorKind    string         `json:"error_kind,omitempty"`
}

// NewCall describes a composite call, or any main call that is to leave a row.
type NewCall struct {
	Tool string // after gateway resolution
	// Nonce is a name that the caller chose (1 to 128 characters), to find the
	// call by when its answer was lost; empty: none. It is no idempotency key.
	Nonce      string
	BeforeKind string // empty: no such phase
	AfterKind  string
	// Effect: the main call reaches beyond this host's store. If its outcome
	// stays unknown, work cannot be closed.
	Effect bool
}

// Call is a composite call while it runs. Its fields are not to be changed;
// one goroutine uses it at a time.
type Call struct {
	ID     string // wc_inv_…
	owner  Owner
	first  invocation // as it was opened, for readers
	row    invocation
	stored bool // the row is in the store
}

// CallOutcome answers get_invocation_outcome.
type CallOutcome struct {
	InvocationID string        `json:"invocation_id"`
	Tool         string        `json:"tool"`
	Nonce        string        `json:"nonce,omitempty"`
	Main         MainOutcome   `json:"main"`
	Before       *PhaseOutcome `json:"before,omitempty"`
	After        *PhaseOutcome `json:"after_success,omitempty"`
	// InProgress: this host is still at it; what is said may change.
	InProgress bool `json:"in_progress"`
	// Swept: a restart of the host cut it off.
	Swept     bool  `json:"swept"`
	CreatedAt int64 `json:"created_at_unix_ms"`
	UpdatedAt int64 `json:"updated_at_unix_ms"`
	// SameNonce counts the calls with this nonce; the newest is answered.
	SameNonce int `json:"same_nonce,omitempty"`
}

// GetOutcome asks what came of a call: by its id or by its nonce, exactly one
// (get_invocation_outcome).
type GetOutcome struct {
	InvocationID *string `wc:"invocation_id" json:"invocation_id,omitempty"`
	Nonce        *string `wc:"nonce" json:"nonce,omitempty" doc:"1 to 128 characters"`
}
