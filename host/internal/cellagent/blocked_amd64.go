package cellagent

import "golang.org/x/sys/unix"

const (
	sysSelect = unix.SYS_SELECT
	sysPoll   = unix.SYS_POLL
)
