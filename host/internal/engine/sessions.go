package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/session"
)

// Session finds a session, running or ended; ErrNotFound when there is none.
func (e *Engine) Session(_ context.Context, sessionID string) (*session.Session, error) {
	return e.logs.open(sessionID, func() bool { return e.sessionLives(sessionID) })
}

// sessionLives says that a mission goes on with the session, or will when it has
// found its cell again.
func (e *Engine) sessionLives(sessionID string) bool {
	e.mu.RLock()
	a := e.bySess[sessionID]
	e.mu.RUnlock()
	if a == nil {
		return false
	}
	m := a.state()
	return m.SessionID == sessionID && !m.Terminal() && m.Phase != mission.PhaseBetween
}

// hashed is how an id becomes part of a file's name.
func hashed(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// *liveSession is the living end of a session (session.Live).
var _ session.Live = (*liveSession)(nil)

// operable says why the session cannot be written to now.
func (s *liveSession) operable() error {
	switch {
	case s.a.latch.Load():
		return fmt.Errorf("the mission is being stopped: %w", ErrConflict)
	case s.a.state().Paused:
		return fmt.Errorf("the mission is paused, resume it first: %w", ErrConflict)
	default:
		return nil
	}
}

// Input writes to the terminal or to standard input.
func (s *liveSession) Input(ctx context.Context, data []byte) error {
	if err := s.operable(); err != nil {
		return err
	}
	s.touch()
	return s.conn.Load().Input(ctx, s.id, "", data, s.gen)
}

// Resize sets the size of the terminal.
func (s *liveSession) Resize(ctx context.Context, cols, rows uint16) error {
	if err := s.operable(); err != nil {
		return err
	}
	return s.conn.Load().Resize(ctx, s.id, uint32(cols), uint32(rows))
}

// Signal sends a signal, by its number on Linux, to the session's foreground
// process group.
func (s *liveSession) Signal(ctx context.Context, signal int) error {
	if err := s.operable(); err != nil {
		return err
	}
	return s.conn.Load().Signal(ctx, s.id, int32(signal), s.gen)
}
