package journal

// NewHead is a head that a commit made, and how it is signed.
type NewHead struct {
	Head
	// Ended: the task's ended event is in the chain, so hardly anything follows.
	Ended bool `json:"ended,omitempty"`
}
