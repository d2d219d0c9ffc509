package driver

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/airlock-host/airlock/plugins/internal/proc"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// median of durations, in milliseconds.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

// BenchmarkCell measures a cell's life over the wire, against a driver process
// of its own: create until the agent listens, stop until nothing runs, destroy.
func BenchmarkCell(b *testing.B) {
	asRoot(b)
	r := newRig(b, 0, nil)
	var create, stop, destroy []time.Duration
	timed := func(to *[]time.Duration, f func() error) {
		begun := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		*to = append(*to, time.Since(begun))
	}
	for i := range b.N {
		spec := r.spec(fmt.Sprintf("b%d-%d", b.N, i))
		spec.Uid = 71500
		spec.Resources = &pluginv1.Resources{Cpu: 2, MemoryBytes: 256 << 20, Pids: 128}
		ref := &pluginv1.CellRef{CellId: spec.GetCellId(), Incarnation: 1}
		timed(&create, func() error {
			_, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: spec})
			return err
		})
		timed(&stop, func() error {
			_, err := r.client.Stop(r.ctx(), &pluginv1.StopRequest{Ref: ref})
			return err
		})
		timed(&destroy, func() error {
			_, err := r.client.Destroy(r.ctx(), &pluginv1.DestroyRequest{Ref: ref})
			return err
		})
	}
	b.ReportMetric(median(create), "create-p50-ms")
	b.ReportMetric(median(stop), "stop-p50-ms")
	b.ReportMetric(median(destroy), "destroy-p50-ms")
	b.ReportMetric(float64(proc.Resident(r.cmd.Process.Pid))/(1<<20), "driver-MiB")
}

// BenchmarkTenAtOnce measures ten creates at once, until the last has answered.
func BenchmarkTenAtOnce(b *testing.B) {
	asRoot(b)
	r := newRig(b, 0, nil)
	var all []time.Duration
	for i := range b.N {
		var specs []*pluginv1.CellSpec
		for j := range 10 {
			specs = append(specs, r.spec(fmt.Sprintf("b%d-%d-%d", b.N, i, j)))
		}
		begun := time.Now()
		var wg sync.WaitGroup
		for _, s := range specs {
			wg.Go(func() {
				if _, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: s}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		all = append(all, time.Since(begun))
		for _, s := range specs {
			r.destroy(s.GetCellId())
		}
	}
	b.ReportMetric(median(all), "ten-p50-ms")
}
