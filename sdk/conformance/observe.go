package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func observeChecks() []isolationCheck {
	return []isolationCheck{
		{"inspect-consistent", "", inspectConsistent},
		{"pause-resume", "pause", pauseResume},
		{"inspect-after-plugin-kill", "", inspectAfterKill},
		{"stats", "", stats},
		{"stats-units", "", statsUnits},
	}
}

func (p *place) inspect(ctx context.Context) (*pluginv1.CellStatus, error) {
	r, err := p.kit.client.Inspect(ctx, &pluginv1.InspectRequest{Ref: p.cell.GetRef()})
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	return r.GetStatus(), nil
}

// expect checks a cell's state.
func (p *place) expect(ctx context.Context, state pluginv1.CellState) error {
	st, err := p.inspect(ctx)
	if err == nil && st.GetState() != state {
		err = fmt.Errorf("inspect says %v, not %v", st.GetState(), state)
	}
	return err
}

func inspectConsistent(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	st, err := p.inspect(ctx)
	if err != nil {
		return err
	}
	switch {
	case st.GetState() != pluginv1.CellState_CELL_STATE_RUNNING:
		return fmt.Errorf("inspect of a new cell says %v", st.GetState())
	case !st.GetStartedAt().AsTime().Equal(p.cell.GetStartedAt().AsTime()):
		return fmt.Errorf("inspect says started at %v, create said %v", st.GetStartedAt().AsTime(), p.cell.GetStartedAt().AsTime())
	case fmt.Sprint(st.GetLimits()) != fmt.Sprint(p.cell.GetFacts().GetLimits()):
		return fmt.Errorf("inspect says limits %v, the facts %v", st.GetLimits(), p.cell.GetFacts().GetLimits())
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	if st, err = p.inspect(ctx); err != nil {
		return err
	}
	if st.GetState() != pluginv1.CellState_CELL_STATE_EXITED || st.GetExitReason() != pluginv1.ExitReason_EXIT_REASON_KILLED || st.GetDetail() == "" {
		return fmt.Errorf("inspect of a stopped cell says %v", st)
	}
	_, err = k.client.Inspect(ctx, &pluginv1.InspectRequest{Ref: &pluginv1.CellRef{CellId: newID(), Incarnation: 1}})
	return want(err, "inspect of an unknown cell", codes.NotFound)
}

func pauseResume(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	names, err := p.escapees(ctx)
	if err != nil {
		return err
	}
	for range 2 { // both are idempotent, and can be repeated
		for range 2 {
			if _, err := k.client.Pause(ctx, &pluginv1.PauseRequest{Ref: p.cell.GetRef()}); err != nil {
				return fmt.Errorf("pause: %w", err)
			}
		}
		if err := p.still(ctx, names...); err != nil {
			return err
		}
		if err := p.expect(ctx, pluginv1.CellState_CELL_STATE_PAUSED); err != nil {
			return err
		}
		quick, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		err := p.conn.Ping(quick)
		cancel()
		if err == nil {
			return errors.New("the cell agent of a paused cell answers")
		}
		for range 2 {
			if _, err := k.client.Resume(ctx, &pluginv1.ResumeRequest{Ref: p.cell.GetRef()}); err != nil {
				return fmt.Errorf("resume: %w", err)
			}
		}
		for _, n := range names {
			if err := p.awaitBeat(ctx, n); err != nil {
				return err
			}
		}
		if err := p.expect(ctx, pluginv1.CellState_CELL_STATE_RUNNING); err != nil {
			return err
		}
	}
	return nil
}

// stats reads measurements while the cell works, and sees the stream end with
// the cell.
func stats(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.start(ctx, "while :; do :; done"); err != nil {
		return err
	}
	stream, err := k.client.Stats(ctx, &pluginv1.StatsRequest{Ref: p.cell.GetRef(), Interval: durationpb.New(100 * time.Millisecond)})
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	last := first
	for last.GetAt().AsTime().Sub(first.GetAt().AsTime()) < 400*time.Millisecond {
		if last, err = stream.Recv(); err != nil {
			return fmt.Errorf("stats: %w", err)
		}
	}
	wall := last.GetAt().AsTime().Sub(first.GetAt().AsTime())
	used := time.Duration(last.GetCpuNs() - first.GetCpuNs())
	switch {
	case last.CpuNs == nil && last.MemoryBytes == nil && last.Pids == nil:
		return errors.New("stats measures nothing")
	case last.CpuNs != nil && (used <= 0 || used > 4*wall):
		return fmt.Errorf("one busy process used %v of CPU time in %v", used, wall)
	case last.MemoryBytes != nil && (last.GetMemoryBytes() < 100<<10 || last.GetMemoryBytes() > 1<<30):
		return fmt.Errorf("a shell and the agent use %d bytes", last.GetMemoryBytes())
	case last.Pids != nil && (last.GetPids() < 2 || last.GetPids() > 100):
		return fmt.Errorf("a shell and the agent are %d processes and threads", last.GetPids())
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	for {
		if _, err := stream.Recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("stats does not end with the cell: %w", err)
		}
	}
}

// inspectAfterKill: a new process of the plugin sees what is, not what it
// remembers.
func inspectAfterKill(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	before, err := p.inspect(ctx)
	if err != nil {
		return err
	}
	if err := k.restart(ctx); err != nil {
		return err
	}
	after, err := p.inspect(ctx)
	if err != nil {
		return err
	}
	if after.GetState() != before.GetState() || !after.GetStartedAt().AsTime().Equal(before.GetStartedAt().AsTime()) {
		return fmt.Errorf("after a restart of the plugin inspect says %v, before it %v", after, before)
	}
	return nil
}

// statsUnits: CPU time is in nanoseconds and never goes back, memory in bytes,
// and every message has its time.
func statsUnits(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	stream, err := k.client.Stats(ctx, &pluginv1.StatsRequest{Ref: p.cell.GetRef(), Interval: durationpb.New(100 * time.Millisecond)})
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	var last *pluginv1.StatsResponse
	for range 4 {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		switch age := time.Since(m.GetAt().AsTime()); {
		case m.GetAt() == nil || age < -time.Minute || age > time.Minute:
			return fmt.Errorf("a measurement is from %v", m.GetAt().AsTime())
		case m.GetCpuNs() > uint64(24*time.Hour):
			return fmt.Errorf("a new cell has used %v of CPU time", time.Duration(m.GetCpuNs()))
		case last != nil && m.GetCpuNs() < last.GetCpuNs():
			return fmt.Errorf("CPU time goes back from %d to %d", last.GetCpuNs(), m.GetCpuNs())
		case last != nil && !m.GetAt().AsTime().After(last.GetAt().AsTime()):
			return fmt.Errorf("time goes back from %v to %v", last.GetAt().AsTime(), m.GetAt().AsTime())
		case last != nil && ((m.CpuNs == nil) != (last.CpuNs == nil) || (m.MemoryBytes == nil) != (last.MemoryBytes == nil)):
			return fmt.Errorf("a field is measured now and then: %v, %v", last, m)
		}
		last = m
	}
	return nil
}
