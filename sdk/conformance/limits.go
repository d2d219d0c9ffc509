package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func limitChecks() []isolationCheck {
	return []isolationCheck{
		{"limits-memory", "", limitMemory},
		{"limits-cpu", "", limitCPU},
		{"limits-pids", "", limitPids},
		{"limits-disk", "", limitDisk},
	}
}

// limited makes a cell with limits, and ends the check when the driver says
// that it does not enforce the one in question.
func (k *kit) limited(ctx context.Context, name string, r *pluginv1.Resources) (*place, error) {
	p, err := k.create(ctx, func(s *pluginv1.CellSpec) { s.Resources = r })
	if err != nil {
		return nil, err
	}
	how := p.cell.GetFacts().GetLimits()[name]
	if why, ok := strings.CutPrefix(how, "not-enforced:"); ok {
		return nil, notDeclared("%s", why)
	}
	if !strings.HasPrefix(how, "enforced-by:") {
		return nil, fmt.Errorf("facts.limits[%s] is %q", name, how)
	}
	return p, nil
}

// limitMemory fills memory; the workload dies and the cell agent does not.
func limitMemory(ctx context.Context, k *kit) error {
	p, err := k.limited(ctx, "memory", &pluginv1.Resources{MemoryBytes: 96 << 20})
	if err != nil {
		return err
	}
	// tail keeps what comes from a pipe.
	s, err := p.start(ctx, "mkfifo f; head -c 400000000 /dev/zero > f & exec tail -c 400000000 f > /dev/null")
	if err != nil {
		return err
	}
	out, exit, err := s.finish(ctx)
	if err != nil {
		return err
	}
	if exit.GetSignal() != 9 || !exit.GetOom() {
		return fmt.Errorf("a process that takes 400 MB of 96 MiB ends with code %d, signal %d, oom %v, and says %q",
			exit.GetCode(), exit.GetSignal(), exit.GetOom(), out)
	}
	_, err = p.sh(ctx, "true")
	return err
}

// limitCPU keeps four processes busy and measures what they get.
func limitCPU(ctx context.Context, k *kit) error {
	const share = 0.2
	p, err := k.limited(ctx, "cpu", &pluginv1.Resources{Cpu: share})
	if err != nil {
		return err
	}
	if _, err := p.start(ctx, "for i in 1 2 3 4; do (while :; do :; done) & done; wait"); err != nil {
		return err
	}
	stream, err := k.client.Stats(ctx, &pluginv1.StatsRequest{Ref: p.cell.GetRef(), Interval: durationpb.New(250 * time.Millisecond)})
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		if first.CpuNs == nil {
			return notDeclared("stats does not measure CPU time")
		}
		wall := m.GetAt().AsTime().Sub(first.GetAt().AsTime())
		if wall < 2*time.Second {
			continue
		}
		used := time.Duration(m.GetCpuNs() - first.GetCpuNs())
		if got := used.Seconds() / wall.Seconds(); got > 1.5*share {
			return fmt.Errorf("a cell limited to %.2f CPUs used %.2f", share, got)
		}
		return nil
	}
}

// limitPids starts more processes than are allowed.
func limitPids(ctx context.Context, k *kit) error {
	const limit = 48
	p, err := k.limited(ctx, "pids", &pluginv1.Resources{Pids: limit})
	if err != nil {
		return err
	}
	// A shell whose fork fails ends, some only after several tries.
	s, err := p.start(ctx, "n=0; while [ $n -lt 200 ]; do n=$((n+1)); echo $n >> count; sleep 60 & done")
	if err != nil {
		return err
	}
	started := func() int { return strings.Count(p.beatAt("count"), "\n") }
	err = until(ctx, "the processes to reach the limit", func() bool {
		return started() > 10 && p.still(ctx, "count") == nil
	})
	if err != nil {
		return err
	}
	if n := started(); n > limit {
		return fmt.Errorf("%d processes were started in a cell limited to %d", n, limit)
	}
	return p.conn.Kill(ctx, s.id, 0, 0)
}

func limitDisk(ctx context.Context, k *kit) error {
	const limit = 16 << 20
	p, err := k.limited(ctx, "disk", &pluginv1.Resources{DiskBytes: limit})
	if err != nil {
		return err
	}
	if out, err := p.sh(ctx, "head -c 64000000 /dev/zero > big"); err == nil {
		return fmt.Errorf("64 MB were written in a cell limited to %d bytes: %s", limit, out)
	}
	return nil
}
