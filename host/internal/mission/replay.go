package mission

import (
	"fmt"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// Replay takes a mission one event further: a mission that is built again from
// its journal's events, in order, is the one that made them. An event whose
// kind this version does not know is an error.
func (m *Mission) Replay(ev *journal.Event) error {
	f, err := Decode(ev.Kind, ev.Payload)
	if err == nil && f == nil && ev.Kind != journal.HeadPublished && ev.Kind != journal.Repaired {
		err = fmt.Errorf("no fact of the kind %q is known", ev.Kind)
	}
	if err != nil {
		return fmt.Errorf("event %d of task %q: %w", ev.Sequence, ev.TaskID, err)
	}
	if f != nil {
		m.ID = ev.TaskID
		m.Apply(f, ev.Timestamp)
	}
	return nil
}
