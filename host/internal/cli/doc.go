// Package cli is the operator's command line: it talks to a running host over
// its REST routes and sockets, by the operator socket where it can. What works
// without a host imports what it needs: journal and heads (to verify what was
// exported), config and plugins (the lock file); nothing else of the host.
//
// The one idea: a command is a request and a way to show its answer. --json
// shows the answer as the host gave it; every failure is one line that says
// what to do, and an exit code that scripts may rely on (exit.go).
package cli
