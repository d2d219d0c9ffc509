package plugins

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkStart measures an instance from nothing to configured: check and
// copy of the executable, launch, handshake, Describe, Validate, Configure and
// the first health message. It reports p50 in ms, and the RSS of an idle
// plugin.
func BenchmarkStart(b *testing.B) {
	r := newBenchRig(b)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		i := r.add(specs("isolation.good.a")[0])
		<-i.settled
		took = append(took, time.Since(began))
		if s := i.status(); s.State != Healthy {
			b.Fatalf("%+v", s)
		}
		r.remove(context.Background(), i)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}

// BenchmarkRelaunch measures from the kill of a process to the first health
// message of the next.
func BenchmarkRelaunch(b *testing.B) {
	r := newBenchRig(b)
	r.deadlines.MaxRestarts, r.deadlines.RestartWindow = 1<<30, time.Nanosecond
	r.start("isolation.good.a")
	var took []time.Duration
	for b.Loop() {
		old := r.instances[0].process()
		began := time.Now()
		old.kill("")
		r.await("isolation.good.a", "recovery", func(s Status) bool { return s.State == Healthy && s.PID != old.pid })
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(rssKB(b, r.status("isolation.good.a").PID))/1024, "rss-MB")
}

// BenchmarkCall measures a unary call through the handle.
func BenchmarkCall(b *testing.B) {
	r := newBenchRig(b)
	r.start("isolation.good.a")
	client, err := r.Isolation("isolation.good.a")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_, _ = client.Inspect(context.Background(), nil)
	}
}

func newBenchRig(b *testing.B) *rig {
	r := newRig(b)
	r.install("driver", "airlock-isolation-good")
	return r
}

func rssKB(b *testing.B, pid int) int {
	b.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return kb
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
