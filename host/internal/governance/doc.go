// Package governance is the domain of a task's tool calls: what a proposal, a
// decision, a dispatch and an approval are, which may follow which, and what
// voids them. It is pure: it imports journal for the kinds of events and
// nothing that does I/O. The rules that judge a call are in package gate.
//
// The one idea: a Task changes only by facts (facts.go, apply.go); the
// functions in decide.go look at a Task and its Guard and answer with facts or
// refuse. A verdict belongs to an epoch, is used at most once, and only for
// what was judged: the fingerprint says what that was.
package governance
