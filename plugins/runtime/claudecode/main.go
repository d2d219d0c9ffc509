// Command airlock-runtime-claude-code is the runtime of missions that the
// Claude Code CLI works on. It imports sdk and proto only.
//
// The one idea: the CLI asks twice before each tool call, at a hook and at its
// permission prompt, both over the pipe that it is driven by, and both fail
// closed. The machine (machine.go) is a pure function of what the CLI prints
// and what the host decides; it answers the first gate with the host's
// decision, and lets a call through the second only when the host has journalled
// its dispatch and the input is the one that was decided on.
package main

import "github.com/airlock-host/airlock/sdk/runtime"

func main() { runtime.Serve(newPlugin()) }
