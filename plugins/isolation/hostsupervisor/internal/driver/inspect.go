package driver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/airlock-host/airlock/plugins/internal/proc"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Inspect says how a cell is.
func (d *Driver) Inspect(ctx context.Context, req *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	r, err := d.find(in, req.GetRef(), true)
	if err != nil {
		return nil, err
	}
	st, err := d.status(ctx, in, r)
	if err != nil {
		return nil, err
	}
	return &pluginv1.InspectResponse{Status: st}, nil
}

// status asks the kernel. A cell whose agent is dead is called ended only when
// nothing of it is left to run (fault F3).
func (d *Driver) status(ctx context.Context, in *instance, r *record) (*pluginv1.CellStatus, error) {
	state, err := d.state(r)
	if err != nil || state != pluginv1.CellState_CELL_STATE_EXITED {
		return running(r, state), err
	}
	// It may only not have been started yet.
	release, err := d.cells.take(ctx, r.CellID)
	if err != nil {
		return nil, err
	}
	defer release()
	ref := &pluginv1.CellRef{CellId: r.CellID}
	if r.Process.PID != 0 {
		if ref, err = r.ref(); err != nil {
			return nil, err
		}
	}
	if r, err = d.find(in, ref, false); err != nil {
		return nil, err
	}
	return d.statusLocked(ctx, in, r)
}

// statusLocked is status with the cell's lock held.
func (d *Driver) statusLocked(ctx context.Context, in *instance, r *record) (*pluginv1.CellStatus, error) {
	state, err := d.state(r)
	if err != nil || state != pluginv1.CellState_CELL_STATE_EXITED {
		return running(r, state), err
	}
	if _, err := d.end(ctx, r); err != nil {
		return nil, err
	}
	st := running(r, state)
	st.ExitReason, st.Detail = d.why(ctx, in, r)
	return st, nil
}

// running is the status of a cell without anything about its end.
func running(r *record, state pluginv1.CellState) *pluginv1.CellStatus {
	st := &pluginv1.CellStatus{State: state, Limits: r.facts().GetLimits()}
	if !r.StartedAt.IsZero() {
		st.StartedAt = timestamppb.New(r.StartedAt)
	}
	if r.Groups != nil && r.Groups.OOMKills() > 0 {
		st.Detail = "processes of the cell were killed for memory"
	}
	return st
}

// state is RUNNING or PAUSED while the cell agent lives, or while anything
// is in the group of a cell whose agent is not known.
func (d *Driver) state(r *record) (pluginv1.CellState, error) {
	alive, err := proc.Alive(r.Process)
	if err != nil {
		return 0, err
	}
	if r.Process.PID == 0 && r.Groups.Tracks() {
		if alive, err = r.Groups.Populated(); err != nil {
			return 0, err
		}
	}
	if !alive {
		return pluginv1.CellState_CELL_STATE_EXITED, nil
	}
	if paused, err := d.paused(r); err != nil || paused {
		return pluginv1.CellState_CELL_STATE_PAUSED, err
	}
	return pluginv1.CellState_CELL_STATE_RUNNING, nil
}

// why says why a cell has ended.
func (d *Driver) why(ctx context.Context, in *instance, r *record) (pluginv1.ExitReason, string) {
	d.awaitEnd(ctx, r.key())
	if fresh, err := in.load(r.CellID); err == nil && fresh.key() == r.key() && fresh.End != nil {
		r.End = fresh.End
	}
	switch {
	case r.End != nil:
		return r.End.Reason, r.End.Detail
	case r.Process.PID == 0 || !r.Ready:
		return pluginv1.ExitReason_EXIT_REASON_LOST, "its start was interrupted"
	}
	if boot, err := proc.BootID(); err == nil && boot != r.Process.BootID {
		return pluginv1.ExitReason_EXIT_REASON_LOST, "the machine was started anew"
	}
	return reason(r, 0, false, false)
}

// List sends every cell of a host.
func (d *Driver) List(req *pluginv1.ListRequest, stream grpc.ServerStreamingServer[pluginv1.ListResponse]) error {
	in, err := d.configured()
	if err != nil {
		return err
	}
	host := req.GetHostId()
	if host == "" {
		host = in.hostID
	}
	records, err := in.known()
	if err != nil {
		return err
	}
	groups, err := in.groups.Names()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, id := range append(records, groups...) {
		if seen[id] || checkID(id) != nil {
			continue
		}
		seen[id] = true
		r, err := d.find(in, &pluginv1.CellRef{CellId: id}, false)
		if err != nil || r.HostID != host {
			continue // gone meanwhile, or another host's
		}
		st, err := d.status(stream.Context(), in, r)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		ref, err := r.ref()
		if err != nil {
			return err
		}
		if err := stream.Send(&pluginv1.ListResponse{Ref: ref, State: st.GetState(), Labels: r.Labels}); err != nil {
			return err
		}
	}
	return nil
}

// minInterval is what the contract allows for Stats.
const minInterval = 100 * time.Millisecond

// Stats sends measurements until the cell ends.
func (d *Driver) Stats(req *pluginv1.StatsRequest, stream grpc.ServerStreamingServer[pluginv1.StatsResponse]) error {
	in, err := d.configured()
	if err != nil {
		return err
	}
	r, err := d.find(in, req.GetRef(), true)
	if err != nil {
		return err
	}
	tick := time.NewTicker(max(req.GetInterval().AsDuration(), minInterval))
	defer tick.Stop()
	for {
		state, err := d.state(r)
		if err != nil || state == pluginv1.CellState_CELL_STATE_EXITED {
			return err
		}
		if err := stream.Send(d.measure(r)); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// measure reads the group's counters; where there is none it counts processes.
func (d *Driver) measure(r *record) *pluginv1.StatsResponse {
	out := &pluginv1.StatsResponse{At: timestamppb.New(d.now())}
	if r.Groups != nil {
		u := r.Groups.Usage()
		out.CpuNs, out.MemoryBytes, out.Pids = u.CPUNanos, u.Memory, u.Pids
	}
	if out.Pids != nil && out.MemoryBytes != nil {
		return out
	}
	below, err := proc.Descendants(r.Process.PID)
	if err != nil || r.Process.PID == 0 {
		return out
	}
	var threads, resident uint64
	for _, pid := range append(below, r.Process.PID) {
		threads += uint64(proc.Threads(pid))
		resident += proc.Resident(pid)
	}
	if out.Pids == nil {
		out.Pids = &threads
	}
	if out.MemoryBytes == nil {
		out.MemoryBytes = &resident
	}
	return out
}
