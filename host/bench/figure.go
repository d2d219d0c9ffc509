package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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

// result is one line of the output.
type result struct {
	Figure   string   `json:"figure"`
	Value    float64  `json:"value"`
	Unit     string   `json:"unit"`
	Baseline *float64 `json:"baseline,omitempty"` // in the same unit, of the same run
	Ratio    *float64 `json:"ratio,omitempty"`    // value to baseline
	N        int      `json:"n"`                  // samples behind the value
	Spread   float64  `json:"spread"`             // (p75 - p25) / median of samples, or of the value over slices of the run
}

// emit prints a figure if it is wanted. A baseline of 0 is none.
func (b *bench) emit(figure, unit string, value, baseline float64, n int, spread float64) {
	if !b.wanted(figure) {
		return
	}
	r := result{Figure: figure, Value: round(value), Unit: unit, N: n, Spread: round(spread)}
	if baseline > 0 {
		base, ratio := round(baseline), round(value/baseline)
		r.Baseline, r.Ratio = &base, &ratio
	}
	text, err := json.Marshal(r)
	if err != nil { // a NaN: nothing was measured
		b.note("%s cannot be printed: %v", figure, err)
		return
	}
	fmt.Fprintf(b.out, "%s\n", text)
}

// round keeps four significant digits or so.
func round(v float64) float64 {
	scale := 10000.0
	switch {
	case v >= 1000 || v <= -1000:
		scale = 1
	case v >= 10 || v <= -10:
		scale = 100
	}
	if v < 0 {
		return float64(int64(v*scale-0.5)) / scale
	}
	return float64(int64(v*scale+0.5)) / scale
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

// percentile of samples, p from 0 to 1; 0 without samples. It sorts a copy.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[min(int(p*float64(len(s))), len(s)-1)]
}

func median(samples []float64) float64 { return percentile(samples, 0.5) }

// spread is the interquartile range relative to the median.
func spread(samples []float64) float64 {
	m := median(samples)
	if m == 0 {
		return 0
	}
	return (percentile(samples, 0.75) - percentile(samples, 0.25)) / m
}

// sliced is the percentile of each of ten slices of a run, for the spread of a
// figure that is not a median.
func sliced(samples []float64, p float64) []float64 {
	var out []float64
	size := max(len(samples)/10, 1)
	for part := range slices.Chunk(samples, size) {
		if len(part) == size {
			out = append(out, percentile(part, p))
		}
	}
	return out
}

// ms is a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
