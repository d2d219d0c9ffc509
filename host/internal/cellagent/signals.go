package cellagent

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	firstHidden = 32 // the C library's own signals, which Go's os/signal leaves alone
	lastHidden  = 64
	sigIgn      = 1
)

// sigaction is what rt_sigaction reads and writes: handler first, the rest
// differs between architectures and is zero here.
type sigaction [4]uintptr

// unignore gives every signal that Go does not manage its default action when
// an ancestor had it ignored: the workload would inherit that.
func unignore() {
	for sig := uintptr(firstHidden); sig <= lastHidden; sig++ {
		var now, def sigaction
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
		if errno == 0 && now[0] == sigIgn {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&def)), 0, 8, 0, 0)
		}
	}
}
