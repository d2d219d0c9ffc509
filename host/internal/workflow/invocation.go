package workflow

// invocation is the stored row of a composite call. It holds no payload: names,
// states and times only.
type invocation struct {
	ID       string        `json:"id"`
	Tool     string        `json:"tool"`
	Nonce    string        `json:"nonce,omitempty"`
	CallID   string        `json:"call_id,omitempty"` // the governed invocation
	Effect   bool          `json:"effect,omitempty"`
	Main     MainOutcome   `json:"main"`
	Intended bool          `json:"intended,omitempty"`
	Settled  bool          `json:"settled,omitempty"`
	Before   *PhaseOutcome `json:"before,omitempty"`
	After    *PhaseOutcome `json:"after,omitempty"`
	Swept    bool          `json:"swept,omitempty"`
	Created  int64         `json:"created_at"`
	Updated  int64         `json:"updated_at"`
}
