package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Cells serves the whole of Isolation but for Checkpoint and Restore. Embed it
// in a driver, set Plan, and call Open from Configure.
type Cells struct {
	isolation.Unimplemented

	// Plan says how to start the agent of a cell. The spec was checked and the
	// agent's program verified. Called without a lock, for many cells at once.
	Plan func(context.Context, *Place) (*Plan, error)

	mu     sync.Mutex
	store  store // dir empty: not open
	hostID string
	locks  map[string]*cellLock
}

// Place is a cell that is about to be made.
type Place struct {
	// Spec is what the host asks for.
	Spec *pluginv1.CellSpec
	// PublicDir is an empty directory that every user can enter. The agent's
	// --public-dir must be one where the workload sees the machine's files.
	PublicDir string
}

// SecretFD is the descriptor from which the agent reads the link secret, once:
// pass it as --secret-fd.
const SecretFD = "3"

// Plan is how a cell is started.
type Plan struct {
	// Argv is the program and its arguments; it becomes the cell agent or
	// starts it. Descriptor 3 is the secret.
	Argv []string
	// Env is its whole environment.
	Env []string
	// Facts are what is true inside. Link, Network, Limits and Confinement
	// must be set; the rest may be left to Cells.
	Facts *pluginv1.CellFacts
	// Proof is how the end of the cell is known when everything below the
	// agent is gone: PID_NAMESPACE_GONE where the agent is init of a pid
	// namespace, SUBREAPER_SWEEP where it is not.
	Proof pluginv1.ProofMethod
}

// Open begins to serve with the records below stateDir; hostID is the host's,
// for List. It may be called again.
func (c *Cells) Open(stateDir, hostID string) error {
	if !filepath.IsAbs(stateDir) {
		return plugin.InvalidArgument("state_dir %q is not absolute", stateDir)
	}
	dir := filepath.Join(stateDir, "cells")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return plugin.Unavailable("state directory: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store, c.hostID = store{dir}, hostID
	return nil
}

func (c *Cells) opened() (store, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.store.dir == "" {
		return store{}, "", plugin.FailedPrecondition("the instance is not configured yet")
	}
	return c.store, c.hostID, nil
}

// with runs do with a cell's record, under the cell's lock. The record is
// NotFound when there is none of this incarnation.
func (c *Cells) with(ctx context.Context, ref *pluginv1.CellRef, do func(store, *record) error) error {
	if err := isolation.CheckID(ref.GetCellId()); err != nil {
		return err
	}
	if err := checkHandle(ref); err != nil {
		return err
	}
	s, _, err := c.opened()
	if err != nil {
		return err
	}
	release, err := c.lock(ctx, ref.GetCellId())
	if err != nil {
		return err
	}
	defer release()
	r, err := s.load(ref.GetCellId())
	if err != nil {
		return err
	}
	if r.Incarnation != ref.GetIncarnation() || !r.Ready {
		return plugin.NotFound("no cell %s with incarnation %d", ref.GetCellId(), ref.GetIncarnation())
	}
	return do(s, r)
}

// Recover finds a cell by its record.
func (c *Cells) Recover(ctx context.Context, req *pluginv1.RecoverRequest) (reply *pluginv1.RecoverResponse, err error) {
	err = c.with(ctx, req.GetRef(), func(_ store, r *record) error {
		reply = &pluginv1.RecoverResponse{Cell: r.cell(), Status: r.status()}
		return nil
	})
	return reply, err
}

// Inspect looks at a cell's processes.
func (c *Cells) Inspect(ctx context.Context, req *pluginv1.InspectRequest) (reply *pluginv1.InspectResponse, err error) {
	err = c.with(ctx, req.GetRef(), func(_ store, r *record) error {
		reply = &pluginv1.InspectResponse{Status: r.status()}
		return nil
	})
	return reply, err
}

// Pause freezes every process of a cell with SIGSTOP.
func (c *Cells) Pause(ctx context.Context, req *pluginv1.PauseRequest) (*pluginv1.PauseResponse, error) {
	return &pluginv1.PauseResponse{}, c.with(ctx, req.GetRef(), func(_ store, r *record) error {
		if !r.alive() {
			return plugin.FailedPrecondition("cell %s has ended", r.CellID)
		}
		return r.Root.StopTree(ctx)
	})
}

// Resume thaws them.
func (c *Cells) Resume(ctx context.Context, req *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error) {
	return &pluginv1.ResumeResponse{}, c.with(ctx, req.GetRef(), func(_ store, r *record) error {
		if !r.alive() {
			return plugin.FailedPrecondition("cell %s has ended", r.CellID)
		}
		return r.Root.ContinueTree()
	})
}

// Stop asks the agent to end, waits for the grace, and kills what is left.
func (c *Cells) Stop(ctx context.Context, req *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
	var proof *pluginv1.Proof
	err := c.with(ctx, req.GetRef(), func(s store, r *record) error {
		if r.Ended == nil {
			if r.alive() && !r.Stopping {
				r.Stopping = true
				if err := s.save(r); err != nil {
					return err
				}
			}
			if err := r.stop(ctx, req.GetGrace().AsDuration()); err != nil {
				return err
			}
			if err := s.save(r); err != nil {
				return err
			}
		}
		proof = &pluginv1.Proof{
			Method: pluginv1.ProofMethod(pluginv1.ProofMethod_value[r.Ended.Method]),
			Detail: r.Ended.Detail, At: timestamppb.New(r.Ended.At),
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &pluginv1.StopResponse{Proof: proof}, nil
}

// Destroy removes a cell and its record.
func (c *Cells) Destroy(ctx context.Context, req *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
	ref := req.GetRef()
	if err := isolation.CheckID(ref.GetCellId()); err != nil {
		return nil, err
	}
	s, _, err := c.opened()
	if err != nil {
		return nil, err
	}
	release, err := c.lock(ctx, ref.GetCellId())
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := s.load(ref.GetCellId())
	switch {
	case status.Code(err) == codes.NotFound:
		return &pluginv1.DestroyResponse{}, nil
	case err != nil:
		return nil, err
	case ref.GetIncarnation() != 0 && ref.GetIncarnation() != r.Incarnation:
		return &pluginv1.DestroyResponse{}, nil // that one is gone
	case r.alive() && !req.GetForce():
		return nil, plugin.FailedPrecondition("cell %s is running", r.CellID)
	}
	if err := r.stop(ctx, 0); err != nil {
		return nil, err
	}
	return &pluginv1.DestroyResponse{}, s.remove(r)
}

// List sends every cell of the host.
func (c *Cells) List(req *pluginv1.ListRequest, stream grpc.ServerStreamingServer[pluginv1.ListResponse]) error {
	s, host, err := c.opened()
	if err != nil {
		return err
	}
	if req.GetHostId() != "" {
		host = req.GetHostId()
	}
	ids, err := s.ids()
	if err != nil {
		return err
	}
	for _, id := range ids {
		release, err := c.lock(stream.Context(), id)
		if err != nil {
			return err
		}
		r, err := s.load(id)
		release()
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		if r.HostID != host {
			continue
		}
		if err := stream.Send(&pluginv1.ListResponse{Ref: r.ref(), State: r.state(), Labels: r.Labels}); err != nil {
			return err
		}
	}
	return nil
}

// Stats measures a cell's processes until it ends.
func (c *Cells) Stats(req *pluginv1.StatsRequest, stream grpc.ServerStreamingServer[pluginv1.StatsResponse]) error {
	var r *record
	err := c.with(stream.Context(), req.GetRef(), func(_ store, found *record) error {
		r = found
		return nil
	})
	if err != nil {
		return err
	}
	tick := time.NewTicker(max(req.GetInterval().AsDuration(), 100*time.Millisecond))
	defer tick.Stop()
	for r.alive() {
		u, err := r.Root.usage()
		if err != nil {
			return err
		}
		cpu := uint64(u.cpu)
		m := &pluginv1.StatsResponse{At: timestamppb.Now(), CpuNs: &cpu, MemoryBytes: &u.memory, Pids: &u.number}
		if err := stream.Send(m); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	return nil
}

// stop ends a cell and notes how that is known.
func (r *record) stop(ctx context.Context, grace time.Duration) error {
	running := r.alive()
	if grace > 0 && running && !r.Agent.Stopped() {
		if err := r.Agent.Signal(15); err != nil {
			return err
		}
		patience, cancel := context.WithTimeout(ctx, grace)
		_ = r.Agent.Wait(patience) // the kill comes next
		cancel()
	}
	if err := errors.Join(r.Root.KillTree(ctx), r.Agent.KillTree(ctx)); err != nil {
		return err
	}
	if r.Ended != nil {
		return nil
	}
	r.Ended = &end{Method: r.Proof, Detail: "every process below the cell agent was killed, and the agent itself is gone", At: time.Now().UTC()}
	if !running && !r.Stopping && r.Proof != pluginv1.ProofMethod_PROOF_METHOD_PID_NAMESPACE_GONE.String() {
		r.Ended.Method = pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN.String()
		r.Ended.Detail = "the cell agent was gone already; what it had started may have got away"
	}
	return nil
}
