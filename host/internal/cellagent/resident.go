package cellagent

import (
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// slack keeps the agent small: once nothing has happened for a while, it gives
// back what it does not need. An agent that is idle is not woken by it.
type slack struct {
	events atomic.Uint64
	kick   chan struct{}
}

func newSlack() *slack { return &slack{kick: make(chan struct{}, 1)} }

const slackTime = time.Second

// active says that something has happened.
func (s *slack) active() {
	s.events.Add(1)
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *slack) run(ctx context.Context) {
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	for {
		select {
		case <-s.kick:
		case <-ctx.Done():
			return
		}
		for n := s.events.Load() - 1; n != s.events.Load(); {
			n = s.events.Load()
			quiet.Reset(slackTime)
			select {
			case <-quiet.C:
			case <-ctx.Done():
				return
			}
		}
		debug.FreeOSMemory()
		releaseText()
	}
}

// releaseText unmaps the agent's own program text and constants. The kernel
// maps 64 KiB around every page that is touched, so before long nearly all of
// the program is resident, and an idle agent needs a small part of it. What is
// needed again comes back from the page cache.
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
