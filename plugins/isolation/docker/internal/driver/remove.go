package driver

import (
	"context"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// remove removes a container by id or name, whatever it does, with the unnamed
// volumes that its image asked for. One that is gone is a success.
func (in *instance) remove(ctx context.Context, id string) error {
	for {
		_, err := in.engine.client().ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, cerrdefs.IsNotFound(err):
			return nil
		case cerrdefs.IsConflict(err): // its removal is under way
			if err := rest(ctx); err != nil {
				return err
			}
		default:
			return in.engine.fault("remove container "+id, err)
		}
	}
}

// Destroy removes a cell and every trace of it.
func (d *Driver) Destroy(ctx context.Context, req *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	ref := req.GetRef()
	if err := checkID(ref.GetCellId()); err != nil {
		return nil, err
	}
	release, err := d.cells.take(ctx, ref.GetCellId())
	if err != nil {
		return nil, err
	}
	defer release()
	b, err := in.find(ctx, ref, false)
	if isNotFound(err) {
		return &pluginv1.DestroyResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if b.running() {
		if !req.GetForce() {
			return nil, plugin.FailedPrecondition("cell %s runs; stop it first, or destroy it with force", b.CellID)
		}
		// Ended and seen to be, before its name is given free.
		if _, err := d.end(ctx, in, b, 0); err != nil {
			return nil, err
		}
	}
	if err := in.remove(ctx, b.id); err != nil {
		return nil, err
	}
	if err := removeLink(b.LinkDir); err != nil {
		return nil, plugin.Unavailable("%v", err)
	}
	return &pluginv1.DestroyResponse{}, nil
}
