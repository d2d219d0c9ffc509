package workflow

// MissionContext is what an agent must know to use the tools (rulings 36).
type MissionContext struct {
	Project    string `json:"project"` // the mission's workspace id
	GoalID     string `json:"goal_id"`
	Revision   int64  `json:"goal_revision"`
	SessionID  string `json:"session_id"`
	AgentID    string `json:"agent_id"`
	EndpointID string `json:"endpoint_id"`
	// Generation is the endpoint's: it grows each time the agent's carrier
	// changes (a start, a restart of the host).
	Generation        int64  `json:"controller_generation"`
	TaskID            string `json:"task_id"`
	AttemptID         string `json:"attempt_id"`
	AttemptGeneration int64  `json:"attempt_controller_generation"`
	LeaseExpiresAt    int64  `json:"lease_expires_at_unix_ms"`
	// Proofs are handed over once a generation. They are given again, the same
	// ones, only until one of them has been used: an answer may have been lost.
	Proofs *Proofs `json:"proofs,omitempty"`
	// Wake is the wake that waits to be consumed, without its token.
	Wake *WakeNotice `json:"wake,omitempty"`
}

// Proofs are secrets: they belong into this one answer and nowhere else.
type Proofs struct {
	AttemptFence string `json:"attempt_fence"`
	// ConsumeToken is of Wake; empty when there is none.
	ConsumeToken string `json:"consume_token,omitempty"`
}

// String keeps proofs out of logs.
func (*Proofs) String() string { return "proofs" }

// GoString likewise.
func (*Proofs) GoString() string { return "proofs" }

// WakeNotice is a wake without its token.
type WakeNotice struct {
	WakeID string `json:"wake_id"`
	Reason string `json:"reason"` // host_restart | resumed
	State  string `json:"state"`
	At     int64  `json:"created_at_unix_ms"`
}

// ResumePrompt is what a resumed agent is told in its prompt.
type ResumePrompt struct {
	Context MissionContext
	// Text is the notice in words. It names the wake and has no proof in it.
	Text string
}

// String keeps the token out of logs.
func (ResumePrompt) String() string { return "resume prompt" }

// GoString likewise.
func (ResumePrompt) GoString() string { return "resume prompt" }
