// Package gate judges tool calls: policy, risk, intent bindings, budget and
// approval rules over one call, in one pure function. It imports the governance
// domain, journal and config, and does no I/O; policy plugins are asked by
// whoever has the verdict, and come in through Tighten.
//
// The one idea: every stage runs at every evaluation, every finding is kept,
// and the most severe one that is not waived is the outcome (rulings 16,
// governance G1). What cannot be evaluated is a finding too; on_failure says
// how severe it is.
//
// Order of an evaluation:
//
//  1. The arguments are checked and made compact. Arguments that are no good
//     (Canonical) are a BLOCK whatever on_failure says: there is nothing to
//     judge.
//  2. Policy and approve rules look at the arguments as proposed.
//  3. The rewrites of the policy rules that matched are merged into the
//     arguments, in config order, once.
//  4. If that changed anything, all policy and approve rules look at the result
//     too; their findings are added, none is taken back, and no rewrite is
//     applied again. Thus a deny rule holds for what was asked and for what
//     would run.
//  5. The policy's default counts when no policy or approve rule matches. (Where
//     there was a rewrite, one did.)
//  6. Risk, intent bindings and budget look at what would run.
package gate
