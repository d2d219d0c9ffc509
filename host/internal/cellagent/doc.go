// Package cellagent is what runs inside of a cell: the cell agent, the program
// airlock-cell. It starts the workload's processes, holds their output until
// the host has it, keeps their exit status, and kills everything that they
// started. It may import sdk/cell, proto/, creack/pty, x/sys and the standard
// library, nothing else of the host: it must stay under 6 MB resident, and it
// outlives the host that placed it.
//
// The one idea: the host may go away and come back at any time, so nothing
// here depends on a connection. State lives in Agent and its sessions; a
// connection (link) is only a view of it, replaced by the next one. And nothing
// that one session does may delay another one, or a Kill: every session has
// goroutines of its own, and the control loop never waits for any.
//
// Who is trusted: the host, over the link. The workload is not: it has a uid of
// its own where the cell allows that, no capabilities, no_new_privs, and it
// reaches the agent only through the ask socket.
package cellagent
