package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	shared "github.com/airlock-host/airlock/host/internal/figure"
)

// bench is one run of the program.
type bench struct {
	ctx   context.Context
	bin   string // the programs
	dir   string // everything temporary
	short bool
	out   io.Writer
	only  map[string]bool
}

// rounds is how often something is done: n, or fewer with -short.
func (b *bench) rounds(n, short int) int {
	if b.short {
		return short
	}
	return n
}

// emit prints a figure if it is wanted. A baseline of 0 is none.
func (b *bench) emit(figure, unit string, value, baseline float64, n int, spread float64) {
	if !b.wanted(figure) {
		return
	}
	if err := shared.Of(figure, unit, value, baseline, n, spread).Write(b.out); err != nil {
		b.note("%v", err)
	}
}

// note is for people.
func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "# "+format+"\n", args...)
}

// describeMachine notes what the figures depend on.
func (b *bench) describeMachine() {
	var fs unix.Statfs_t
	kind := "unknown"
	if unix.Statfs(b.dir, &fs) == nil {
		kind = fmt.Sprintf("%#x", fs.Type)
		if fs.Type == unix.TMPFS_MAGIC {
			b.note("WARNING: temporary files are on a tmpfs, where a sync costs nothing: use -dir")
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	b.note("%d cpus, kernel %s, file system type %s, load %s, %s", runtime.NumCPU(),
		strings.TrimSpace(string(release)), kind, strings.TrimSpace(string(load)), runtime.Version())
}

// The arithmetic is shared with `airlock bench`.
func percentile(samples []float64, p float64) float64 { return shared.Percentile(samples, p) }
func median(samples []float64) float64                { return shared.Median(samples) }
func spread(samples []float64) float64                { return shared.Spread(samples) }
func sliced(samples []float64, p float64) []float64   { return shared.Sliced(samples, p) }
func ms(d time.Duration) float64                      { return shared.MS(d) }
