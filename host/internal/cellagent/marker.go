package cellagent

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// A cell may run several sessions, and a process that has detached itself
// (setsid, double fork) is handed to the agent by the kernel without a word on
// where it came from. Where there is no cgroup per session, the limit
// RLIMIT_RTTIME tells: it means nothing to ordinary processes, it is inherited,
// /proc shows it to everybody, and its hard value can only be lowered. Every
// session gets a value of its own, counting down.
//
// A hostile process can lower it. Then it belongs to no session that is known,
// and a Kill of any session takes it along; see attribute.
const markerTop = uint64(1) << 62

func setMarker(v uint64) {
	_ = unix.Setrlimit(unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: v, Max: v}) // attribution gets coarser, no more
}

// readMarker returns a process's marker; 0 = none.
func readMarker(pid int) uint64 {
	var buf [4096]byte
	n, err := readSmall("/proc/"+strconv.Itoa(pid)+"/limits", buf[:])
	if err != nil {
		return 0
	}
	return parseMarker(buf[:n])
}

func parseMarker(b []byte) uint64 {
	const name = "Max realtime timeout"
	i := bytes.Index(b, []byte(name))
	if i < 0 {
		return 0
	}
	f := bytes.Fields(b[i+len(name):])
	if len(f) < 2 {
		return 0
	}
	v, err := strconv.ParseUint(string(f[1]), 10, 64)
	if err != nil { // "unlimited"
		return 0
	}
	return v
}
