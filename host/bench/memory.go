package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// measureMemory measures the resident memory of a host that has run 100
// missions and is idle, of its plugins, and of a cell agent with a session.
func measureMemory(b *bench) error {
	r, err := startedRig(b, agentBlock("agent-01", 10, 1000, ""))
	if err != nil {
		return err
	}
	defer r.clean()
	ids := make([]string, b.rounds(100, 20))
	for i := range ids {
		ids[i] = fmt.Sprintf("mission-%03d", i)
	}
	if err := r.dispatchAll(ids, "true", 10); err != nil {
		return err
	}
	if _, err := r.watch.await(b.ctx, "mission.completed", ids...); err != nil {
		return err
	}
	if err := r.idle(); err != nil {
		return err
	}
	pause(b, 3*time.Second)
	host, err := sampleMemory(b, r.cmd.Process.Pid)
	if err != nil {
		return err
	}
	b.note("host_idle_rss_mb: %s", memoryKinds(r.cmd.Process.Pid))
	b.emit("host_idle_rss_mb", "MB", median(host), 0, len(host), spread(host))

	var largest []float64
	for name, pids := range r.plugins() {
		for _, pid := range pids {
			rss, err := sampleMemory(b, pid)
			if err != nil {
				return err
			}
			b.note("plugin_rss_mb: %s has %.1f MB, %s", name, median(rss), memoryKinds(pid))
			if median(rss) > median(largest) {
				largest = rss
			}
		}
	}
	if len(largest) == 0 {
		return errors.New("no plugin process was found")
	}
	b.emit("plugin_rss_mb", "MB", median(largest), 0, len(largest), spread(largest))
	return r.cellMemory()
}

// cellMemory measures the agent of one cell. Should a cell have several
// processes of it, they count together.
func (r *rig) cellMemory() error {
	if err := r.dispatch("sleeper", "echo up; sleep 3600", ""); err != nil {
		return err
	}
	if _, err := r.watch.await(r.b.ctx, "mission.started", "sleeper"); err != nil {
		return err
	}
	pause(r.b, 3*time.Second) // at rest, as the host and its plugins are measured
	pids := r.cellAgents()
	if len(pids) == 0 {
		return errors.New("no cell agent was found")
	}
	var sum []float64
	for _, pid := range pids {
		rss, err := sampleMemory(r.b, pid)
		if err != nil {
			return err
		}
		r.b.note("cell_rss_mb: process %d of the cell's agent has %.1f MB, %s", pid, median(rss), memoryKinds(pid))
		if sum == nil {
			sum = make([]float64, len(rss))
		}
		for i := range rss {
			sum[i] += rss[i]
		}
	}
	r.b.emit("cell_rss_mb", "MB", median(sum), 0, len(sum), spread(sum))
	return nil
}

// sampleMemory reads a process's VmRSS a few times, in MB of 1,024 kB, as
// /proc counts.
func sampleMemory(b *bench, pid int) ([]float64, error) {
	var all []float64
	for range 5 {
		text, err := os.ReadFile(procFile(pid, "status"))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kib, err := strconv.Atoi(strings.Fields(rest)[0])
				if err != nil {
					return nil, err
				}
				all = append(all, float64(kib)/1024)
			}
		}
		pause(b, 200*time.Millisecond)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("process %d has no VmRSS", pid)
	}
	return all, nil
}

// memoryKinds says what resident memory consists of. A plugin's program lies in
// a memfd, which counts as shared memory.
func memoryKinds(pid int) string {
	text, err := os.ReadFile(procFile(pid, "status"))
	if err != nil {
		return err.Error()
	}
	var kinds []string
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.HasPrefix(name, "Rss") {
			kinds = append(kinds, strings.ToLower(name[3:])+" "+strings.Join(strings.Fields(value), " "))
		}
	}
	return strings.Join(kinds, ", ")
}
