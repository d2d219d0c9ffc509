package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/airlock-host/airlock/plugins/isolation/docker/internal/kernel"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

const (
	// makeTime bounds the work on a cell that nobody waits for any more.
	makeTime = 3 * time.Minute
	// cleanTime is how long a Create that failed may take to remove what it made.
	cleanTime = 30 * time.Second
)

// Create makes a cell. The engine goes on with what it was asked even when the
// caller goes away, so the work is done apart from the call: when its time is
// over the call ends, and what comes of the work is removed.
func (d *Driver) Create(ctx context.Context, req *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	spec := req.GetSpec()
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	release, err := d.cells.take(ctx, spec.GetCellId())
	if err != nil {
		return nil, err
	}
	type result struct {
		cell *pluginv1.Cell
		err  error
	}
	answer := make(chan result)
	go func() {
		defer release()
		m := &maker{d: d, in: in, spec: spec, caller: ctx, token: rand.Text()}
		cell, err := m.run()
		select {
		case answer <- result{cell, err}:
		case <-ctx.Done():
			if err == nil {
				m.undo()
			}
		}
	}()
	select {
	case r := <-answer:
		if r.err != nil {
			return nil, r.err
		}
		return &pluginv1.CreateResponse{Cell: r.cell}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// maker makes one cell. It holds the cell's lock.
type maker struct {
	d      *Driver
	in     *instance
	spec   *pluginv1.CellSpec
	caller context.Context // of the call; between two steps it decides whether to go on
	token  string          // marks the container as this call's
	asked  bool            // the engine may have made it, whatever it has answered
}

// run does what Create promises, or leaves nothing of its own.
func (m *maker) run() (cell *pluginv1.Cell, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.caller), makeTime)
	defer cancel()
	defer func() {
		if err != nil {
			m.undo()
		}
	}()
	if err := m.d.agents.check(m.spec.GetAgentBinary(), m.spec.GetAgentSha256()); err != nil {
		return nil, err
	}
	boot, err := kernel.BootID()
	if err != nil {
		return nil, plugin.FailedPrecondition("%v", err)
	}
	info, err := m.in.engine.known(m.caller)
	if err != nil {
		return nil, err
	}
	facts := m.in.facts(m.spec, info)
	how, quota := m.in.diskPlan(m.spec, info)
	facts.Limits["disk"] = how
	p, err := m.in.plan(m.spec, facts, info, boot)
	if err != nil {
		return nil, plugin.InvalidArgument("%v", err)
	}
	p.labels[labelAttempt] = m.token
	if quota {
		p.limitDisk(m.spec.GetResources().GetDiskBytes())
	}
	if m.in.config.Pull == pullAlways {
		if err := m.d.pulls.wait(m.caller, m.in); err != nil {
			return nil, err
		}
	}
	id, old, err := m.container(ctx, p)
	if err != nil {
		return nil, err
	}
	if old != nil {
		return m.again(old)
	}
	return m.start(ctx, id)
}

// container makes the container, or finds the one that is there.
func (m *maker) container(ctx context.Context, p *plan) (id string, old *box, err error) {
	e := m.in.engine
	what := "make cell " + m.spec.GetCellId()
	pulled := false
	for {
		if err := m.caller.Err(); err != nil {
			return "", nil, err
		}
		m.asked = true
		r, err := e.client().ContainerCreate(ctx, p.options)
		if err == nil {
			for _, w := range r.Warnings {
				m.d.log.Warn("the engine warns about a cell", "cell", m.spec.GetCellId(), "warning", w)
			}
			return r.ID, nil, nil
		}
		switch text := err.Error(); {
		case cerrdefs.IsConflict(err):
			m.asked = false
			old, err := m.in.inspect(ctx, m.spec.GetCellId())
			if isNotFound(err) {
				if err := rest(m.caller); err != nil { // it is being removed
					return "", nil, err
				}
				continue
			}
			if err != nil {
				return "", nil, err
			}
			if old.running() || old.Incarnation != m.spec.GetIncarnation() || old.startedAt() != nil {
				return "", old, nil
			}
			// An earlier Create was interrupted, and nobody was told of its cell.
			if err := m.in.remove(ctx, old.id); err != nil {
				return "", nil, err
			}
		case cerrdefs.IsNotFound(err) && strings.Contains(strings.ToLower(text), "no such image"):
			m.asked = false
			if pulled || m.in.config.Pull == pullNever {
				return "", nil, missing(m.in.config)
			}
			if err := m.d.pulls.wait(m.caller, m.in); err != nil {
				return "", nil, err
			}
			pulled = true
		case p.options.HostConfig.StorageOpt != nil && strings.Contains(text, "storage-opt"):
			why := strings.TrimPrefix(text, "Error response from daemon: ")
			if err := p.noDiskLimit(why); err != nil {
				return "", nil, plugin.FailedPrecondition("%s: %v", what, err)
			}
		default:
			return "", nil, e.fault(what, err)
		}
	}
}

// again answers a Create of a cell that exists.
func (m *maker) again(old *box) (*pluginv1.Cell, error) {
	if old.Incarnation != m.spec.GetIncarnation() {
		return nil, plugin.FailedPrecondition("cell %s exists with incarnation %d", old.CellID, old.Incarnation)
	}
	if !old.running() {
		return nil, plugin.FailedPrecondition("cell %s has ended; destroy it, and make it with a higher incarnation", old.CellID)
	}
	if !old.state.Paused {
		if err := m.in.awaitLink(m.caller, old); err != nil {
			return nil, err
		}
	}
	return old.cell()
}

// start hands the secret over, starts the agent and waits for its socket.
func (m *maker) start(ctx context.Context, id string) (*pluginv1.Cell, error) {
	if err := m.caller.Err(); err != nil {
		return nil, err
	}
	dir := m.spec.GetLinkDir()
	if err := removeLink(dir); err != nil {
		return nil, plugin.FailedPrecondition("something older is in the way: %v", err)
	}
	if err := writeSecret(dir, m.spec.GetLinkSecret()); err != nil {
		return nil, plugin.FailedPrecondition("hand the link secret over: %v", err)
	}
	if _, err := m.in.engine.client().ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		return nil, m.explain(err)
	}
	b, err := m.in.inspect(ctx, m.spec.GetCellId())
	if err != nil {
		return nil, err
	}
	if err := m.in.awaitLink(m.caller, b); err != nil {
		return nil, err
	}
	return b.cell()
}

// explain adds what to do about a start that the engine refuses.
func (m *maker) explain(err error) error {
	what := "start cell " + m.spec.GetCellId()
	open := m.spec.GetNetwork().GetMode() == pluginv1.NetworkMode_NETWORK_MODE_OPEN
	text := err.Error()
	switch {
	case open && strings.Contains(text, "network"):
		what += fmt.Sprintf(" on the engine's network %q (attribute network; `docker network ls` shows what there is)", m.in.config.Network)
	case strings.Contains(text, "exec format error"):
		what += ": the cell agent is no program that this machine runs"
	case strings.Contains(text, "bind source path does not exist"):
		what += ": the engine does not see this machine's files; it must run here, and not in a container"
	}
	return m.in.engine.fault(what, err)
}

// writeSecret puts the secret where only root can read it. The agent removes
// the file before it makes its socket.
func writeSecret(dir string, secret []byte) error {
	f, err := os.OpenFile(filepath.Join(dir, secretFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = f.Write(secret)
	return errors.Join(err, f.Close())
}

// undo removes what this call has made. What an earlier one has made stays: the
// engine may have failed to answer for a cell that lives.
func (m *maker) undo() {
	if !m.asked {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanTime)
	defer cancel()
	b, err := m.in.inspect(ctx, m.spec.GetCellId())
	switch {
	case err == nil && b.attempt == m.token:
		if err = m.in.remove(ctx, b.id); err == nil {
			err = removeLink(m.spec.GetLinkDir())
		}
	case err == nil, isNotFound(err):
		return
	}
	if err != nil {
		m.d.log.Error("a cell that could not be started could not be removed either; the host removes it when it lists its cells",
			"cell", m.spec.GetCellId(), "error", err)
	}
}
