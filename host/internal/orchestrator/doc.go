// Package orchestrator speaks the side of `aiwg serve` in the executor
// contract, strictly: closed shapes, one socket per executor, missions that are
// recorded only after the forward was answered, events for unknown missions
// dropped without a word. `airlock dev` embeds it, so that the host always runs
// over the real wire, and the contract tests of package executor run against
// it.
//
// It imports nothing of the host. The one idea: do what serve does, faults
// included, and write down every breach of the contract (Violations) that serve
// would have swallowed.
package orchestrator
