package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// metrics are what a package's own benchmark has reported, by the benchmark's
// name and the metric's unit.
type metrics map[string]map[string]float64

// packageBench runs benchmarks of a package of this module. They measure what
// only code inside of the package can reach.
func (b *bench) packageBench(pkg, pattern string, times int) (metrics, error) {
	cmd := exec.CommandContext(b.ctx, "go", "test", "-run", "^$", "-bench", pattern, "-benchtime", fmt.Sprintf("%dx", times), "-timeout", "20m", pkg)
	cmd.Env = append(os.Environ(), "AIRLOCK_BIN="+b.bin, "TMPDIR="+filepath.Dir(b.dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s %s: %w: %s", pattern, pkg, err, out[max(0, len(out)-2000):])
	}
	m := metrics{}
	for line := range bytes.Lines(out) {
		f := strings.Fields(string(line))
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name, _, _ := strings.Cut(f[0], "-") // the number of processors; a name has no -
		if m[name] == nil {
			m[name] = map[string]float64{}
		}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				m[name][f[i+1]] = v
			}
		}
	}
	return m, nil
}

// get is one metric; an error if the benchmark did not report it, because it
// was skipped, for example.
func (m metrics) get(name, unit string) (float64, error) {
	v, ok := m[name][unit]
	if !ok {
		return 0, fmt.Errorf("%s has not reported %s", name, unit)
	}
	return v, nil
}

// skip says why a figure is not measured on this machine.
func (b *bench) skip(figure, why string) {
	if b.wanted(figure) {
		b.note("skipped %s: %s", figure, why)
	}
}
