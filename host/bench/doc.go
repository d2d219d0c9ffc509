// Command bench measures Airlock: one JSON object a line on stdout for each
// figure, notes for people on stderr. It runs the built programs as processes
// wherever a figure is about a host, and the packages in this process where it
// is about one of them (the store, the journal, the executor's delivery, the
// plugin catalog). It may import everything; nothing imports it.
//
// The one idea: every figure that can have a baseline gets it in the same run,
// interleaved with what is measured, because the machine's own speed changes
// from one minute to the next. docs/benchmarks.md says what each figure means.
package main
