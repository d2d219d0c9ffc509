package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// quarantineEnd is the reason of a mission that was ended in quarantine.
const quarantineEnd = "journal_quarantined"

// doneWait is how long the end of a quarantined mission waits for the goroutine
// that ran it, which its latch has ended.
const doneWait = 10 * time.Second

// Quarantined is a task that is left alone since its journal does not verify.
type Quarantined struct{ TaskID, Reason string }

// Quarantined lists the tasks whose journals do not verify and that were not
// ended yet, oldest first.
func (e *Engine) Quarantined() []Quarantined {
	var list []Quarantined
	for _, a := range e.live() {
		if why := a.quarantined.Load(); why != nil && !a.state().Terminal() {
			list = append(list, Quarantined{a.id, *why})
		}
	}
	return list
}

// QuarantineReceipt is the stop receipt of a task that was ended in quarantine,
// which its journal does not have; nil when there is none.
func (e *Engine) QuarantineReceipt(taskID string) map[string]any {
	if e.opts.StopsDir == "" {
		return nil
	}
	text, err := os.ReadFile(e.quarantinePath(taskID))
	var rec quarantineRecord
	if err != nil || json.Unmarshal(text, &rec) != nil {
		return nil
	}
	return rec.Receipt
}

// quarantineRecord is what is written of the end of a quarantined task, beside
// the trusted heads: its own journal takes nothing more (rulings 43).
type quarantineRecord struct {
	V       int            `json:"v"`
	TaskID  string         `json:"task_id"`
	Why     string         `json:"why"` // the journal is not trusted
	At      time.Time      `json:"at"`
	Receipt map[string]any `json:"receipt"`
}

func (e *Engine) quarantinePath(taskID string) string {
	return filepath.Join(filepath.Dir(e.opts.StopsDir), "quarantined", hashed(taskID)+".json")
}

// endQuarantined is the stop of a task whose journal does not verify: the same
// ladder, with its evidence outside of the journal. It returns when nothing of
// the task runs and it has ended towards the orchestrator.
func (e *Engine) endQuarantined(ctx context.Context, a *actor, s mission.Stop) error {
	wait, cancel := context.WithTimeout(ctx, doneWait)
	select {
	case <-a.done:
	case <-wait.Done():
	}
	cancel()
	a.ladderMu.Lock()
	defer a.ladderMu.Unlock()
	m := a.state()
	if m.Terminal() || ctx.Err() != nil {
		return ctx.Err()
	}
	s.ID = newUUID()
	a.stopWish.CompareAndSwap(nil, &stopWish{stop: s, at: e.now().UTC(), held: make(chan struct{})})
	w := a.stopWish.Load()
	e.holdOnce(a, m, w)
	l := &ladderLog{now: e.now, live: &a.climbing, rungs: w.first}
	l.climb("cut", func() string { e.cutOff(a.id); return "done" })
	proof, err := e.endProcesses(ctx, a, l)
	if err != nil {
		return err // the engine closes; the tombstone holds
	}
	after := *m
	after.Apply(mission.Stopped{Epoch: m.Epoch + 1, Stop: w.stop}, w.at)
	if err := e.writeQuarantine(a, e.newReceipt(a, &after, proof, l.rungs, w.at)); err != nil {
		a.log().Error("the receipt of a quarantined task could not be written; the task is ended all the same", "error", err)
	}
	why := *a.quarantined.Load()
	end := mission.Ended{V: 1, State: mission.StateFailed, Reason: quarantineEnd, Error: why, Tokens: m.Tokens}
	if err := e.closeOutside(ctx, a, mission.Stopped{Epoch: m.Epoch + 1, Stop: w.stop}, end); err != nil {
		return err
	}
	a.log().Warn("quarantined task was ended outside of its journal", "stop", w.stop.ID, "actor", w.stop.Actor, "proof", proof.Result, "receipt", e.quarantinePath(a.id))
	e.unbury(a.id)
	e.goRun(func(ctx context.Context) { e.finishQuarantined(ctx, a) })
	return nil
}

// finishQuarantined gives back what a quarantined task holds that was ended, and
// waits for the issuers.
func (e *Engine) finishQuarantined(ctx context.Context, a *actor) {
	if c := a.cell(); c != nil {
		e.endCell(ctx, c)
	}
	a.agent.leave(a)
	m := a.state()
	e.logs.finished(m.SessionID)
	e.settleAccess(ctx, a)
	if ctx.Err() != nil {
		return
	}
	if err := e.closeOutside(ctx, a); err != nil && ctx.Err() == nil {
		a.log().Error("what issuers said could not be stored", "error", err)
		return
	}
	e.forget(a)
}

func (e *Engine) writeQuarantine(a *actor, r receipt) error {
	if e.opts.StopsDir == "" {
		return nil
	}
	rec := quarantineRecord{V: 1, TaskID: a.id, Why: *a.quarantined.Load(), At: e.now().UTC()}
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, &rec.Receipt)
	}
	if err != nil {
		return err
	}
	rec.Receipt["final"] = true
	if text, err = json.Marshal(rec); err != nil {
		return err
	}
	path := e.quarantinePath(a.id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(path, text, 0o600)
}

// closeOutside changes the stored state of a quarantined task, and tells the
// orchestrator, without an event; what issuers have answered goes with it. While
// the store is broken it waits for it.
func (e *Engine) closeOutside(ctx context.Context, a *actor, facts ...mission.Fact) error {
	for {
		err := e.tryOutside(a, facts)
		if err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrInvalid) {
			return err
		}
		a.log().Error("the end of a quarantined task cannot be stored yet", "error", err)
		if wait(ctx, time.Second) != nil {
			return ctx.Err()
		}
	}
}

func (e *Engine) tryOutside(a *actor, facts []mission.Fact) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	next, now := a.m, e.now().UTC()
	b := store.Batch{Task: a.id}
	a.unwritten.Range(func(_, v any) bool {
		next.Apply(v.(governance.RevocationResult), now)
		return true
	})
	for _, f := range facts {
		next.Apply(f, now)
		if next.Origin != mission.OriginOrchestrator {
			continue
		}
		if ev, ok := mission.Wire(f, &next, now); ok {
			b.Outbox = append(b.Outbox, store.OutboxItem{MissionID: a.id, Sequence: a.head.Sequence, Event: ev.Event, TS: ev.TS, Data: ev.Data, Terminal: next.Terminal()})
		}
	}
	var err error
	if b.Mission, err = row(&next, a.head.Sequence); err != nil {
		return fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	if !a.rowless {
		if err := e.opts.Store.Commit(ctx, b); err != nil {
			return err
		}
	}
	a.m = next
	if told := e.opts.Committed; told != nil && len(facts) > 0 {
		told(&next, facts, now)
	}
	a.publish()
	return nil
}
