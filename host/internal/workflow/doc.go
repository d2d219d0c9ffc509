// Package workflow is the domain behind the agent-facing tools: goals with
// steps, agent tasks with attempts and their leases, wakes, workflow sessions
// with messages and todos, and the record of composite calls. It imports the
// standard library only; rows are kept by whoever implements Store.
//
// The one idea: an id selects, a fence or a token proves, a revision or an
// assignment fence says how fresh the caller's view is, and none of them stands
// in for another. Each method is one command: its checks run in a fixed order
// against the rows as they are inside of one write transaction, in which its
// changes and its idempotency row are written too. Nothing changes by itself:
// a read never moves a lease, a step or a todo.
package workflow
