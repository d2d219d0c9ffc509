// Package repair cuts the bad end of a task's journal off, for a host that is
// stopped (rulings 22). It may import config, heads, store, mission and
// journal.
//
// The one idea: a repair loses evidence, and says so in the journal itself.
// Nothing that a signed head covers is ever cut, what is cut is kept beside the
// store, and a mission that would have gone on comes back waiting for an
// explicit restart.
package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// Options of Run.
type Options struct {
	Config *config.Config
	Task   string
	Actor  string // who repairs, for the journal
	Reason string // why, for the journal
	Do     bool   // false: only say what would be done
}

// Report is what was done, or would be.
type Report struct {
	TaskID      string `json:"task_id"`
	Fault       string `json:"fault"`        // what differs, with its sequence
	CutAfter    uint64 `json:"cut_after"`    // sequence of the last good event
	CutEvents   int    `json:"cut_events"`   // events behind it
	WasSequence uint64 `json:"was_sequence"` // of the head before
	Trusted     uint64 `json:"trusted"`      // sequence of the trusted head; 0: there is none
	Done        bool   `json:"done"`
	Sequence    uint64 `json:"sequence,omitempty"` // of the head after
	Kept        string `json:"kept,omitempty"`     // file with what was cut
	State       string `json:"state,omitempty"`    // of the mission after
}

// Run repairs one task, or says what it would do. It takes the data directory
// for itself: with a running host it fails with store.ErrLocked. A journal that
// is right, or whose damage may not be cut off, is a store.ErrNotRepairable;
// the report then says what is known of it.
func Run(ctx context.Context, o Options) (rep Report, err error) {
	rep.TaskID = o.Task
	head := o.Config.Governance.Head
	for _, f := range []string{filepath.Join(o.Config.DataDir, "missions.db"), head.KeyFile} {
		if _, err := os.Stat(f); err != nil { // neither is to be made by a repair
			if errors.Is(err, fs.ErrNotExist) {
				return rep, fmt.Errorf("%w: no host has run with this configuration here", err)
			}
			return rep, err
		}
	}
	late := &lateHeads{}
	// The store's lock first: it tells that no host writes the file of heads.
	s, err := store.Open(store.Options{Dir: o.Config.DataDir, Heads: late})
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	key, err := heads.LoadOrCreateKey(head.KeyFile)
	if err != nil {
		return rep, err
	}
	if late.Log, err = heads.Open(heads.Options{File: head.File, Key: key}); err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, late.Close()) }()

	plan, err := s.PlanRepair(ctx, o.Task)
	if plan.Fault != nil {
		rep.Fault = plan.Fault.Error()
	}
	rep.CutAfter, rep.CutEvents, rep.WasSequence, rep.Trusted = plan.CutAfter, plan.CutEvents, plan.WasSequence, plan.Trusted
	if err != nil || !o.Do {
		return rep, err
	}
	return rep, cut(ctx, s, o, &rep)
}

// lateHeads are signed heads that are opened after the store. Nothing is
// committed or verified before.
type lateHeads struct{ *heads.Log }

func cut(ctx context.Context, s *store.Store, o Options, rep *Report) error {
	row, err := s.Mission(ctx, o.Task)
	if err != nil {
		return err
	}
	ev, err := s.Repair(ctx, o.Task, store.Repair{Actor: o.Actor, Reason: o.Reason, EventID: newID(), At: time.Now()})
	if err != nil {
		return err
	}
	var said struct {
		Kept string `json:"kept"`
	}
	if err := json.Unmarshal([]byte(ev.Payload), &said); err != nil {
		return err
	}
	rep.Done, rep.Sequence, rep.State = true, ev.Sequence, row.State
	rep.Kept = filepath.Join(o.Config.DataDir, "repaired", said.Kept)
	if row.Terminal {
		return nil // its end was told; it is not untold
	}
	m, err := again(ctx, s, o.Task)
	if err != nil {
		return fmt.Errorf("the journal is repaired, but the mission cannot be built again from it: %w", err)
	}
	b, err := latched(m, journal.Head{TaskID: o.Task, JournalUUID: row.Head.JournalUUID, Sequence: ev.Sequence, Digest: ev.Digest})
	if err != nil {
		return err
	}
	if err := s.Commit(ctx, b); err != nil {
		return fmt.Errorf("the journal is repaired, but the mission's row is not: %w", err)
	}
	rep.Sequence, rep.State = ev.Sequence+uint64(len(b.Events)), b.Mission.State
	return nil
}

// again builds a mission from its journal.
func again(ctx context.Context, s *store.Store, task string) (*mission.Mission, error) {
	m := &mission.Mission{}
	for after := uint64(0); ; {
		events, err := s.Events(ctx, task, after, 100)
		if err != nil {
			return nil, err
		}
		for i := range events {
			after = events[i].Sequence
			if err := m.Replay(&events[i]); err != nil {
				return nil, err
			}
		}
		if len(events) < 100 {
			return m, nil
		}
	}
}

// latched gives the mission's row anew, and for one that has a session the pause
// that only an explicit restart lifts: what was cut may have been a call. A
// harness task comes back stopped by itself.
func latched(m *mission.Mission, head journal.Head) (store.Batch, error) {
	b := store.Batch{Task: m.ID, JournalUUID: head.JournalUUID}
	if live := m.Phase == mission.PhaseLive || m.Phase == mission.PhaseStarting || m.Phase == mission.PhaseBetween; live && !m.Latched() && !m.Harness && m.PausedReason != mission.RestartRequired {
		f := mission.Paused{V: 1, Epoch: m.Epoch + 1, Actor: "airlock", Reason: mission.RestartRequired}
		payload, err := json.Marshal(f)
		if err != nil {
			return b, err
		}
		ev, _ := head.Next(newID(), time.Now(), f.Kind(), string(payload))
		m.Apply(f, ev.Timestamp)
		b.Events = append(b.Events, ev)
		if w, ok := mission.Wire(f, m, ev.Timestamp); ok && m.Origin == mission.OriginOrchestrator {
			b.Outbox = append(b.Outbox, store.OutboxItem{MissionID: m.ID, Sequence: ev.Sequence, Event: w.Event, TS: w.TS, Data: w.Data})
		}
	}
	data, err := json.Marshal(m)
	b.Mission = &store.MissionRow{MissionID: m.ID, Origin: string(m.Origin), Agent: m.Agent, State: string(m.State),
		Terminal: m.Terminal() && !m.Owes(), CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt, Data: data}
	return b, err
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }
