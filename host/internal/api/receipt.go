package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// receipt is a stop receipt before the ladder is through (governance 3G): it
// says nothing about access, since that is not known yet.
type receipt struct {
	TaskID    string         `json:"task_id"`
	StopID    string         `json:"stop_id"`
	Epoch     *uint64        `json:"epoch"`
	Effective *time.Time     `json:"effective_at"`
	Running   []any          `json:"running"`
	Cancelled []any          `json:"cancellation_requests"`
	Issuers   map[string]any `json:"issuers"`
	Isolation any            `json:"isolation"`
	Rungs     []engine.Rung  `json:"rungs"` // as far as it has come; "running" is the one under way
	Audit     *string        `json:"audit_error"`
	Final     bool           `json:"final"`
}

// stopFound is what a task's journal says of its last stop, or of the one with
// the id.
type stopFound struct {
	taskID, id string
	// since: receipts up to this sequence are those of earlier calls.
	since uint64
	// past: a restart behind a stop does not make its receipt go away.
	past  bool
	latch *receipt
	final map[string]any
	older map[string]any
}

// tail is how many of the last events hold the stop that was just made.
const tail = 200

// wait looks for the final receipt until ctx ends, and gives the best that
// there is: it, an earlier one, the latch's, or nil. The reads are not cut
// short: there always is one look.
func (f *stopFound) wait(ctx context.Context, events Events) any {
	read := context.WithoutCancel(ctx)
	var after uint64
	if head, err := events.Head(read, f.taskID); err == nil && head.Sequence > tail {
		after = head.Sequence - tail
	}
	for {
		changed := events.EventsChanged(f.taskID)
		last, err := f.scan(read, events, after)
		if err == nil && after > 0 && f.best() == nil {
			last, err = f.scan(read, events, 0) // it is older than that
		}
		if err != nil || f.final != nil {
			return f.best()
		}
		after = last
		select {
		case <-changed:
		case <-ctx.Done():
			return f.best()
		}
	}
}

// look reads what there is now: the end of the journal, and all of it where the
// stop is older than that.
func (f *stopFound) look(ctx context.Context, events Events) error {
	head, err := events.Head(ctx, f.taskID)
	if err != nil {
		return err
	}
	if head.Sequence > tail {
		if _, err := f.scan(ctx, events, head.Sequence-tail); err != nil || f.best() != nil {
			return err
		}
	}
	_, err = f.scan(ctx, events, 0)
	return err
}

func (f *stopFound) best() any {
	switch {
	case f.final != nil:
		return f.final
	case f.older != nil:
		return f.older
	case f.latch != nil:
		return f.latch
	}
	return nil
}

// scan reads on from a sequence and gives the last one read.
func (f *stopFound) scan(ctx context.Context, events Events, after uint64) (uint64, error) {
	for {
		page, err := events.Events(ctx, f.taskID, after, maxPage)
		if err != nil {
			return after, err
		}
		for i := range page {
			f.take(&page[i])
		}
		if len(page) == 0 {
			return after, nil
		}
		after = page[len(page)-1].Sequence
	}
}

func (f *stopFound) take(ev *journal.Event) {
	switch ev.Kind {
	case journal.Stop, journal.StopAcknowledged:
	case journal.Restarted:
		// A stop before this call is over; this call's own receipt stays what it is,
		// whoever restarts the task behind it.
		if f.id == "" && !f.past && (f.since == 0 || ev.Sequence <= f.since) {
			f.latch, f.final, f.older = nil, nil, nil
		}
		return
	default:
		return
	}
	var p struct {
		ID      string         `json:"id"`
		StopID  string         `json:"stop_id"`
		Epoch   *uint64        `json:"epoch"`
		Receipt map[string]any `json:"receipt"`
	}
	if json.Unmarshal([]byte(ev.Payload), &p) != nil {
		return
	}
	if p.StopID == "" {
		p.StopID = p.ID
	}
	if f.id != "" && f.id != p.StopID {
		return
	}
	if ev.Kind == journal.Stop {
		at := ev.Timestamp
		f.latch = &receipt{
			TaskID: f.taskID, StopID: p.StopID, Epoch: p.Epoch, Effective: &at,
			Running: []any{}, Cancelled: []any{}, Issuers: map[string]any{}, Rungs: []engine.Rung{},
		}
		return
	}
	final := map[string]any{"task_id": f.taskID, "stop_id": p.StopID}
	for k, v := range p.Receipt {
		final[k] = v
	}
	final["final"] = true
	if ev.Sequence <= f.since {
		f.older = final
		return
	}
	f.final = final
}
