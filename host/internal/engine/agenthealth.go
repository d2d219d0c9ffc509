package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/airlock-host/airlock/config"
)

// health gives what an agent provides, or why it cannot take missions. Its
// revokers count as its isolation and its runtime do: a mission whose access
// nobody could take back again is not begun.
func (e *Engine) health(g *agent) (caps []string, err error) {
	b := g.block()
	if b.Invalid != "" {
		return nil, fmt.Errorf("agent %q: %s", b.Name, b.Invalid)
	}
	for _, ref := range []string{b.Isolation, b.Runtime} {
		got, err := e.opts.Plugins.Capabilities(ref)
		if err != nil {
			return nil, fmt.Errorf("agent %q: %w", b.Name, err)
		}
		caps = append(caps, got...)
	}
	for _, ref := range b.Revokers {
		if _, err := e.opts.Plugins.Capabilities(ref); err != nil {
			return nil, fmt.Errorf("agent %q: a stop could not revoke its access: %w", b.Name, err)
		}
	}
	if err := b.Workspace.Check(); err != nil {
		return nil, fmt.Errorf("agent %q: %w", b.Name, err)
	}
	return caps, nil
}

// notes are what status says out loud of an agent: what its driver says that it
// will not do, and what is so in a cell that runs.
func (e *Engine) notes(g *agent, live []*actor) []string {
	b := g.block()
	var notes []string
	if b.Network.Mode == "open" {
		notes = append(notes, "network open: the cell reaches whatever this machine reaches")
	}
	notes = append(notes, e.unkept(b)...)
	for _, a := range live {
		s := a.sess.Load()
		if a.agent != g || s == nil {
			continue
		}
		facts := s.cell.CellFacts()
		for limit, how := range facts.GetLimits() {
			if strings.HasPrefix(how, "not-enforced") && !strings.HasSuffix(how, ":no limit was set") {
				notes = append(notes, "limit "+limit+": "+how)
			}
		}
		if facts.GetLink() == 2 { // LINK_PROTECTION_UNPROTECTED
			notes = append(notes, config.UnprotectedLink)
		}
		break
	}
	slices.Sort(notes)
	return slices.Compact(notes)
}

// unkept is what the block asks for and the driver says, before there is a cell,
// that it cannot give.
func (e *Engine) unkept(b *config.Agent) []string {
	if _, err := e.opts.Plugins.Capabilities(b.Isolation); err != nil {
		return nil // it says nothing while it is not well
	}
	unkept := b.Unkept(e.opts.Plugins.Attributes(b.Isolation), slices.Contains(e.opts.Plugins.Features(b.Isolation), featureCheckpoint))
	return slices.Collect(maps.Values(unkept))
}
