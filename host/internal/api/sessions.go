package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/session"
)

// signals are those that an operator may send.
var signals = map[string]int{"HUP": 1, "INT": 2, "KILL": 9, "TERM": 15}

// sessionOf finds a session whose mission the operator may see.
func (s *Server) sessionOf(ctx context.Context, op *Operator, id string) (*session.Session, error) {
	sess, err := s.opts.Sessions.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	if op.Restricted() {
		if _, err := s.visible(ctx, op, sess.MissionID); err != nil {
			return nil, engine.ErrNotFound
		}
	}
	return sess, nil
}

// from reads ?from=OFFSET.
func from(r *http.Request) (uint64, error) {
	text := r.URL.Query().Get("from")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, badField("from", "it must be an offset")
	}
	return n, nil
}

// logPiece and logPage are a session's output as JSON.
type logPiece struct {
	Stream string `json:"stream"`
	Offset uint64 `json:"offset"`
	Data   []byte `json:"data"` // base64
}

type logPage struct {
	SessionID string     `json:"session_id"`
	Base      uint64     `json:"base"`
	Next      uint64     `json:"next"` // what to ask for next
	Finished  bool       `json:"finished"`
	Segments  []logPiece `json:"segments"`
}

// sessionLog answers output from an offset on: the bytes themselves, up to what
// there is now or, with follow=1, to the end of the session; or as JSON, one
// page with streams and offsets.
func (s *Server) sessionLog(w http.ResponseWriter, r *http.Request, op *Operator) error {
	at, err := from(r)
	if err != nil {
		return err
	}
	follow := false
	if text := r.URL.Query().Get("follow"); text != "" {
		if follow, err = strconv.ParseBool(text); err != nil {
			return badField("follow", "it must be true or false")
		}
	}
	sess, err := s.sessionOf(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		return logJSON(w, sess, at)
	}
	return s.logBytes(w, r, sess, at, follow)
}

func logJSON(w http.ResponseWriter, sess *session.Session, at uint64) error {
	segs, err := sess.Log.ReadAt(at, 256<<10)
	page := logPage{SessionID: sess.ID, Base: sess.Log.Base(), Next: at, Segments: []logPiece{}}
	switch {
	case errors.Is(err, io.EOF):
		page.Finished = true
	case err != nil:
		return err
	}
	for _, seg := range segs {
		page.Segments = append(page.Segments, logPiece{seg.Stream.String(), seg.Offset, seg.Data})
		page.Next = seg.Offset + uint64(len(seg.Data))
	}
	return writeJSON(w, http.StatusOK, page)
}

func (s *Server) logBytes(w http.ResponseWriter, r *http.Request, sess *session.Session, at uint64, follow bool) error {
	log := sess.Log
	end := log.Next()
	at = max(at, log.Base())
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Airlock-Log-From", strconv.FormatUint(at, 10))
	h.Set("Airlock-Log-Next", strconv.FormatUint(max(end, at), 10))
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	for follow || at < end {
		var segs []session.Segment
		var err error
		if follow {
			_ = rc.SetWriteDeadline(s.now().Add(s.opts.WriteTimeout))
			if rc.Flush() != nil {
				return nil
			}
			segs, err = log.Follow(r.Context(), at, 0)
		} else {
			segs, err = log.ReadAt(at, 0)
		}
		if err != nil || len(segs) == 0 {
			return nil // the end, or a gap up to it; nothing else can be said any more
		}
		for _, seg := range segs {
			data := seg.Data
			if !follow && seg.Offset+uint64(len(data)) > end {
				data = data[:max(seg.Offset, end)-seg.Offset]
			}
			_ = rc.SetWriteDeadline(s.now().Add(s.opts.WriteTimeout))
			if _, err := w.Write(data); err != nil {
				return nil
			}
			at = seg.Offset + uint64(len(seg.Data))
		}
	}
	return nil
}

// signalSession is DELETE /api/v1/sessions/{sid}?signal=TERM|KILL|INT|HUP.
func (s *Server) signalSession(w http.ResponseWriter, r *http.Request, op *Operator) error {
	name := r.URL.Query().Get("signal")
	if name == "" {
		name = "TERM"
	}
	number, ok := signals[strings.TrimPrefix(strings.ToUpper(name), "SIG")]
	if !ok {
		return badField("signal", "it must be TERM, KILL, INT or HUP")
	}
	sess, err := s.sessionOf(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := sess.Signal(r.Context(), number); err != nil {
		return err
	}
	s.log.Info("session signalled", "session", sess.ID, "signal", name, "actor", op.Name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
