package main

import (
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/qemutest"
)

const (
	dockerDriver = "github.com/airlock-host/airlock/plugins/isolation/docker/internal/driver"
	vmDriver     = "github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/driver"
)

// noDocker says why there can be no Docker engine here; empty: there can.
func noDocker() string {
	if os.Geteuid() != 0 {
		return "a Docker engine of its own needs root"
	}
	for _, program := range []string{"dockerd", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			return "there is no " + program + " (make test-deps)"
		}
	}
	return ""
}

// measureDocker measures a cell of the docker driver beside a bare container of
// the same image and limits, at an engine of its own.
func measureDocker(b *bench) error {
	const figure = "start_docker_ratio"
	if why := noDocker(); why != "" {
		b.skip(figure, why)
		return nil
	}
	n := b.rounds(30, 4)
	m, err := b.packageBench(dockerDriver, "^BenchmarkCell$", n)
	if err != nil {
		return err
	}
	cell, err := m.get("BenchmarkCell", "create-p50-ms")
	if err != nil {
		return err
	}
	bare, err := m.get("BenchmarkCell", "bare-p50-ms")
	if err != nil {
		return err
	}
	b.note("%s: Create until its agent listens %.1f ms, a bare container created and started %.1f ms", figure, cell, bare)
	b.emit(figure, "ratio", cell/bare, 0, n, 0)
	return nil
}

// measureVM measures a cell of the qemu-kvm driver beside bare QEMU with the
// same kernel up to its init, and the restore of a checkpoint.
func measureVM(b *bench) error {
	if _, err := qemutest.Build(); err != nil {
		b.skip("start_vm_ratio", err.Error())
		b.skip("vm_restore_p50_ms", err.Error())
		return nil
	}
	n := b.rounds(10, 2)
	if b.wanted("start_vm_ratio") {
		m, err := b.packageBench(vmDriver, "^BenchmarkCreate$/^(bare|boot)$", n)
		if err != nil {
			return err
		}
		bare, err := m.get("BenchmarkCreate/bare", "ms-median")
		if err != nil {
			return err
		}
		boot, err := m.get("BenchmarkCreate/boot", "ms-median")
		if err != nil {
			return err
		}
		b.note("start_vm_ratio: Create until the agent answers on its link %.0f ms, bare QEMU up to its init %.0f ms", boot, bare)
		b.emit("start_vm_ratio", "ratio", boot/bare, 0, n, 0)
	}
	if b.wanted("vm_restore_p50_ms") {
		m, err := b.packageBench(vmDriver, "^BenchmarkCreate$/^restore$", n)
		if err != nil {
			return err
		}
		restore, err := m.get("BenchmarkCreate/restore", "ms-median")
		if err != nil {
			return err
		}
		b.emit("vm_restore_p50_ms", "ms", restore, 0, n, 0)
	}
	return nil
}

// measureWarmDocker measures dispatch to mission.started with a warm container.
func measureWarmDocker(b *bench) error {
	const figure = "start_docker_warm_p50_ms"
	if why := noDocker(); why != "" {
		b.skip(figure, why)
		return nil
	}
	engine, err := dockertest.New()
	if err != nil {
		return err
	}
	defer func() {
		if err := engine.Close(); err != nil {
			b.note("the Docker engine was not ended: %v", err)
		}
	}()
	if err := engine.Import(); err != nil {
		return err
	}
	return warmStarts(b, figure, fmt.Sprintf(`
isolation "docker" "container" {
  config {
    endpoint = %q
    image    = %q
    pull     = "never"
  }
}
`, engine.Endpoint(), dockertest.Busybox)+agentIn("docker.container"))
}

// measureWarmVM measures the same with a VM that has been booted.
func measureWarmVM(b *bench) error {
	const figure = "start_vm_warm_p50_ms"
	image, err := qemutest.Build()
	if err != nil {
		b.skip(figure, err.Error())
		return nil
	}
	return warmStarts(b, figure, fmt.Sprintf(`
isolation "qemu-kvm" "vm" {
  config {
    image = %q
    qemu  = %q
  }
}
`, image.Dir, image.QEMU)+agentIn("qemu-kvm.vm"))
}

// agentIn is an agent with two warm cells of an isolation.
func agentIn(isolation string) string {
	return fmt.Sprintf(`
uid_range = [271000, 272999]
agent "warm" {
  isolation = isolation.%s
  runtime   = runtime.command.shell
  slots     = 2
  warm      = 2
  resources {
    cpu    = 1
    memory = "256MiB"
    pids   = 64
  }
}
`, isolation)
}

// warmStarts starts missions one at a time in cells that are ready.
func warmStarts(b *bench, figure, blocks string) error {
	r, err := startedRig(b, blocks)
	if err != nil {
		return err
	}
	defer r.clean()
	var starts, bare []float64
	n := b.rounds(15, 3)
	for i := range n + 1 {
		if err := r.warmed(2); err != nil {
			return err
		}
		took, err := shells(1)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("warm-%d", i)
		began := time.Now()
		if err := r.dispatch(id, "true", "warm"); err != nil {
			return err
		}
		started, err := r.watch.await(b.ctx, "mission.started", id)
		if err != nil {
			return err
		}
		if _, err := r.watch.await(b.ctx, "mission.completed", id); err != nil {
			return err
		}
		if i > 0 {
			starts, bare = append(starts, ms(last(started).Sub(began))), append(bare, ms(took))
		}
	}
	b.emit(figure, "ms", median(starts), median(bare), len(starts), spread(starts))
	return nil
}

// warmed waits until an agent "warm" has its warm cells and nothing runs.
func (r *rig) warmed(cells int) error {
	err := until(r.b.ctx, "the warm cells are there", func() bool {
		var view struct {
			Agents []struct {
				Name                  string
				Running, Queued, Warm int
			} `json:"agents"`
		}
		if r.call(r.b.ctx, "GET", "/api/v1/agents", nil, &view) != nil {
			return false
		}
		for _, a := range view.Agents {
			if a.Running+a.Queued > 0 || a.Name == "warm" && a.Warm != cells {
				return false
			}
		}
		return len(view.Agents) > 0
	})
	if err == nil {
		pause(r.b, 100*time.Millisecond)
	}
	return err
}
