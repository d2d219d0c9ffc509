package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// measureHung measures what a driver that hangs costs the missions of another
// one: dispatch … mission.started while the process of a second instance stands
// still with missions waiting for it, against the same with both alive.
func measureHung(b *bench) error {
	other := `
isolation "host-supervisor" "other" {
  config {}
}
`
	hung := strings.Replace(agentBlock("hung", 64, 100, ""), "host-supervisor.host", "host-supervisor.other", 1)
	r, err := startedRig(b, other+agentBlock("cold", 64, 100, "")+hung)
	if err != nil {
		return err
	}
	defer r.clean()
	if err := r.idle(); err != nil {
		return err
	}
	n := b.rounds(30, 6)
	healthy, err := r.starts("healthy", "cold", n)
	if err != nil {
		return err
	}
	pid, err := r.hang("hung")
	if err != nil {
		return err
	}
	beside, err := r.starts("beside", "cold", n)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	if err != nil {
		return err
	}
	b.emit("hung_driver_start_ms", "ms", median(beside), median(healthy), len(beside), spread(beside))
	return nil
}

// starts gives the times from dispatch to mission.started, one at a time.
func (r *rig) starts(name, agent string, n int) ([]float64, error) {
	var took []float64
	for i := range n {
		one, err := r.startOne(fmt.Sprintf("%s-%d", name, i), agent)
		if err != nil {
			return nil, err
		}
		took = append(took, one.seen)
		pause(r.b, 100*time.Millisecond)
	}
	return took, nil
}

// hang stops the process of the driver that an agent uses: the one whose
// standstill keeps the agent's missions from starting, until the host replaces it
// (after two to three seconds).
func (r *rig) hang(agent string) (int, error) {
	for i, pid := range r.plugins()["airlock-isolation-host-supervisor"] {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return 0, err
		}
		id := fmt.Sprint("hang-", i)
		if err := r.dispatch(id, "true", agent); err != nil {
			return 0, err
		}
		ctx, cancel := context.WithTimeout(r.b.ctx, time.Second)
		_, err := r.watch.await(ctx, "mission.started", id)
		cancel()
		if err != nil {
			return pid, r.b.ctx.Err()
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no driver's standstill keeps the missions of %s from starting", agent)
}
