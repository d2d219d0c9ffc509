package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Checks of what the cell agent does in a cell need not have one each. Where
// making one takes seconds they share it (Options.ShareCell): every check has a
// connection of its own, an empty workspace, and no session but its own.

// shares says whether a check may be run in a cell that others have used.
func shares(name string) bool {
	return slices.ContainsFunc(slices.Concat(sessionChecks(), outputChecks(), exitChecks(), linkChecks()),
		func(c isolationCheck) bool { return c.name == name })
}

// sharing prepares for the first or the next check of a cell; keep says that
// one that shares it comes after this one.
func (k *kit) sharing(now isolationCheck, next []isolationCheck) {
	k.share = k.opts.ShareCell && shares(now.name)
	k.keep = k.share && len(next) > 0 && shares(next[0].name)
}

// again hands out the shared cell; nil = there is none yet.
func (k *kit) again(ctx context.Context) (*place, error) {
	if !k.share || k.shared == nil {
		return nil, nil
	}
	p := &place{kit: k, spec: k.shared.spec, cell: k.shared.cell, work: k.shared.work}
	if err := p.dial(ctx); err != nil {
		return nil, fmt.Errorf("the cell that checks share: %w", err)
	}
	for _, s := range p.conn.Hello().GetSessions() {
		if err := p.forget(ctx, s); err != nil {
			return nil, fmt.Errorf("the cell that checks share: a session that a check has left: %w", err)
		}
	}
	// What else has happened belongs to no check.
	_ = p.conn.Close()
	left, err := os.ReadDir(p.work)
	for _, e := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(p.work, e.Name())))
	}
	if err != nil {
		return nil, fmt.Errorf("the cell that checks share: %w", err)
	}
	return p, p.dial(ctx)
}

// forget ends a session, and lets the agent forget it.
func (p *place) forget(ctx context.Context, s *cellv1.SessionState) error {
	id := s.GetSessionId()
	if s.GetExited() == nil {
		if err := p.conn.Kill(ctx, id, 0, 0); err != nil {
			return err
		}
		if _, err := (&session{p, id}).exited(ctx); err != nil {
			return err
		}
	}
	return p.conn.AckExit(ctx, id)
}

// hold keeps a cell for the checks to come.
func (k *kit) hold(p *place) {
	if !k.share || k.shared != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shared = p
	k.made = slices.DeleteFunc(k.made, func(s *pluginv1.CellSpec) bool { return s == p.spec })
}

// release gives the shared cell back to be destroyed, when no check comes that
// uses it or one has failed in it.
func (k *kit) release(failed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shared == nil || k.keep && !failed {
		return
	}
	k.made = append(k.made, k.shared.spec)
	k.shared = nil
}
