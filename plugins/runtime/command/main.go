// Command airlock-runtime-command is the runtime whose objective is a command
// line: it gives it to a shell in the cell, turns a blocked read at a known
// prompt into a question for a human, and the exit into the result. It imports
// sdk and proto only.
//
// The one idea: nothing is guessed. A question is asked only while a process
// is blocked reading its terminal and the rendered line matches a configured
// pattern; the outcome is the exit of the command itself.
package main

import "github.com/airlock-host/airlock/sdk/runtime"

func main() { runtime.Serve(&command{}) }
