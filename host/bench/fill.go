package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// openStore opens a store with its trusted heads, laid out as hostConfig says.
func openStore(dir string) (*store.Store, func() error, error) {
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "heads", "host.key"))
	if err != nil {
		return nil, nil, err
	}
	log, err := heads.Open(heads.Options{File: filepath.Join(dir, "heads", "heads.jsonl"), Key: key})
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Heads: log})
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	return s, func() error { return errors.Join(s.Close(), log.Close()) }, nil
}

// fill stores n missions that have ended, as a host would have left them.
func fill(r *rig, n int) error {
	s, closeStore, err := openStore(r.dir)
	if err != nil {
		return err
	}
	const writers = 128
	var next atomic.Int64
	errs := make([]error, writers)
	var wg sync.WaitGroup
	began := time.Now().Add(-time.Duration(n) * time.Second)
	for w := range writers {
		wg.Go(func() {
			for r.b.ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				batch, err := endedMission(fmt.Sprintf("stored-%06d", i), began.Add(time.Duration(i)*time.Second))
				if err == nil {
					err = s.Commit(r.b.ctx, batch)
				}
				if err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errors.Join(errs...), r.b.ctx.Err(), closeStore())
}

// life is a task's chain under construction.
type life struct {
	m    mission.Mission
	head journal.Head
}

func newLife(id string) *life {
	return &life{m: mission.Mission{ID: id}, head: journal.Genesis(id, uuid.NewString())}
}

// then chains facts and gives the batch that commits them, with the projections
// that the engine would write. outbox says whether the orchestrator is to hear
// of them.
func (l *life) then(at time.Time, outbox bool, facts ...mission.Fact) (store.Batch, error) {
	b := store.Batch{Task: l.m.ID, JournalUUID: l.head.JournalUUID}
	for _, f := range facts {
		payload, err := json.Marshal(f)
		if err != nil {
			return b, err
		}
		var ev journal.Event
		ev, l.head = l.head.Next(uuid.NewString(), at, f.Kind(), string(payload))
		l.m.Apply(f, ev.Timestamp)
		b.Events = append(b.Events, ev)
		if w, ok := mission.Wire(f, &l.m, ev.Timestamp); ok && outbox {
			b.Outbox = append(b.Outbox, store.OutboxItem{MissionID: l.m.ID, Sequence: ev.Sequence,
				Event: w.Event, TS: w.TS, Data: w.Data, Terminal: l.m.Terminal()})
		}
	}
	data, err := json.Marshal(&l.m)
	b.Mission = &store.MissionRow{MissionID: l.m.ID, Origin: string(l.m.Origin), Agent: l.m.Agent, State: string(l.m.State),
		Terminal: l.m.Terminal(), CreatedAt: l.m.CreatedAt, UpdatedAt: l.m.UpdatedAt, Data: data}
	return b, err
}

// opened are the first facts of a mission.
func opened(journalUUID string, at time.Time) []mission.Fact {
	return mission.Open(mission.Opened{JournalUUID: journalUUID, Origin: mission.OriginOrchestrator, Agent: "agent-01",
		Isolation: "isolation.host-supervisor.host", Runtime: "runtime.command.shell", RuntimeName: "command",
		Objective: "make test # " + strings.Repeat("change what is asked for, and run the tests; ", 9), Completion: "it exits 0",
		PayloadDigest: strings.Repeat("5f", 32), Spec: json.RawMessage(`{"cell":{"Agent":"agent-01"},"runtime":"runtime.command.shell"}`),
	}, at)
}

func endedMission(id string, at time.Time) (store.Batch, error) {
	l := newLife(id)
	code := 0
	one, iteration := uuid.NewString(), int64(1)
	facts := append(opened(l.head.JournalUUID, at),
		mission.Starting{V: 1, Generation: 1, CellID: one, Incarnation: 1, SessionID: one, BootID: one},
		mission.Started{V: 1, Generation: 1, AgentRuntime: "command", SessionID: one},
		mission.Progressed{V: 1, Progress: mission.Progress{Phase: "execution", Iteration: &iteration}},
		mission.Ended{V: 1, State: mission.StateDone, ExitCode: &code, Summary: "it exited 0"})
	return l.then(at, false, facts...)
}

// commitTo commits with a bound on how long it may take.
func commitTo(ctx context.Context, s *store.Store, b store.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.Commit(ctx, b)
}
