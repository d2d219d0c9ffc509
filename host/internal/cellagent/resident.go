package cellagent

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseText unmaps the agent's own program text and constants once it has
// started. The kernel maps 64 KiB around every page that is touched, so after
// the start nearly all of the program is resident, and an idle agent needs
// about a third of it. What is needed again comes back from the page cache.
func releaseText() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasSuffix(strings.TrimSpace(line), exe) || (f[1] != "r-xp" && f[1] != "r--p") {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		lo, err1 := strconv.ParseUint(from, 16, 64)
		hi, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil || hi <= lo {
			continue
		}
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(lo), uintptr(hi-lo), unix.MADV_DONTNEED)
	}
}
