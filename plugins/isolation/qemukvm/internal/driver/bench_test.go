package driver

import (
	"fmt"
	"testing"

	"github.com/airlock-host/airlock/plugins/internal/proc"
)

// BenchmarkCreate is Create to a cell agent that answers on its link, by a boot
// and from a template; MB is what one cell's processes have resident.
func BenchmarkCreate(b *testing.B) {
	needVM(b)
	for _, template := range []bool{false, true} {
		b.Run(fmt.Sprintf("template=%v", template), func(b *testing.B) {
			r := newRig(b, map[string]any{"template": template})
			r.vm("first", nil) // makes the template
			r.destroy("first")
			var resident uint64
			b.ResetTimer()
			for i := range b.N {
				id := fmt.Sprintf("b%d", i)
				v := r.vm(id, nil)
				b.StopTimer()
				h := handleOf(b, v.cell.GetRef())
				resident = proc.Resident(h.VM.PID) + proc.Resident(h.Helper.PID)
				r.destroy(id)
				b.StartTimer()
			}
			b.ReportMetric(float64(resident)/(1<<20), "MB")
		})
	}
}
