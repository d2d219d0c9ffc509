package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/airlock-host/airlock/host/internal/screen"
	"github.com/airlock-host/airlock/host/internal/session"
)

const (
	// maxScreens is how many terminals are rendered at a time.
	maxScreens = 16
	// replay is how much of the output before now a terminal is drawn from, and
	// how far it may fall behind before it is drawn anew from the end.
	replay, behind = 128 << 10, 1 << 20
)

// screenFrame is what a look at a terminal gives.
type screenFrame struct {
	SessionID string `json:"session_id"`
	Offset    uint64 `json:"offset"` // of the output, behind the last byte that is drawn
	Skipped   bool   `json:"skipped,omitempty"`
	Finished  bool   `json:"finished"`
	screen.Frame
}

// viewer draws one session for one who watches.
type viewer struct {
	sess    *session.Session
	scr     *screen.Screen
	at      uint64
	seen    uint64 // the log's end when it was last looked at
	skipped bool
	ended   bool
}

// sessionScreen answers what a session's terminal shows: rows of text with their
// colours. With Accept: text/event-stream a whole frame comes first, and then
// the rows that change, gathered for 50 ms.
func (s *Server) sessionScreen(w http.ResponseWriter, r *http.Request, op *Operator) error {
	sess, err := s.sessionOf(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	select {
	case s.screens <- struct{}{}:
		defer func() { <-s.screens }()
	default:
		return refuse(http.StatusServiceUnavailable, "too many terminals are being shown; close one, or use airlock mission logs")
	}
	v := &viewer{sess: sess}
	v.begin()
	defer func() { v.scr.Close() }()
	if err := v.draw(r.Context()); err != nil {
		return err
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		f, _ := v.frame()
		return writeJSON(w, http.StatusOK, f)
	}
	return v.follow(r.Context(), s.stream(w))
}

// begin draws from near the end on.
func (v *viewer) begin() {
	if v.scr != nil {
		v.scr.Close()
	}
	cols, rows := v.sess.Size()
	v.scr = screen.New(int(cols), int(rows))
	end := v.sess.Log.Next()
	v.at = v.sess.Log.Base()
	if end > v.at+replay {
		v.at, v.skipped = end-replay, true
	}
}

// draw takes in the output that there is now.
func (v *viewer) draw(ctx context.Context) error {
	if cols, rows := v.sess.Size(); cols > 0 && rows > 0 {
		v.scr.Resize(int(cols), int(rows))
	}
	for ctx.Err() == nil {
		if v.sess.Log.Next() > v.at+behind {
			v.begin()
		}
		v.seen = max(v.sess.Log.Next(), v.at)
		segs, err := v.sess.Log.ReadAt(v.at, 32<<10)
		if errors.Is(err, io.EOF) {
			v.ended = true
			return nil
		}
		if err != nil || len(segs) == 0 {
			return err
		}
		for _, seg := range segs {
			if seg.Offset > v.at {
				v.skipped = true
			}
			_ = v.scr.Write(seg.Data) // a fault of the emulator leaves the screen as it was
			v.at = seg.Offset + uint64(len(seg.Data))
		}
	}
	return ctx.Err()
}

func (v *viewer) frame() (screenFrame, bool) {
	f, changed := v.scr.Frame()
	return screenFrame{SessionID: v.sess.ID, Offset: v.at, Skipped: v.skipped, Finished: v.ended, Frame: f}, changed
}

// follow sends what changes until the session ends or the watcher goes.
func (v *viewer) follow(ctx context.Context, out *sse) error {
	for {
		f, changed := v.frame()
		if changed || v.ended {
			if !out.event("screen", f) {
				return nil
			}
		}
		if v.ended {
			return nil
		}
		wait, cancel := context.WithTimeout(ctx, heartbeat)
		err := v.sess.Log.Wait(wait, v.seen)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			if !out.alive() {
				return nil
			}
			continue
		case err != nil:
			return nil // the log was closed
		}
		select {
		case <-time.After(gather):
		case <-ctx.Done():
			return nil
		}
		if v.draw(ctx) != nil {
			return nil
		}
	}
}
