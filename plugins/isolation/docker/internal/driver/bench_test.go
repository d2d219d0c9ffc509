package driver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// median of durations, in milliseconds.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

// BenchmarkCell measures, in turns, a cell from Create until its agent listens,
// and create and start of a bare container of the same image and limits at the
// same engine.
func BenchmarkCell(b *testing.B) {
	r := bareRig(b, nil, nil)
	r.shipped = true
	r.start()
	r.awaitHealth(healthy)
	api := r.api()
	var cell, bare, stop, destroy []time.Duration
	timed := func(to *[]time.Duration, f func() error) {
		begun := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		*to = append(*to, time.Since(begun))
	}
	pids := int64(128)
	for i := range b.N {
		name := fmt.Sprintf("bare-%d-%d", b.N, i)
		timed(&bare, func() error {
			got, err := api.ContainerCreate(r.ctx(), client.ContainerCreateOptions{Name: name,
				Config: &container.Config{Image: dockertest.Busybox, Cmd: []string{"sleep", "3600"}},
				HostConfig: &container.HostConfig{NetworkMode: "none", Resources: container.Resources{
					NanoCPUs: 2e9, Memory: 256 << 20, MemorySwap: 256 << 20, PidsLimit: &pids}},
			})
			if err != nil {
				return err
			}
			_, err = api.ContainerStart(r.ctx(), got.ID, client.ContainerStartOptions{})
			return err
		})
		if _, err := api.ContainerRemove(r.ctx(), name, client.ContainerRemoveOptions{Force: true}); err != nil {
			b.Fatal(err)
		}
		spec := r.spec(fmt.Sprintf("b%d-%d", b.N, i))
		spec.Resources = &pluginv1.Resources{Cpu: 2, MemoryBytes: 256 << 20, Pids: 128}
		ref := &pluginv1.CellRef{CellId: spec.GetCellId(), Incarnation: 1}
		timed(&cell, func() error { return second(r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: spec})) })
		timed(&stop, func() error { return second(r.client.Stop(r.ctx(), &pluginv1.StopRequest{Ref: ref})) })
		timed(&destroy, func() error { return second(r.client.Destroy(r.ctx(), &pluginv1.DestroyRequest{Ref: ref})) })
	}
	b.ReportMetric(median(cell), "create-p50-ms")
	b.ReportMetric(median(bare), "bare-p50-ms")
	b.ReportMetric(median(cell)/median(bare), "ratio")
	b.ReportMetric(median(stop), "stop-p50-ms")
	b.ReportMetric(median(destroy), "destroy-p50-ms")
	b.ReportMetric(float64(resident(b, r.process.Pid))/(1<<20), "driver-MiB")
}

// resident is a process's resident memory in bytes.
func resident(t testing.TB, pid int) int {
	t.Helper()
	var size, pages int
	if _, err := fmt.Sscan(readFile(fmt.Sprintf("/proc/%d/statm", pid)), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * 4096
}
