// Package claudecli runs the real Claude Code CLI without a host: a process
// with pipes, both of its gates asked, and every call allowed unless a test
// says otherwise. It is for tests, and for the other side of the benchmarks. It
// imports the standard library only.
//
// The one idea: it is the least that a host has to do, so that what Airlock
// adds to it can be seen.
package claudecli
