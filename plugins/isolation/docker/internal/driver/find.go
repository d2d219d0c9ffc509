package driver

import (
	"context"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/airlock-host/airlock/plugins/isolation/docker/internal/kernel"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// box is a container that is a cell, as the engine showed it.
type box struct {
	note
	id    string
	image string // id of the image that it was made from
	state container.State
}

// inspect asks the engine for a cell's container. NotFound when there is none,
// FailedPrecondition when a stranger has its name.
func (in *instance) inspect(ctx context.Context, cellID string) (*box, error) {
	name := containerName(in.hostID, cellID)
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	got, err := in.engine.client().ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if cerrdefs.IsNotFound(err) {
		return nil, plugin.NotFound("no cell %s", cellID)
	}
	if err != nil {
		return nil, in.engine.fault("look at cell "+cellID, err)
	}
	c := got.Container
	b := &box{id: c.ID, image: c.Image}
	if c.State != nil {
		b.state = *c.State
	}
	var labels map[string]string
	if c.Config != nil {
		labels = c.Config.Labels
	}
	if b.note, err = in.readNote(name, labels); err != nil {
		return nil, plugin.FailedPrecondition("%v", err)
	}
	return b, nil
}

// find finds a cell by its ref. A broken handle is refused when strict is set,
// and otherwise where there is no such cell.
func (in *instance) find(ctx context.Context, ref *pluginv1.CellRef, strict bool) (*box, error) {
	if err := checkID(ref.GetCellId()); err != nil {
		return nil, err
	}
	_, bad := readHandle(ref)
	if bad != nil && strict {
		return nil, bad
	}
	b, err := in.inspect(ctx, ref.GetCellId())
	if isNotFound(err) && bad != nil {
		return nil, bad
	}
	if err != nil {
		return nil, err
	}
	if want := ref.GetIncarnation(); want != 0 && want != b.Incarnation {
		return nil, plugin.FailedPrecondition("cell %s has incarnation %d, not %d", b.CellID, b.Incarnation, want)
	}
	return b, nil
}

// running says whether the container's init runs, frozen or not.
func (b *box) running() bool { return b.state.Running || b.state.Paused || b.state.Restarting }

// cellState is the state in the contract's words.
func (b *box) cellState() pluginv1.CellState {
	switch {
	case b.state.Paused:
		return pluginv1.CellState_CELL_STATE_PAUSED
	case b.running():
		return pluginv1.CellState_CELL_STATE_RUNNING
	}
	return pluginv1.CellState_CELL_STATE_EXITED
}

// stateOf is the same for what a listing shows. A container that was never
// started is one that a Create is at work on, or has left.
func stateOf(s container.ContainerState) pluginv1.CellState {
	switch s {
	case container.StatePaused:
		return pluginv1.CellState_CELL_STATE_PAUSED
	case container.StateRunning, container.StateRestarting:
		return pluginv1.CellState_CELL_STATE_RUNNING
	}
	return pluginv1.CellState_CELL_STATE_EXITED
}

// handle is what finds the cell again when the engine does not answer.
func (b *box) handle() handle {
	h := handle{V: noteVersion, CellID: b.CellID, Incarnation: b.Incarnation, Container: b.id, LinkDir: b.LinkDir}
	if b.running() && b.state.Pid > 0 {
		if p, err := kernel.Identify(b.state.Pid); err == nil {
			h.Init = p
		}
		if g, err := kernel.GroupsOf(b.state.Pid, b.id); err == nil {
			h.Groups = g
		}
	}
	return h
}

// cell is the answer of Create and Recover.
func (b *box) cell() (*pluginv1.Cell, error) {
	ref, err := b.handle().ref()
	if err != nil {
		return nil, err
	}
	facts := proto.CloneOf(b.facts())
	facts.Root += ", made from " + b.image
	return &pluginv1.Cell{Ref: ref, Link: b.link(), StartedAt: b.startedAt(), Facts: facts}, nil
}

func (b *box) startedAt() *timestamppb.Timestamp {
	t, err := time.Parse(time.RFC3339Nano, b.state.StartedAt)
	if err != nil || t.Year() < 2000 { // never started
		return nil
	}
	return timestamppb.New(t)
}
