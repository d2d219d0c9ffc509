package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/airlock-host/airlock/host/internal/session"
)

const (
	// logQuota is how much of a session's output is kept, in bytes.
	logQuota = 256 << 20
	// openEnded is how many ended sessions stay open for readers.
	openEnded = 32
)

// logs opens each session once and shares it. Beside the log of a session lies
// the id of its mission, for the time after the mission.
type logs struct {
	dir string

	mu    sync.Mutex
	byID  map[string]*session.Session
	ended []string // oldest first
}

func newLogs(dir string) *logs { return &logs{dir: dir, byID: map[string]*session.Session{}} }

// open gives a session, running or ended; an unknown one is ErrNotFound. lives
// says whether a mission still has the session: after a restart a reader may
// come before the mission has found its cell again, and must not end its log.
func (l *logs) open(sessionID string, lives func() bool) (*session.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.byID[sessionID]; s != nil {
		return s, nil
	}
	missionID, err := os.ReadFile(l.missionFile(sessionID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("session %q: %w", sessionID, ErrNotFound)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	s, err := l.add(sessionID, string(missionID))
	if err != nil {
		return nil, unavailable(err)
	}
	if !lives() { // asked with the lock held: finished comes after the mission's end
		_ = s.Log.Finish()
		l.retire(sessionID)
	}
	return s, nil
}

// create gives a session that lives, and makes its log when it is missing.
func (l *logs) create(sessionID, missionID string) (*session.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.byID[sessionID]; s != nil {
		return s, nil
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	if err := renameio.WriteFile(l.missionFile(sessionID), []byte(missionID), 0o600); err != nil {
		return nil, err
	}
	return l.add(sessionID, missionID)
}

func (l *logs) missionFile(sessionID string) string {
	return filepath.Join(l.dir, hashed(sessionID)+".mission")
}

func (l *logs) add(sessionID, missionID string) (*session.Session, error) {
	log, err := session.OpenLog(l.dir, sessionID, logQuota)
	if err != nil {
		return nil, err
	}
	s := session.New(sessionID, missionID, log, nil)
	l.byID[sessionID] = s
	return s, nil
}

// finished ends a session's log; readers get to its end.
func (l *logs) finished(sessionID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.byID[sessionID]; s != nil {
		s.SetLive(nil)
		_ = s.Log.Finish() // what was acknowledged is safe already
		l.retire(sessionID)
	}
}

// retire closes the logs of the sessions that ended longest ago.
func (l *logs) retire(sessionID string) {
	l.ended = append(l.ended, sessionID)
	for len(l.ended) > openEnded {
		if s := l.byID[l.ended[0]]; s != nil {
			_ = s.Log.Close()
			delete(l.byID, l.ended[0])
		}
		l.ended = l.ended[1:]
	}
}

func (l *logs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.byID {
		_ = s.Log.Close()
		delete(l.byID, id)
	}
}
