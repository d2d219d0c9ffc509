// Package figure is how measurements are told: one JSON line each, with median
// and spread. It imports nothing of the host; host/bench and `airlock bench` use
// it, so that their lines compare.
package figure

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Result is one line of the output.
type Result struct {
	Figure   string   `json:"figure"`
	Value    float64  `json:"value"`
	Unit     string   `json:"unit"`
	Baseline *float64 `json:"baseline,omitempty"` // in the same unit, of the same run
	Ratio    *float64 `json:"ratio,omitempty"`    // value to baseline
	N        int      `json:"n"`                  // samples behind the value
	Spread   float64  `json:"spread"`             // (p75 - p25) / median of samples, or of the value over slices of the run
}

// Write prints a result on one line.
func (r Result) Write(w io.Writer) error {
	text, err := json.Marshal(r)
	if err != nil { // a NaN: nothing was measured
		return fmt.Errorf("%s cannot be printed: %w", r.Figure, err)
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// Of makes a result. A baseline of 0 is none.
func Of(name, unit string, value, baseline float64, n int, spread float64) Result {
	r := Result{Figure: name, Value: Round(value), Unit: unit, N: n, Spread: Round(spread)}
	if baseline > 0 {
		base, ratio := Round(baseline), Round(value/baseline)
		r.Baseline, r.Ratio = &base, &ratio
	}
	return r
}

// Round keeps four significant digits or so.
func Round(v float64) float64 {
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

// Percentile of samples, p from 0 to 1; 0 without samples. It sorts a copy.
func Percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[min(int(p*float64(len(s))), len(s)-1)]
}

// Median of samples.
func Median(samples []float64) float64 { return Percentile(samples, 0.5) }

// Spread is the interquartile range relative to the median.
func Spread(samples []float64) float64 {
	m := Median(samples)
	if m == 0 {
		return 0
	}
	return (Percentile(samples, 0.75) - Percentile(samples, 0.25)) / m
}

// Sliced is the percentile of each of ten slices of a run, for the spread of a
// figure that is not a median.
func Sliced(samples []float64, p float64) []float64 {
	var out []float64
	size := max(len(samples)/10, 1)
	for part := range slices.Chunk(samples, size) {
		if len(part) == size {
			out = append(out, Percentile(part, p))
		}
	}
	return out
}

// MS is a duration in milliseconds.
func MS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
