package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// tombstone is a stop on disk beside the trusted heads, written before the stop
// answers: it holds although the journal may hang or be rolled back (rulings
// 41). It goes when the ladder's end is in the journal.
type tombstone struct {
	V      int          `json:"v"`
	TaskID string       `json:"task_id"`
	Stop   mission.Stop `json:"stop"`
	At     time.Time    `json:"at"`
}

func (e *Engine) tombstonePath(taskID string) string {
	return filepath.Join(e.opts.StopsDir, hashed(taskID)+".json")
}

// bury writes a task's tombstone.
func (e *Engine) bury(taskID string, s mission.Stop, at time.Time) error {
	if e.opts.StopsDir == "" {
		return nil
	}
	text, err := json.Marshal(tombstone{V: 1, TaskID: taskID, Stop: s, At: at})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(e.opts.StopsDir, 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(e.tombstonePath(taskID), text, 0o600) // fsyncs file and directory
}

// buried reads a task's tombstone; nil when there is none. One that cannot be
// read counts as a stop all the same.
func (e *Engine) buried(taskID string) *tombstone {
	if e.opts.StopsDir == "" {
		return nil
	}
	text, err := os.ReadFile(e.tombstonePath(taskID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	t := &tombstone{}
	if err == nil {
		err = json.Unmarshal(text, t)
	}
	if err != nil {
		e.log.Error("the tombstone of a stop cannot be read; the task counts as stopped", "task", taskID, "error", err)
		return &tombstone{TaskID: taskID, At: e.now().UTC(), Stop: mission.Stop{ID: newUUID(), Actor: "airlock", By: "system",
			Reason: fmt.Sprintf("a stop was recorded that cannot be read: %v", err)}}
	}
	return t
}

func (e *Engine) unbury(taskID string) {
	if e.opts.StopsDir == "" {
		return
	}
	if err := os.Remove(e.tombstonePath(taskID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.log.Warn("the tombstone of a stop could not be removed", "task", taskID, "error", err)
	}
}

// sweepStops removes the tombstones of stops that are through: a crash may have
// come between the journal's entry and the removal, and a tombstone that stays
// would stop a task again that was restarted since. One of a task that the store
// does not know stays, and is said.
func (e *Engine) sweepStops(ctx context.Context) error {
	if e.opts.StopsDir == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(e.opts.StopsDir, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), ".") { // a crash came in the middle of its writing
			if err := os.Remove(file); err != nil {
				return err
			}
			continue
		}
		text, err := os.ReadFile(file)
		var t tombstone
		if err != nil || json.Unmarshal(text, &t) != nil || t.TaskID == "" {
			continue // it counts as a stop when its task is taken up
		}
		r, err := e.opts.Store.Mission(ctx, t.TaskID)
		switch {
		case errors.Is(err, store.ErrNotFound):
			e.log.Error("a task was stopped that the store does not know: the store was lost or put back from an older copy", "task", t.TaskID, "tombstone", file)
			continue
		case err != nil:
			return unavailable(err)
		}
		m, err := fromRow(r)
		if err == nil && (m.Terminal() || m.Stop != nil && m.Stop.Done && m.Stop.ID == t.Stop.ID) {
			e.unbury(t.TaskID)
		}
	}
	return nil
}
