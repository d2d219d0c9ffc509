package driver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/airlock-host/airlock/plugins/internal/proc"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/guest"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// BenchmarkCreate is Create to a cell agent that answers on its link, by a boot
// and from a template, beside bare QEMU with the same kernel up to its init,
// and a restore of a checkpoint. The figures are medians; MB is what one cell's
// processes have resident.
func BenchmarkCreate(b *testing.B) {
	needVM(b)
	b.Run("bare", func(b *testing.B) {
		times(b, func(int) time.Duration { return bareBoot(b) })
	})
	for name, template := range map[string]bool{"boot": false, "template": true} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, map[string]any{"template": template})
			r.vm("first", nil) // makes the template
			r.destroy("first")
			var resident uint64
			times(b, func(i int) time.Duration {
				id := fmt.Sprintf("b%d-%d", b.N, i)
				s := r.spec(id)
				s.Uid, s.Gid = 71234, 71234
				begun := time.Now()
				v := &vmCell{r: r, spec: s, cell: r.create(s)}
				v.dial()
				took := time.Since(begun)
				h := handleOf(b, v.cell.GetRef())
				resident = proc.Resident(h.VM.PID) + proc.Resident(h.Helper.PID)
				r.destroy(id)
				return took
			})
			b.ReportMetric(float64(resident)/(1<<20), "MB")
		})
	}
	b.Run("restore", func(b *testing.B) {
		r := newRig(b, nil)
		times(b, func(i int) time.Duration { return restore(b, r, fmt.Sprintf("r%d-%d", b.N, i)) })
	})
}

// times runs something N times and reports the median.
func times(b *testing.B, run func(int) time.Duration) {
	all := make([]time.Duration, b.N)
	for i := range all {
		all[i] = run(i)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "ms-max")
}

// restore saves a cell, and takes the time from Restore to an open link.
func restore(b *testing.B, r *rig, id string) time.Duration {
	v := r.vm(id, nil)
	got, err := r.client.Checkpoint(r.ctx(), &pluginv1.CheckpointRequest{Ref: v.cell.GetRef(), CheckpointId: id})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := r.client.Destroy(r.ctx(), &pluginv1.DestroyRequest{Ref: v.cell.GetRef()}); err != nil { // with force the checkpoint would go
		b.Fatal(err)
	}
	v.spec.Incarnation, v.spec.LinkSecret = 2, bytes.Repeat([]byte("n"), secretSize)
	begun := time.Now()
	restored, err := r.client.Restore(r.ctx(), &pluginv1.RestoreRequest{Spec: v.spec, Checkpoint: got.GetCheckpoint()})
	if err != nil {
		b.Fatal(err)
	}
	v.cell = restored.GetCell()
	v.dial()
	took := time.Since(begun)
	r.destroy(id)
	return took
}

// bareBoot is QEMU as a person would start it, up to an answer of the init.
func bareBoot(b *testing.B) time.Duration {
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	dir := b.TempDir()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	e, err := findEngine(ctx, Config{QEMU: built.image.QEMU})
	must(err)
	k, err := loadKernel(filepath.Join(built.image.Dir, "vmlinux"))
	must(err)
	root, err := loadRoot(built.image.Dir)
	must(err)
	agent, err := os.Open(built.agent)
	must(err)
	defer agent.Close()
	ramdisk, err := (&initrds{}).open(dir, k, agent, built.sum)
	must(err)
	defer ramdisk.Close()
	s := size{Memory: 128 << 20, CPUs: 1, Disk: 64 << 20}
	upper := filepath.Join(dir, "upper")
	must((&blanks{}).make(ctx, dir, upper, s.Disk))
	p := parts{initrd: ramdisk}
	var open closers
	defer open.close()
	for path, to := range map[string]**os.File{k.file: &p.kernel, root.file: &p.root, upper: &p.upper} {
		mode := os.O_RDONLY // QEMU wants each as it is going to use it
		if path == upper {
			mode = os.O_RDWR
		}
		f, err := os.OpenFile(path, mode, 0)
		must(err)
		open.add(f)
		*to = f
	}
	for name, to := range map[string]**os.File{ctlSocket: &p.ctl, qmpSocket: &p.qmp} {
		l, err := listen(filepath.Join(dir, name))
		must(err)
		open.add(l)
		*to = l
	}
	line := commandLine(e, choice{accel: accelTCG}, s, "bare", p)
	cmd := exec.Command(e.program, line.args...)
	cmd.ExtraFiles, cmd.Stderr = line.files, os.Stderr
	begun := time.Now()
	must(cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	c, err := dial(ctx, dir, ctlSocket)
	must(err)
	ctl := guest.New(c)
	defer ctl.Close()
	must(ctl.Ping(ctx))
	return time.Since(begun)
}
