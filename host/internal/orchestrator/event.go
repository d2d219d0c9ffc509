package orchestrator

import (
	"context"
	"encoding/json"
	"time"
)

// Event is one envelope of the stream, as it was received.
type Event struct {
	Event      string          `json:"event"`
	ExecutorID string          `json:"executor_id"`
	MissionID  string          `json:"mission_id,omitempty"`
	TS         string          `json:"ts"`
	Data       json.RawMessage `json:"data,omitempty"`

	// Received is when it came in.
	Received time.Time `json:"-"`
	// Known says that the mission was recorded: an event of any other is dropped.
	Known bool `json:"-"`
}

// Violation is a breach of the contract by an executor.
type Violation struct {
	// Kind is json, schema, strict, first_frame, overlap, after_terminal,
	// resync_terminal, ownership or rest_slash.
	Kind   string
	Detail string
}

// followed is how many events Follow can look back on.
const followed = 1 << 16

// feed is the stream of all events, for any number of readers at their own pace.
type feed struct {
	base    int // number of the first event kept
	events  []Event
	changed chan struct{}
}

func (f *feed) add(e Event) {
	f.events = append(f.events, e)
	if len(f.events) > 2*followed {
		f.base += len(f.events) - followed
		f.events = append([]Event(nil), f.events[len(f.events)-followed:]...)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// Follow yields every event from now on, also those of unknown missions, until
// ctx ends; then the channel is closed. A reader that falls more than 65536
// events behind loses the oldest.
func (o *Orchestrator) Follow(ctx context.Context) <-chan Event {
	out := make(chan Event)
	o.mu.Lock()
	next := o.feed.base + len(o.feed.events)
	o.mu.Unlock()
	go func() {
		defer close(out)
		for {
			o.mu.Lock()
			next = max(next, o.feed.base)
			page := o.feed.events[next-o.feed.base:]
			page = page[:min(len(page), 256)]
			changed := o.feed.changed
			o.mu.Unlock()
			for _, e := range page {
				select {
				case out <- e:
				case <-ctx.Done():
					return
				}
			}
			next += len(page)
			if len(page) > 0 {
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// Violations returns every breach seen so far.
func (o *Orchestrator) Violations() []Violation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Violation(nil), o.violations...)
}

// maxViolations bounds the record: a broken executor repeats itself.
const maxViolations = 1000

// violate records a breach; o.mu is held.
func (o *Orchestrator) violate(kind, detail string) {
	if len(o.violations) < maxViolations {
		o.violations = append(o.violations, Violation{Kind: kind, Detail: detail})
	}
	o.opt.Logger.Warn("executor breaks the contract", "kind", kind, "detail", detail)
}
