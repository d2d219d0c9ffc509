package cells

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

// Drivers gives the isolation drivers.
type Drivers interface {
	Isolation(ref string) (pluginv1.IsolationClient, error)
}

// createRetry is how soon a driver that was gone is asked again.
const createRetry = 200 * time.Millisecond

// Options of a Manager.
type Options struct {
	DataDir   string
	RunDir    string
	HostID    string
	UIDs      [2]uint32 // one per cell, ends included; zero: the driver's own user
	AgentPath string    // the airlock-cell binary; it is copied to data_dir/agents/<sha256>
	Drivers   Drivers
	// CreateTimeout bounds one Create; 0 = 150 s, which is more than the two
	// minutes that a VM may take to boot on a busy machine.
	CreateTimeout time.Duration
}

// Manager makes and ends cells.
type Manager struct {
	opts     Options
	agentBin string
	agentSHA string

	mu   sync.Mutex
	uids map[uint32]string // in use, by cell
	next uint32
}

// New stages the cell agent and makes the directories.
func New(opts Options) (*Manager, error) {
	if opts.CreateTimeout == 0 {
		opts.CreateTimeout = 150 * time.Second
	}
	m := &Manager{opts: opts, uids: map[uint32]string{}, next: opts.UIDs[0]}
	for _, dir := range []string{m.cellsDir(), m.volumesDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	var err error
	m.agentBin, m.agentSHA, err = stageAgent(opts.AgentPath, filepath.Join(opts.DataDir, "agents"))
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Manager) cellsDir() string   { return filepath.Join(m.opts.RunDir, "cells") }
func (m *Manager) volumesDir() string { return filepath.Join(m.opts.DataDir, "volumes") }

// Known tells the manager of a row that was read at the start, so that its uid
// is not given away again.
func (m *Manager) Known(c *Cell) {
	if c.UID != 0 {
		m.mu.Lock()
		m.uids[c.UID] = c.ID
		m.mu.Unlock()
	}
}

// Prepare lays a new cell out; nothing is made yet but its id. The caller
// stores the row before it calls Create.
func (m *Manager) Prepare(spec Spec) (*Cell, error) {
	c := &Cell{ID: newID(), Incarnation: 1, Instance: spec.Isolation, State: StateCreating}
	c.details = details{Secret: newSecret(), Spec: spec, AgentSHA: m.agentSHA,
		LinkDir: filepath.Join(m.cellsDir(), c.ID)}
	var err error
	if c.UID, err = m.takeUID(c.ID); err != nil {
		return nil, err
	}
	return c, nil
}

// Fits says that a warm cell can stand in for a new one of this spec.
func (m *Manager) Fits(c *Cell, spec Spec) bool {
	return c.Spec == spec && c.AgentSHA == m.agentSHA
}

func (m *Manager) takeUID(id string) (uint32, error) {
	first, last := m.opts.UIDs[0], m.opts.UIDs[1]
	if first == 0 {
		return 0, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for range last - first + 1 {
		uid := m.next
		if m.next++; m.next > last {
			m.next = first
		}
		if _, used := m.uids[uid]; !used {
			m.uids[uid] = id
			return uid, nil
		}
	}
	return 0, fmt.Errorf("uid_range: all %d uids are in use by cells", last-first+1)
}

// Release gives a cell's uid back.
func (m *Manager) Release(c *Cell) {
	m.mu.Lock()
	if m.uids[c.UID] == c.ID {
		delete(m.uids, c.UID)
	}
	m.mu.Unlock()
}

// Create asks the driver for the cell. It is idempotent: when the driver's
// process dies meanwhile it is asked again once it is back, until the
// time-out.
func (m *Manager) Create(ctx context.Context, c *Cell) error {
	ctx, cancel := context.WithTimeout(ctx, m.opts.CreateTimeout)
	defer cancel()
	if err := os.MkdirAll(c.LinkDir, 0o700); err != nil {
		return err
	}
	volumes, err := m.volume(c)
	if err != nil {
		return err
	}
	req := &pluginv1.CreateRequest{Spec: m.cellSpec(c, volumes)}
	return m.insist(ctx, "create a cell with "+c.Instance, c, func(driver pluginv1.IsolationClient) error {
		resp, err := driver.Create(ctx, req)
		if err != nil {
			return err
		}
		if err := c.took(resp.GetCell()); err != nil {
			return err
		}
		return m.ownVolumes(c)
	})
}

// cellSpec is what a driver is asked for.
func (m *Manager) cellSpec(c *Cell, volumes []*pluginv1.Volume) *pluginv1.CellSpec {
	return &pluginv1.CellSpec{
		CellId: c.ID, Incarnation: c.Incarnation, HostId: m.opts.HostID,
		Labels:      map[string]string{"airlock.agent": c.Spec.Agent},
		AgentBinary: m.agentFile(c.AgentSHA), AgentSha256: c.AgentSHA,
		LinkDir: c.LinkDir, LinkSecret: c.Secret,
		Resources: &pluginv1.Resources{Cpu: c.Spec.CPU, MemoryBytes: c.Spec.MemoryBytes, Pids: c.Spec.Pids, DiskBytes: c.Spec.DiskBytes},
		Network:   &pluginv1.Network{Mode: networkMode(c.Spec.Network)},
		Uid:       c.UID, Gid: c.UID, Volumes: volumes, FileDirs: c.FileDirs,
	}
}

// agentFile is where the cell agent of a digest lies.
func (m *Manager) agentFile(sha string) string { return filepath.Join(filepath.Dir(m.agentBin), sha) }

// insist asks a driver again while its process is gone, until ctx ends.
func (m *Manager) insist(ctx context.Context, what string, c *Cell, ask func(pluginv1.IsolationClient) error) error {
	for {
		driver, err := m.opts.Drivers.Isolation(c.Instance)
		if err == nil {
			err = ask(driver)
		}
		if err == nil {
			return nil
		}
		failed := fmt.Errorf("%s: %w", what, err)
		if !Retryable(err) {
			return failed
		}
		select {
		case <-ctx.Done():
			return failed
		case <-time.After(createRetry):
		}
	}
}

// Retryable says that a driver's error may pass by itself: its process is gone
// or not up yet.
func Retryable(err error) bool {
	return err != nil && status.Code(err) == codes.Unavailable
}

func networkMode(mode string) pluginv1.NetworkMode {
	switch mode {
	case "open":
		return pluginv1.NetworkMode_NETWORK_MODE_OPEN
	case "gateway":
		return pluginv1.NetworkMode_NETWORK_MODE_GATEWAY
	default:
		return pluginv1.NetworkMode_NETWORK_MODE_NONE
	}
}

// Recover asks the driver for a cell of an earlier life of the host. gone says
// that it certainly does not run any more.
func (m *Manager) Recover(ctx context.Context, c *Cell) (st *pluginv1.CellStatus, gone bool, err error) {
	driver, err := m.opts.Drivers.Isolation(c.Instance)
	if err != nil {
		return nil, false, err
	}
	resp, err := driver.Recover(ctx, &pluginv1.RecoverRequest{Ref: c.CellRef()})
	if err == nil {
		err = c.took(resp.GetCell())
	}
	return stateOf(resp.GetStatus(), err)
}

// Inspect asks the driver how the cell is.
func (m *Manager) Inspect(ctx context.Context, c *Cell) (st *pluginv1.CellStatus, gone bool, err error) {
	driver, err := m.opts.Drivers.Isolation(c.Instance)
	if err != nil {
		return nil, false, err
	}
	resp, err := driver.Inspect(ctx, &pluginv1.InspectRequest{Ref: c.CellRef()})
	return stateOf(resp.GetStatus(), err)
}

// stateOf reads a driver's answer: a cell that it does not know, or that has
// exited, is gone.
func stateOf(st *pluginv1.CellStatus, err error) (_ *pluginv1.CellStatus, gone bool, _ error) {
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, true, nil
	case err != nil:
		return nil, false, err
	}
	return st, st.GetState() == pluginv1.CellState_CELL_STATE_EXITED, nil
}

// Dial opens the cell link.
func (m *Manager) Dial(ctx context.Context, c *Cell, opts ...cell.Option) (*cell.Conn, error) {
	return cell.Dial(ctx, c.Link, c.Secret, opts...)
}

// Freeze stops the cell's processes in their tracks.
func (m *Manager) Freeze(ctx context.Context, c *Cell) error {
	driver, err := m.opts.Drivers.Isolation(c.Instance)
	if err != nil {
		return err
	}
	_, err = driver.Pause(ctx, &pluginv1.PauseRequest{Ref: c.CellRef()})
	return err
}

// Thaw lets them go on.
func (m *Manager) Thaw(ctx context.Context, c *Cell) error {
	driver, err := m.opts.Drivers.Isolation(c.Instance)
	if err != nil {
		return err
	}
	_, err = driver.Resume(ctx, &pluginv1.ResumeRequest{Ref: c.CellRef()})
	return err
}

// Stop ends everything in the cell and gives the proof. A cell that the driver
// does not know has no process left; the proof then says so.
func (m *Manager) Stop(ctx context.Context, c *Cell, grace time.Duration) (*pluginv1.Proof, error) {
	driver, err := m.opts.Drivers.Isolation(c.Instance)
	if err != nil {
		return nil, err
	}
	resp, err := driver.Stop(ctx, &pluginv1.StopRequest{Ref: c.CellRef(), Grace: durationpb.New(grace)})
	if status.Code(err) == codes.NotFound {
		return &pluginv1.Proof{Method: pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN, Detail: "the driver knows no such cell"}, nil
	}
	if err != nil {
		return nil, err
	}
	return resp.GetProof(), nil
}

// Unmade says that no driver has ever answered with this cell: no session can
// have been started in it.
func (c *Cell) Unmade() bool { return c.State == StateCreating && len(c.Ref) == 0 }

// Unmake has the driver remove what it may have begun of an unmade cell. A
// driver removes a cell behind a Create that is still at work on it, so once it
// has answered nothing of the cell is there and nothing of it is being made.
func (m *Manager) Unmake(ctx context.Context, c *Cell) error {
	driver, err := m.opts.Drivers.Isolation(c.Instance)
	if err != nil {
		return err
	}
	_, err = driver.Destroy(ctx, &pluginv1.DestroyRequest{Ref: c.CellRef(), Force: true})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// Park ends a cell at its driver and keeps what outlives it: volumes, uid and
// id. The cell that it gives can be made again by Create, as the next
// incarnation; the caller stores its row. c stays as it was.
func (m *Manager) Park(ctx context.Context, c *Cell) (*Cell, error) {
	driver, err := m.opts.Drivers.Isolation(c.Instance)
	if err != nil {
		return nil, err
	}
	if _, err := driver.Destroy(ctx, &pluginv1.DestroyRequest{Ref: c.CellRef(), Force: true}); err != nil && status.Code(err) != codes.NotFound {
		return nil, err
	}
	if err := os.RemoveAll(c.LinkDir); err != nil {
		return nil, err
	}
	next := *c
	next.Incarnation++
	next.State, next.Ref, next.Facts, next.Link, next.Plan = StateParked, nil, nil, "", nil
	next.Secret, next.AgentSHA = newSecret(), m.agentSHA
	return &next, nil
}

// Destroy removes the cell, its link directory and its uid's reservation. The
// caller drops the row.
func (m *Manager) Destroy(ctx context.Context, c *Cell) error {
	driver, err := m.opts.Drivers.Isolation(c.Instance)
	if err != nil {
		return err
	}
	if _, err := driver.Destroy(ctx, &pluginv1.DestroyRequest{Ref: c.CellRef(), Force: true}); err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	if err := m.dropVolume(c); err != nil {
		return err
	}
	if err := os.RemoveAll(c.LinkDir); err != nil {
		return err
	}
	m.Release(c)
	return nil
}
