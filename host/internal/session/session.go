package session

import (
	"context"
	"sync"
)

// Live is the living end of a session: what the cell agent does for it. Every
// call may fail with ErrEnded.
type Live interface {
	// Input writes bytes to the terminal or to standard input, whole.
	Input(ctx context.Context, data []byte) error
	// Resize sets the size of the terminal; an error where there is none.
	Resize(ctx context.Context, cols, rows uint16) error
	// Signal sends a signal, by its number, to the foreground process group.
	Signal(ctx context.Context, signal int) error
}

// Session is one session as those outside of the engine see it: its log and,
// while it lives, its living end. It outlives its process: an ended session
// still has its log.
type Session struct {
	ID        string // pty_session_id on the wire
	MissionID string
	Log       *Log

	mu         sync.Mutex
	live       Live
	cols, rows uint16 // of the terminal; 0: not known
}

// New makes a session. live is nil for one that has ended.
func New(id, missionID string, log *Log, live Live) *Session {
	return &Session{ID: id, MissionID: missionID, Log: log, live: live}
}

// SetLive puts another living end in (the cell was recovered), or none (nil:
// the process has ended).
func (s *Session) SetLive(live Live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = live
}

// Alive says that there is a living end.
func (s *Session) Alive() bool {
	_, err := s.end()
	return err == nil
}

// Input writes to the session; ErrEnded when it has ended.
func (s *Session) Input(ctx context.Context, data []byte) error {
	live, err := s.end()
	if err != nil {
		return err
	}
	return live.Input(ctx, data)
}

// Resize sets the size of the terminal; ErrEnded when the session has ended.
func (s *Session) Resize(ctx context.Context, cols, rows uint16) error {
	live, err := s.end()
	if err != nil {
		return err
	}
	if err := live.Resize(ctx, cols, rows); err != nil {
		return err
	}
	s.SetSize(cols, rows)
	return nil
}

// SetSize notes the size of the terminal, for those who show it.
func (s *Session) SetSize(cols, rows uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cols, s.rows = cols, rows
}

// Size is the size of the terminal as it was last set; 0, 0 when it is not
// known: pipes, or a session of an earlier life of the host.
func (s *Session) Size() (cols, rows uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cols, s.rows
}

// Signal sends a signal; ErrEnded when the session has ended.
func (s *Session) Signal(ctx context.Context, signal int) error {
	live, err := s.end()
	if err != nil {
		return err
	}
	return live.Signal(ctx, signal)
}

func (s *Session) end() (Live, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return nil, ErrEnded
	}
	return s.live, nil
}
