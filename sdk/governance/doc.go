// Package governance is for agents that run outside of any cell, in a program
// of their own: it puts their tool calls through a host's gate over the harness
// API. It imports the standard library only, so that a program takes nothing
// else with it.
//
// The one idea: a call runs only between a dispatch that the host has admitted
// and a completion that says how it ended. Attach makes a function such a call:
// it proposes, waits for whoever must decide, dispatches, runs the function
// under a context that ends when the host asks for it, and completes. Without a
// host there is no call: every doubt is an error before the function runs.
package governance
