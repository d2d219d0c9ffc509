package fake

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Driver is an isolation driver whose cells are records, each with a listener
// on its link socket. It is no isolation at all.
type Driver struct {
	base
	isolation.Unimplemented

	// Agent serves the link of a cell until stop is called; nil: connections
	// are accepted and closed. Set it before the first call.
	Agent func(spec *pluginv1.CellSpec, link net.Listener) (stop func())

	mu    sync.Mutex
	cells map[string]*cell
}

type cell struct {
	spec    *pluginv1.CellSpec
	state   pluginv1.CellState
	reason  pluginv1.ExitReason
	started time.Time
	stop    func()
}

// NewDriver is a driver without cells and without faults.
func NewDriver() *Driver {
	return &Driver{
		base: newBase("isolation", "A driver for tests: its cells isolate nothing.",
			[]string{"isolation:fake"}, []string{isolation.FeaturePause}),
		cells: make(map[string]*cell),
	}
}

// Create makes a record and opens the link socket.
func (d *Driver) Create(ctx context.Context, req *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
	if err := d.Hit(ctx, "Create"); err != nil {
		return nil, err
	}
	spec := req.GetSpec()
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.cells[spec.GetCellId()]; ok {
		if known.spec.GetIncarnation() != spec.GetIncarnation() {
			return nil, plugin.FailedPrecondition("cell %s exists with incarnation %d", spec.GetCellId(), known.spec.GetIncarnation())
		}
		return &pluginv1.CreateResponse{Cell: known.view()}, nil
	}
	link, err := net.Listen("unix", filepath.Join(spec.GetLinkDir(), "link.sock"))
	if err != nil {
		return nil, plugin.FailedPrecondition("cannot open the link: %v", err)
	}
	made := &cell{spec: spec, state: pluginv1.CellState_CELL_STATE_RUNNING, started: time.Now()}
	if d.Agent != nil {
		made.stop = d.Agent(spec, link)
	} else {
		go acceptAndClose(link)
		made.stop = func() { _ = link.Close() }
	}
	d.cells[spec.GetCellId()] = made
	return &pluginv1.CreateResponse{Cell: made.view()}, nil
}

func acceptAndClose(link net.Listener) {
	for {
		conn, err := link.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// Recover finds a record.
func (d *Driver) Recover(ctx context.Context, req *pluginv1.RecoverRequest) (*pluginv1.RecoverResponse, error) {
	var reply *pluginv1.RecoverResponse
	err := d.with(ctx, "Recover", req.GetRef(), func(c *cell) error {
		reply = &pluginv1.RecoverResponse{Cell: c.view(), Status: c.status()}
		return nil
	})
	return reply, err
}

// Pause marks a record.
func (d *Driver) Pause(ctx context.Context, req *pluginv1.PauseRequest) (*pluginv1.PauseResponse, error) {
	return &pluginv1.PauseResponse{}, d.with(ctx, "Pause", req.GetRef(), func(c *cell) error {
		return c.move(pluginv1.CellState_CELL_STATE_RUNNING, pluginv1.CellState_CELL_STATE_PAUSED)
	})
}

// Resume marks a record.
func (d *Driver) Resume(ctx context.Context, req *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error) {
	return &pluginv1.ResumeResponse{}, d.with(ctx, "Resume", req.GetRef(), func(c *cell) error {
		return c.move(pluginv1.CellState_CELL_STATE_PAUSED, pluginv1.CellState_CELL_STATE_RUNNING)
	})
}

// Stop ends a cell's listener.
func (d *Driver) Stop(ctx context.Context, req *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
	err := d.with(ctx, "Stop", req.GetRef(), func(c *cell) error {
		c.end(pluginv1.ExitReason_EXIT_REASON_KILLED)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &pluginv1.StopResponse{Proof: &pluginv1.Proof{
		Method: pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN,
		Detail: "a fake driver proves nothing", At: timestamppb.Now(),
	}}, nil
}

// Destroy removes a record.
func (d *Driver) Destroy(ctx context.Context, req *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
	if err := d.Hit(ctx, "Destroy"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.cells[req.GetRef().GetCellId()]
	if !ok {
		return &pluginv1.DestroyResponse{}, nil
	}
	if c.state != pluginv1.CellState_CELL_STATE_EXITED && !req.GetForce() {
		return nil, plugin.FailedPrecondition("cell %s is running", req.GetRef().GetCellId())
	}
	c.end(pluginv1.ExitReason_EXIT_REASON_KILLED)
	_ = os.Remove(filepath.Join(c.spec.GetLinkDir(), "link.sock"))
	delete(d.cells, req.GetRef().GetCellId())
	return &pluginv1.DestroyResponse{}, nil
}

// Inspect reads a record.
func (d *Driver) Inspect(ctx context.Context, req *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error) {
	var reply *pluginv1.InspectResponse
	err := d.with(ctx, "Inspect", req.GetRef(), func(c *cell) error {
		reply = &pluginv1.InspectResponse{Status: c.status()}
		return nil
	})
	return reply, err
}

// List sends every record.
func (d *Driver) List(req *pluginv1.ListRequest, stream grpc.ServerStreamingServer[pluginv1.ListResponse]) error {
	if err := d.Hit(stream.Context(), "List"); err != nil {
		return err
	}
	d.mu.Lock()
	var all []*pluginv1.ListResponse
	for _, c := range d.cells {
		if req.GetHostId() == "" || req.GetHostId() == c.spec.GetHostId() {
			all = append(all, &pluginv1.ListResponse{Ref: c.ref(), State: c.state, Labels: c.spec.GetLabels()})
		}
	}
	d.mu.Unlock()
	for _, item := range all {
		if err := stream.Send(item); err != nil {
			return err
		}
	}
	return nil
}

// Lose ends a cell as if it had died by itself.
func (d *Driver) Lose(cellID string, reason pluginv1.ExitReason) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, ok := d.cells[cellID]; ok {
		c.end(reason)
	}
}

func (d *Driver) with(ctx context.Context, method string, ref *pluginv1.CellRef, do func(*cell) error) error {
	if err := d.Hit(ctx, method); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.cells[ref.GetCellId()]
	if !ok || c.spec.GetIncarnation() != ref.GetIncarnation() {
		return plugin.NotFound("no cell %s with incarnation %d", ref.GetCellId(), ref.GetIncarnation())
	}
	return do(c)
}
