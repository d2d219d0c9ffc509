package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// maxID is how many characters a mission's id may have.
const maxID = 300

// Accept takes a mission in. When it answers without an error the mission is
// durable and will be started; when it refuses, nothing was journalled. The
// same mission id again is answered and starts nothing.
func (e *Engine) Accept(ctx context.Context, d Dispatch) (Accepted, error) {
	if d.MissionID == "" && d.Origin == mission.OriginLocal {
		d.MissionID = newUUID()
	}
	if n := utf8.RuneCountInString(d.MissionID); n < 1 || n > maxID || !utf8.ValidString(d.MissionID) {
		return Accepted{}, &Refusal{Kind: RefusedInvalid, Detail: fmt.Sprintf("mission_id must have 1 to %d characters of valid UTF-8, it has %d", maxID, n)}
	}
	if d.Objective == "" {
		return Accepted{}, &Refusal{Kind: RefusedInvalid, Detail: "objective must not be empty"}
	}
	digest := payloadDigest(d.Payload)
	for {
		a, fresh := e.reserve(d.MissionID)
		if fresh {
			return e.open(ctx, a, d, digest)
		}
		// The lock is held while somebody else opens the mission.
		a.mu.Lock()
		m := a.m
		a.mu.Unlock()
		if m.JournalUUID != "" {
			acc, err := known(&m, &d, digest)
			if acc.Differs {
				e.differing(a)
			}
			return acc, err
		}
		// Its opening failed and it is out of the map: try again.
	}
}

// reserve gives the actor of a mission; a fresh one is locked.
func (e *Engine) reserve(id string) (a *actor, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.missions[id]; a != nil {
		return a, false
	}
	a = e.newActor(id, nil)
	a.mu.Lock()
	e.missions[id] = a
	return a, true
}

// open is Accept for an id that no live mission has; a is locked.
func (e *Engine) open(ctx context.Context, a *actor, d Dispatch, digest string) (acc Accepted, err error) {
	opened := false
	defer func() {
		if !opened {
			e.mu.Lock()
			delete(e.missions, a.id)
			e.mu.Unlock()
		}
		a.mu.Unlock()
	}()
	switch r, err := e.opts.Store.Mission(ctx, d.MissionID); {
	case err == nil:
		m, err := fromRow(r)
		if err != nil {
			return acc, unavailable(err)
		}
		return known(&m, &d, digest)
	case !errors.Is(err, store.ErrNotFound):
		return acc, unavailable(err)
	}
	switch r, err := e.opts.Store.Retired(ctx, d.MissionID); {
	case err == nil: // archived and removed: it is not run a second time
		return known(&mission.Mission{ID: r.TaskID, Origin: mission.Origin(r.Origin), State: mission.State(r.State), PayloadDigest: r.PayloadDigest}, &d, digest)
	case !errors.Is(err, store.ErrNotFound):
		return acc, unavailable(err)
	}
	if refusal := e.closed(); refusal != nil {
		return acc, refusal
	}
	g, refusal := e.choose(&d)
	if refusal != nil {
		return acc, refusal
	}
	slot, ok := g.enter(a, false)
	if !ok {
		return acc, &Refusal{Kind: RefusedQueueFull, Agent: g.block().Name, Detail: fmt.Sprintf("agent %q: its queue is full", g.block().Name)}
	}
	a.agent = g
	cfg := *g.block() // one of them for all of the mission, whatever a reload does meanwhile
	spec, err := resolveSpec(cfg)
	if err != nil {
		g.leave(a)
		return acc, unavailable(err)
	}
	o := mission.Opened{JournalUUID: newUUID(), Origin: d.Origin, Agent: cfg.Name, Isolation: cfg.Isolation,
		Runtime: cfg.Runtime, RuntimeName: runtimeName(cfg.Runtime), Objective: d.Objective, Completion: d.Completion,
		SessionHint: d.SessionID, LongRunning: d.LongRunning, Metadata: d.Metadata, PayloadDigest: digest, Spec: spec}
	if err := e.wishes(&o, d, cfg); err != nil {
		g.leave(a)
		return acc, &Refusal{Kind: RefusedInvalid, Detail: err.Error()}
	}
	e.stamp(&o)
	a.m = mission.Mission{ID: d.MissionID}
	a.head = journal.Genesis(d.MissionID, o.JournalUUID)
	now := e.now()
	err = a.commitLocked(func(*mission.Mission) ([]mission.Fact, error) { return mission.Open(o, now), nil }, nil)
	if err != nil {
		g.leave(a)
		return acc, &Refusal{Kind: RefusedUnavailable, Detail: err.Error()}
	}
	opened = true
	if e.rules().Digest() != o.Rules { // a reload came in between
		e.goRun(func(context.Context) { e.adoptRules(a) })
	}
	e.goRun(func(ctx context.Context) { e.run(ctx, a, slot) })
	return Accepted{MissionID: d.MissionID, EstimatedStart: now}, nil
}

// closed is why the host takes no new missions at all now, or nil.
func (e *Engine) closed() *Refusal {
	if e.Draining() {
		return &Refusal{Kind: RefusedUnavailable, Detail: "the host drains: it takes no new missions"}
	}
	if err := e.opts.Store.Healthy(); err != nil {
		return &Refusal{Kind: RefusedUnavailable, Detail: err.Error()}
	}
	return nil
}

// known answers a dispatch for a mission that exists.
func known(m *mission.Mission, d *Dispatch, digest string) (Accepted, error) {
	if m.Origin != d.Origin { // whoever asks would never hear of it
		return Accepted{}, &Refusal{Kind: RefusedConflict, Detail: fmt.Sprintf("mission id %q is in use by a mission of origin %q", m.ID, m.Origin)}
	}
	differs := m.PayloadDigest != digest
	if differs && m.Terminal() {
		return Accepted{}, &Refusal{Kind: RefusedConflict, Detail: fmt.Sprintf("mission %q has ended (%s) and was asked for with another payload", m.ID, m.State)}
	}
	return Accepted{MissionID: m.ID, EstimatedStart: m.EstimatedStart, Duplicate: true, Differs: differs}, nil
}

func payloadDigest(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}

// Differing notes in the mission's journal that it was asked for again with
// another payload (executor contract, section 0 rule 6).
func (e *Engine) differing(a *actor) {
	_ = a.commit(func(*mission.Mission) ([]mission.Fact, error) {
		return []mission.Fact{mission.Gapped{V: 1, What: "dispatch", Note: "dispatched again with another payload; the running mission goes on"}}, nil
	}, nil)
}
