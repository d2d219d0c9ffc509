package engine

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// used knows which proposals of a task were dispatched, however long ago: a
// proposal id is good for one call. It holds a hash of each id, 8 bytes; what it
// finds is looked up in the journal, so that two ids of one hash do no harm.
type used struct {
	seed maphash.Seed

	mu     sync.Mutex
	loaded bool // the journal's are in it
	ids    map[uint64]struct{}
	// unrecorded are those of which the journal has nothing (fail_open).
	unrecorded map[string]struct{}
}

func newUsed() *used {
	return &used{seed: maphash.MakeSeed(), ids: map[uint64]struct{}{}, unrecorded: map[string]struct{}{}}
}

func (u *used) add(ids ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range ids {
		u.ids[maphash.String(u.seed, id)] = struct{}{}
	}
}

func (u *used) has(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.ids[maphash.String(u.seed, id)]
	return ok
}

// missed takes in proposals that were dispatched without their record.
func (u *used) missed(ids ...string) {
	u.add(ids...)
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range ids {
		u.unrecorded[id] = struct{}{}
	}
}

func (u *used) isUnrecorded(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.unrecorded[id]
	return ok
}

// note takes in what a commit dispatched.
func (u *used) note(facts []mission.Fact) { u.add(dispatches(facts)...) }

// dispatches are the proposals that facts dispatch.
func dispatches(facts []mission.Fact) (ids []string) {
	for _, f := range facts {
		if x, ok := f.(governance.Executed); ok {
			ids = append(ids, x.ProposalID)
		}
	}
	return ids
}

// load reads the ids of before once: from the task where it still has all of
// them, else from its journal.
func (e *Engine) loadUsed(ctx context.Context, a *actor, m *mission.Mission) error {
	a.used.mu.Lock()
	loaded := a.used.loaded
	a.used.mu.Unlock()
	if loaded {
		return nil
	}
	var ids []string
	for i := range m.Task.Decisions {
		if m.Task.Decisions[i].Consumed {
			ids = append(ids, m.Task.Decisions[i].ProposalID)
		}
	}
	if m.Task.Counters.Executed > len(ids) {
		err := e.scan(ctx, a.id, func(f governance.Fact) bool {
			if x, ok := f.(governance.Executed); ok {
				ids = append(ids, x.ProposalID)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	kept, err := e.keptCalls(a.id)
	if err != nil {
		return fmt.Errorf("read which calls were dispatched without their record: %w", err)
	}
	a.used.missed(kept...)
	a.used.add(ids...) // what is dispatched meanwhile is added by its commit
	a.used.mu.Lock()
	a.used.loaded = true
	a.used.mu.Unlock()
	return nil
}

// dispatched finds the decision under which a proposal was dispatched that the
// task itself does not remember any more; nil: it never was.
func (e *Engine) dispatched(ctx context.Context, a *actor, m *mission.Mission, c *call) (*governance.Decision, error) {
	if err := e.loadUsed(ctx, a, m); err != nil {
		return nil, noJournal(err)
	}
	if !a.used.has(c.ProposalID) {
		return nil, nil
	}
	var last, under *governance.Decision
	err := e.scan(ctx, a.id, func(f governance.Fact) bool {
		switch f := f.(type) {
		case governance.Decided:
			if f.ProposalID == c.ProposalID {
				d := f.Shown()
				last = &d
			}
		case governance.Executed:
			if f.ProposalID == c.ProposalID {
				under = last
				return false
			}
		}
		return true
	})
	switch {
	case err != nil:
		return nil, noJournal(err)
	case under == nil && a.used.isUnrecorded(c.ProposalID):
		return nil, &governance.Refused{Code: governance.CodeConsumed, Detail: fmt.Sprintf("proposal %q was dispatched while the journal was away: give a new call a new proposal_id", c.ProposalID)}
	case under == nil:
		return nil, nil // another id of the same hash
	case under.Tool != c.Tool || under.ArgsDigest != c.digest:
		return nil, &governance.Refused{Code: governance.CodeChanged, Detail: fmt.Sprintf("proposal %q was made and dispatched with another tool or other arguments: give a new call a new proposal_id", c.ProposalID)}
	}
	under.Consumed = true
	return under, nil
}
