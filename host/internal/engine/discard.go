package engine

import (
	"errors"
	"io/fs"
	"os"

	"github.com/airlock-host/airlock/host/internal/session"
)

// Holds says that a mission is in somebody's hands: it runs, owes revocations, or
// a stop of it is not through. Such a mission is not archived.
func (e *Engine) Holds(missionID string) bool {
	e.mu.RLock()
	_, live := e.missions[missionID]
	e.mu.RUnlock()
	return live || e.buried(missionID) != nil
}

// Discard removes the output and the files of a mission that is archived. It may
// be called again.
func (e *Engine) Discard(missionID string, sessions []string) error {
	errs := []error{e.results.store.Remove(missionID)}
	for _, id := range sessions {
		errs = append(errs, e.logs.remove(id))
	}
	return errors.Join(errs...)
}

// remove deletes a session that has ended.
func (l *logs) remove(sessionID string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.byID[sessionID]; s != nil {
		_ = s.Log.Close()
		delete(l.byID, sessionID)
	}
	err := session.RemoveLog(l.dir, sessionID)
	if ferr := os.Remove(l.missionFile(sessionID)); ferr != nil && !errors.Is(ferr, fs.ErrNotExist) {
		err = errors.Join(err, ferr)
	}
	return err
}
