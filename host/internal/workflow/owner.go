package workflow

import "crypto/sha256"

// Owner is who rows belong to: the mission (and task) whose token or cell link
// the caller came with. What another owner has does not exist for it.
type Owner string

// Digest is how the owner is stored. It is not reversible, so a row alone does
// not name its mission.
func (o Owner) Digest() [32]byte {
	return sha256.Sum256([]byte("airlock.workflow.owner.v1\x00task\x00" + string(o)))
}

// Caller is on whose behalf a method works. The kernel fills it in after it has
// checked scopes; nothing in it comes from the arguments of a call.
type Caller struct {
	Owner Owner
	// Session is the recorder: the session whose voice the caller has been
	// authorized to use (see Service.Recorder). It is the author of messages.
	// Empty: none.
	Session string
	// Invocation is the governed invocation that the call itself is; it does not
	// keep its own finish_coding_task from being answered. Empty: none.
	Invocation string
	// Call is the composite call that the method is a phase of; nil: none. What
	// came of the phase is then recorded in the same transaction as its effect.
	Call *Call
	// Phase is which one; only with Call.
	Phase Phase
}
