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

// What an invocation waits for, in Row.State.
const (
	callOpen     = "open"     // main was not dispatched yet
	callIntended = "intended" // main may run
	callStarted  = "started"  // it was handed off
	callUnknown  = "unknown"  // nobody knows
)

func (v *invocation) row() Row {
	r := Row{Table: TableInvocations, ID: v.ID, Ref: v.Nonce}
	switch {
	case v.Intended && !v.Settled:
		r.State = callIntended
	case !v.Settled:
		r.State = callOpen
	case v.Main.State == Started:
		r.State = callStarted
	case v.Main.State == Unknown:
		r.State = callUnknown
	}
	return r
}

// blocks says that work cannot be closed over a call of which nobody knows: one
// that reached beyond the store, through the gate.
func (v *invocation) blocks() bool { return v.Effect && v.CallID != "" }

func (v *invocation) set(p Phase, o PhaseOutcome) {
	to := &v.Before
	if p == After {
		to = &v.After
	}
	if *to != nil {
		o.Kind = (*to).Kind
	}
	*to = &o
}

func (v *invocation) outcome() CallOutcome {
	return CallOutcome{InvocationID: v.ID, Tool: v.Tool, Nonce: v.Nonce, Main: v.Main, Before: v.Before, After: v.After,
		Swept: v.Swept, CreatedAt: v.Created, UpdatedAt: v.Updated}
}

// swept is what a restart of the host makes of a call that it cut off: whoever
// had not intended to run main has not, and of the others nobody knows.
func (v *invocation) swept(now int64) {
	if v.Intended {
		v.Main = MainOutcome{State: Unknown}
	}
	v.Settled, v.Swept, v.Updated = true, true, max(now, v.Updated)
}
