package daemon

import "golang.org/x/sys/unix"

// noCoreFiles keeps the memory of the host out of files: it has the credentials
// of the gateways. What it starts inherits this; a cell has a limit of its own.
func noCoreFiles() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }
