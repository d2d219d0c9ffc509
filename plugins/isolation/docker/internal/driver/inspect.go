package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/airlock-host/airlock/plugins/isolation/docker/internal/kernel"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Recover finds a cell again.
func (d *Driver) Recover(ctx context.Context, req *pluginv1.RecoverRequest) (*pluginv1.RecoverResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	b, err := in.find(ctx, req.GetRef(), true)
	if err != nil {
		return nil, err
	}
	cell, err := b.cell()
	if err != nil {
		return nil, err
	}
	return &pluginv1.RecoverResponse{Cell: cell, Status: b.status()}, nil
}

// Inspect says how a cell is.
func (d *Driver) Inspect(ctx context.Context, req *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	b, err := in.find(ctx, req.GetRef(), true)
	if err != nil {
		return nil, err
	}
	return &pluginv1.InspectResponse{Status: b.status()}, nil
}

func (b *box) status() *pluginv1.CellStatus {
	st := &pluginv1.CellStatus{State: b.cellState(), StartedAt: b.startedAt(), Limits: b.facts().GetLimits()}
	if st.State == pluginv1.CellState_CELL_STATE_EXITED {
		st.ExitReason, st.Detail = b.why()
	} else if b.state.OOMKilled || b.oomKills() > 0 {
		st.Detail = "processes of the cell were killed for memory"
	}
	return st
}

// oomKills counts in a cell that runs; the engine says it only at the end.
func (b *box) oomKills() uint64 {
	if b.state.Pid <= 0 {
		return 0
	}
	g, err := kernel.GroupsOf(b.state.Pid, b.id)
	if err != nil {
		return 0
	}
	return g.OOMKills()
}

// unknownExit is the code that the engine gives a container whose end it has not
// seen; the cell agent itself never ends with it.
const unknownExit = 255

// why says why a cell has ended, from what the engine has kept.
func (b *box) why() (pluginv1.ExitReason, string) {
	code := b.state.ExitCode
	at := ""
	if t, err := time.Parse(time.RFC3339Nano, b.state.FinishedAt); err == nil && t.Year() > 2000 {
		at = " at " + t.UTC().Format(time.RFC3339)
	}
	boot, err := kernel.BootID()
	switch {
	case b.startedAt() == nil:
		return pluginv1.ExitReason_EXIT_REASON_LOST, "it was never started: its start was interrupted"
	case err == nil && boot != b.Boot:
		return pluginv1.ExitReason_EXIT_REASON_LOST, "the machine was started anew since it was made"
	case b.state.Dead:
		return pluginv1.ExitReason_EXIT_REASON_LOST, "the engine could not remove it whole: " + b.state.Error
	case b.state.OOMKilled && code == 128+int(syscall.SIGKILL):
		return pluginv1.ExitReason_EXIT_REASON_OOM, "the kernel killed the cell agent for memory" + at
	case code > 128 && code < 128+65:
		sig := syscall.Signal(code - 128)
		return pluginv1.ExitReason_EXIT_REASON_KILLED, fmt.Sprintf("the cell agent was ended by signal %d (%v) from outside%s", int(sig), sig, at)
	case b.state.Error != "":
		return pluginv1.ExitReason_EXIT_REASON_LOST, b.state.Error
	case code == unknownExit:
		return pluginv1.ExitReason_EXIT_REASON_LOST, "it ended while the engine was away, which does not know how" + at
	}
	return pluginv1.ExitReason_EXIT_REASON_EXITED, fmt.Sprintf("the cell agent ended with code %d%s", code, at)
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
	ctx, cancel := context.WithTimeout(stream.Context(), callTime)
	defer cancel()
	got, err := in.engine.client().ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelOwner+"="+in.hostID, labelHost+"="+host),
	})
	if err != nil {
		return in.engine.fault("list cells", err)
	}
	for _, c := range got.Items {
		n, err := in.nameAndNote(c)
		if err != nil {
			d.log.Warn("a container looks like a cell and is none", "container", c.ID, "error", err)
			continue
		}
		ref, err := handle{V: noteVersion, CellID: n.CellID, Incarnation: n.Incarnation, Container: c.ID}.ref()
		if err != nil {
			return err
		}
		if err := stream.Send(&pluginv1.ListResponse{Ref: ref, State: stateOf(c.State), Labels: n.Labels}); err != nil {
			return err
		}
	}
	return nil
}

func (in *instance) nameAndNote(c container.Summary) (note, error) {
	if len(c.Names) == 0 || len(c.Names[0]) < 2 {
		return note{}, errors.New("it has no name")
	}
	return in.readNote(c.Names[0][1:], c.Labels)
}

// minInterval is what the contract allows for Stats.
const minInterval = 100 * time.Millisecond

// Stats sends measurements until the cell ends.
func (d *Driver) Stats(req *pluginv1.StatsRequest, stream grpc.ServerStreamingServer[pluginv1.StatsResponse]) error {
	in, err := d.configured()
	if err != nil {
		return err
	}
	b, err := in.find(stream.Context(), req.GetRef(), true)
	if err != nil {
		return err
	}
	tick := time.NewTicker(max(req.GetInterval().AsDuration(), minInterval))
	defer tick.Stop()
	for {
		m, err := d.measure(stream.Context(), in, b.id)
		if err != nil || m == nil {
			return err
		}
		if err := stream.Send(m); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// measure asks the engine once; nil = the cell has ended.
func (d *Driver) measure(ctx context.Context, in *instance, id string) (*pluginv1.StatsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := in.engine.client().ContainerStats(ctx, id, client.ContainerStatsOptions{})
	if cerrdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, in.engine.fault("measure a cell", err)
	}
	defer r.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		return nil, plugin.Unavailable("measure a cell: %v", err)
	}
	if s.Read.IsZero() || s.PidsStats.Current == 0 && s.CPUStats.CPUUsage.TotalUsage == 0 {
		return nil, nil
	}
	out := &pluginv1.StatsResponse{At: timestamppb.New(s.Read), CpuNs: &s.CPUStats.CPUUsage.TotalUsage}
	if m := s.MemoryStats; m.Usage > 0 {
		// Without what the kernel can take back at once, as docker stats does.
		cache := m.Stats["total_inactive_file"]
		if v2, ok := m.Stats["inactive_file"]; ok && cache == 0 {
			cache = v2
		}
		used := m.Usage - min(cache, m.Usage)
		out.MemoryBytes = &used
	}
	if s.PidsStats.Current > 0 {
		out.Pids = &s.PidsStats.Current
	}
	return out, nil
}
