package workflow

import "errors"

// Recovery is what a caller can do about an error.
type Recovery string

// The kinds of recovery.
const (
	FixInput   Recovery = "fix_input"   // the request can never work as it is
	Reobserve  Recovery = "reobserve"   // read again, then decide anew
	Reconcile  Recovery = "reconcile"   // find out what happened before anything else
	RetrySame  Recovery = "retry_same"  // the same request with the same key may work later
	UserAction Recovery = "user_action" // only a human can help
	NoAction   Recovery = "no_action"   // it is over; there is nothing to do
)

// Error is why a command was refused. Kind is stable and of [a-z0-9_], Message
// is plain text that holds nothing of the caller's bytes.
type Error struct {
	Kind     string
	Message  string
	Recovery Recovery
	// Revision is the goal's current one, where a goal was found; 0: none.
	Revision int64
	// Unknown: whether the command took effect is not known (the commit was cut
	// off). Otherwise nothing has changed.
	Unknown bool
	// Assignment is the todo as it is now, with a fresh fence, of an
	// assignment_stale. It belongs into a standalone answer and never into a
	// projection.
	Assignment *Assignment

	cause error
}

func (e *Error) Error() string { return e.Kind + ": " + e.Message }

// Unwrap gives the store's error behind it, for the operator; it is not for the
// caller.
func (e *Error) Unwrap() error { return e.cause }

// KindOf gives an error's kind, empty when it is none of this package's.
func KindOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// StateChanged is the tri-state of an error: false, or nil for not known.
func (e *Error) StateChanged() *bool {
	if e.Unknown {
		return nil
	}
	no := false
	return &no
}
