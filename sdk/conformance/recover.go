package conformance

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func recoverChecks() []isolationCheck {
	return []isolationCheck{
		{"recover-after-plugin-kill", "", recoverAfterKill},
		{"recover-exited-while-away", "", recoverExited},
		{"recover-unknown", "", recoverUnknown},
		{"recover-foreign-handle-rejected", "", recoverForeign},
		{"recover-corrupt-handle-rejected", "", recoverCorrupt},
		{"reap-without-plugin-state", "", reap},
		{"list-complete", "", listComplete},
		{"list-labels", "", listLabels},
		{"list-after-plugin-kill", "", listAfterKill},
		{"recover-without-driver-state", "", recoverBare},
		{"reap-idempotent", "", reapIdempotent},
	}
}

func (k *kit) restart(ctx context.Context) error {
	if k.opts.Restart == nil {
		return notDeclared("no way to restart the plugin was given")
	}
	client, err := k.opts.Restart(ctx)
	if err != nil {
		return fmt.Errorf("restart the plugin: %w", err)
	}
	k.client = client
	return nil
}

// recoverAfterKill: the cell, its sessions and their exits do not notice.
func recoverAfterKill(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.start(ctx, "("+beat("b")+") & pid=$!; while [ ! -e go ]; do sleep 0.02; done; kill -9 $pid; echo done; exit 7")
	if err != nil {
		return err
	}
	if err := p.awaitBeat(ctx, "b"); err != nil {
		return err
	}
	if err := k.restart(ctx); err != nil {
		return err
	}
	if err := p.awaitBeat(ctx, "b"); err != nil {
		return err
	}
	r, err := k.client.Recover(ctx, &pluginv1.RecoverRequest{Ref: p.cell.GetRef()})
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	if r.GetStatus().GetState() != pluginv1.CellState_CELL_STATE_RUNNING || r.GetCell().GetLink() != p.cell.GetLink() {
		return fmt.Errorf("recover answers %v", r)
	}
	if got, was := r.GetCell().GetFacts(), p.cell.GetFacts(); got.GetWorkspace() != was.GetWorkspace() || got.GetUid() != was.GetUid() || got.GetLink() != was.GetLink() {
		return fmt.Errorf("recover answers the facts %v, not %v", got, was)
	}
	p.cell = r.GetCell()
	again, err := k.client.Create(ctx, &pluginv1.CreateRequest{Spec: p.spec})
	if err != nil {
		return fmt.Errorf("create of the recovered cell: %w", err)
	}
	if again.GetCell().GetLink() != p.cell.GetLink() {
		return fmt.Errorf("create of the recovered cell answers %v", again)
	}
	if err := p.dial(ctx); err != nil {
		return err
	}
	if _, err := p.sh(ctx, "touch go"); err != nil {
		return err
	}
	out, exit, err := s.finish(ctx)
	if err != nil {
		return err
	}
	if out != "done\n" || exit.GetCode() != 7 {
		return fmt.Errorf("the session ended with code %d and %q, not 7 and done", exit.GetCode(), out)
	}
	_, err = p.stop(ctx, 0)
	return err
}

// recoverExited stops a cell, so that it is not there when the plugin is back.
func recoverExited(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	if err := k.restart(ctx); err != nil {
		return err
	}
	r, err := k.client.Recover(ctx, &pluginv1.RecoverRequest{Ref: p.cell.GetRef()})
	if err != nil {
		return want(err, "recover of a stopped cell", codes.NotFound)
	}
	if st := r.GetStatus(); st.GetState() != pluginv1.CellState_CELL_STATE_EXITED || st.GetExitReason() != pluginv1.ExitReason_EXIT_REASON_KILLED {
		return fmt.Errorf("recover of a stopped cell answers %v", st)
	}
	return nil
}

func recoverUnknown(ctx context.Context, k *kit) error {
	_, err := k.client.Recover(ctx, &pluginv1.RecoverRequest{Ref: &pluginv1.CellRef{CellId: newID(), Incarnation: 1}})
	return want(err, "recover of an unknown cell", codes.NotFound)
}

func recoverForeign(ctx context.Context, k *kit) error {
	a, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	b, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	mixed := &pluginv1.CellRef{CellId: a.spec.GetCellId(), Incarnation: 1, DriverState: b.cell.GetRef().GetDriverState()}
	_, err = k.client.Recover(ctx, &pluginv1.RecoverRequest{Ref: mixed})
	if err := want(err, "recover with the handle of another cell", codes.InvalidArgument, codes.NotFound); err != nil {
		return err
	}
	// And it must not lead a destroy to the other cell.
	mixed.CellId = newID()
	_, _ = k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: mixed, Force: true})
	if _, err := b.sh(ctx, "true"); err != nil {
		return fmt.Errorf("destroy of an unknown cell with the handle of another one hurt that: %w", err)
	}
	return nil
}

func recoverCorrupt(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	good := p.cell.GetRef().GetDriverState()
	for _, bad := range [][]byte{[]byte("x"), []byte("{}"), []byte(`{"v":99}`), good[:len(good)/2]} {
		ref := &pluginv1.CellRef{CellId: p.spec.GetCellId(), Incarnation: 1, DriverState: bad}
		_, err := k.client.Recover(ctx, &pluginv1.RecoverRequest{Ref: ref})
		if err := want(err, fmt.Sprintf("recover with the handle %q", bad), codes.InvalidArgument); err != nil {
			return err
		}
	}
	_, err = p.sh(ctx, "true")
	return err
}

func reap(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	names, err := p.escapees(ctx)
	if err != nil {
		return err
	}
	if err := k.restart(ctx); err != nil {
		return err
	}
	ref := &pluginv1.CellRef{CellId: p.spec.GetCellId(), Incarnation: 1}
	for range 2 {
		if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: ref, Force: true}); err != nil {
			return fmt.Errorf("destroy by a plugin that has not made the cell: %w", err)
		}
	}
	if err := p.still(ctx, names...); err != nil {
		return err
	}
	return k.gone(ctx, p)
}

func listComplete(ctx context.Context, k *kit) error {
	running, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	ended, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := ended.stop(ctx, 0); err != nil {
		return err
	}
	foreign, err := k.create(ctx, func(s *pluginv1.CellSpec) { s.HostId = k.opts.HostID + "-other" })
	if err != nil {
		return err
	}
	cells, err := k.list(ctx)
	if err != nil {
		return err
	}
	r, e := cells[running.spec.GetCellId()], cells[ended.spec.GetCellId()]
	switch {
	case r.GetState() != pluginv1.CellState_CELL_STATE_RUNNING:
		return fmt.Errorf("list shows a running cell as %v", r)
	case e.GetState() != pluginv1.CellState_CELL_STATE_EXITED:
		return fmt.Errorf("list shows a stopped cell as %v", e)
	case cells[foreign.spec.GetCellId()] != nil:
		return errors.New("list shows the cell of another host")
	}
	if _, err := k.client.Recover(ctx, &pluginv1.RecoverRequest{Ref: r.GetRef()}); err != nil {
		return fmt.Errorf("recover with a ref from list: %w", err)
	}
	return nil
}

func listLabels(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	cells, err := k.list(ctx)
	if err != nil {
		return err
	}
	if got := cells[p.spec.GetCellId()].GetLabels()["check"]; got != p.spec.GetCellId() {
		return fmt.Errorf("list shows the label %q, not %q", got, p.spec.GetCellId())
	}
	return nil
}

// listAfterKill: a new process of the plugin knows the cells of the old one.
func listAfterKill(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if err := k.restart(ctx); err != nil {
		return err
	}
	cells, err := k.list(ctx)
	if err != nil {
		return err
	}
	if got := cells[p.spec.GetCellId()]; got.GetState() != pluginv1.CellState_CELL_STATE_RUNNING {
		return fmt.Errorf("after a restart of the plugin list shows a running cell as %v", got)
	}
	if got := cells[p.spec.GetCellId()].GetLabels()["check"]; got != p.spec.GetCellId() {
		return fmt.Errorf("after a restart of the plugin its label is %q", got)
	}
	return nil
}

// recoverBare: the host may know a cell from its own row only.
func recoverBare(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	ref := &pluginv1.CellRef{CellId: p.spec.GetCellId(), Incarnation: 1}
	r, err := k.client.Recover(ctx, &pluginv1.RecoverRequest{Ref: ref})
	if err != nil {
		return fmt.Errorf("recover without driver_state: %w", err)
	}
	if r.GetCell().GetLink() != p.cell.GetLink() || r.GetStatus().GetState() != pluginv1.CellState_CELL_STATE_RUNNING {
		return fmt.Errorf("recover without driver_state answers %v", r)
	}
	return nil
}

// reapIdempotent: a crash of the host repeats the removal of cells that ended
// while it was away.
func reapIdempotent(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	ref := &pluginv1.CellRef{CellId: p.spec.GetCellId(), Incarnation: 1}
	for range 3 {
		if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: ref}); err != nil {
			return fmt.Errorf("destroy of an ended cell: %w", err)
		}
	}
	return k.gone(ctx, p)
}
