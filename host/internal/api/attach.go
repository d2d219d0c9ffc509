package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/airlock-host/airlock/host/internal/session"
)

// writers keeps the one writer slot of each session.
type writers struct {
	mu    sync.Mutex
	taken map[string]bool
}

// claim takes a session's slot; ok is false when somebody has it. release may
// be called more than once.
func (w *writers) claim(id string) (release func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken[id] {
		return nil, false
	}
	w.taken[id] = true
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.taken, id)
	}), true
}

// prepareAttach is /ws/sessions/{id}?from=OFFSET&write=1. The server sends
// binary frames of output, and as text ready{from, write}, gap{from, to} and
// end{offset}. A client sends binary frames or input{data} to be typed and
// resize{cols, rows}.
func (s *Server) prepareAttach(r *http.Request, op *Operator) (wsRun, error) {
	at, err := from(r)
	if err != nil {
		return wsRun{}, err
	}
	write := false
	if text := r.URL.Query().Get("write"); text != "" {
		if write, err = strconv.ParseBool(text); err != nil {
			return wsRun{}, badField("write", "it must be true or false")
		}
	}
	if write {
		if err := allow(NeedOperator, op); err != nil {
			return wsRun{}, err
		}
	}
	sess, err := s.sessionOf(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return wsRun{}, err
	}
	a := &attachment{s: s, sess: sess, at: at, write: write, op: op}
	if !write {
		return wsRun{run: a.run}, nil
	}
	release, ok := s.writers.claim(sess.ID)
	if !ok {
		return wsRun{}, coded(http.StatusConflict, "writer_taken", "somebody else types into this session; attach without write=1 to watch")
	}
	return wsRun{run: a.run, done: release}, nil
}

// attachment is one attached socket.
type attachment struct {
	s     *Server
	sess  *session.Session
	at    uint64
	write bool
	op    *Operator
}

func (a *attachment) run(ctx context.Context, c *wsConn) {
	ctx, cancel := context.WithCancel(ctx)
	a.at = max(a.at, a.sess.Log.Base())
	if c.send(wsFrame{Type: "ready", Session: a.sess.ID, Mission: a.sess.MissionID, From: &a.at, Write: a.write}) != nil {
		cancel()
		return
	}
	if a.write {
		a.s.log.Info("attached to a session for writing", "session", a.sess.ID, "actor", a.op.Name)
	}
	wait := c.serve(ctx, cancel, func(kind int, data []byte) error { return a.take(ctx, c, kind, data) })
	defer wait()
	err := a.pump(ctx, c)
	switch {
	case errors.Is(err, io.EOF):
		end := a.sess.Log.Next()
		_ = c.send(wsFrame{Type: "end", Offset: &end})
		c.close(websocket.CloseNormalClosure, "the session has ended")
	case slow(err):
		c.close(websocket.CloseTryAgainLater, "too slow; attach again with from="+strconv.FormatUint(a.at, 10))
	case ctx.Err() != nil:
		c.close(websocket.CloseGoingAway, "going away; attach again with from="+strconv.FormatUint(a.at, 10))
	}
}

// pump sends output as it comes, at the reader's pace: what it has not read
// stays in the log.
func (a *attachment) pump(ctx context.Context, c *wsConn) error {
	for {
		segs, err := a.sess.Log.Follow(ctx, a.at, 0)
		if err != nil {
			return err
		}
		for _, seg := range segs {
			if seg.Offset > a.at {
				lost, to := a.at, seg.Offset
				if err := c.send(wsFrame{Type: "gap", From: &lost, To: &to}); err != nil {
					return err
				}
			}
			if err := c.write(websocket.BinaryMessage, seg.Data); err != nil {
				return err
			}
			a.at = seg.Offset + uint64(len(seg.Data))
		}
	}
}

// take does what a frame from the client asks for. An error ends the socket.
func (a *attachment) take(ctx context.Context, c *wsConn, kind int, data []byte) error {
	if kind == websocket.BinaryMessage {
		return a.input(ctx, c, data)
	}
	var f wsFrame
	if err := json.Unmarshal(data, &f); err != nil {
		return c.send(wsFrame{Type: "error", Status: http.StatusBadRequest, Error: "the frame is not JSON of a known shape"})
	}
	switch f.Type {
	case "input":
		return a.input(ctx, c, []byte(f.Data))
	case "resize":
		if !a.write || f.Cols == 0 || f.Rows == 0 {
			return c.send(wsFrame{Type: "error", Status: http.StatusForbidden, Error: "resize needs write=1, cols and rows"})
		}
		return a.report(c, a.sess.Resize(ctx, f.Cols, f.Rows))
	default:
		return c.send(wsFrame{Type: "error", Status: http.StatusBadRequest, Error: "unknown type of frame"})
	}
}

func (a *attachment) input(ctx context.Context, c *wsConn, data []byte) error {
	if !a.write {
		return c.send(wsFrame{Type: "error", Status: http.StatusForbidden, Error: "attached for watching; attach with write=1 to type"})
	}
	return a.report(c, a.sess.Input(ctx, data))
}

// report tells the client of a failed call; the socket goes on.
func (a *attachment) report(c *wsConn, err error) error {
	if err == nil {
		return nil
	}
	p := asProblem(err)
	return c.send(wsFrame{Type: "error", Status: p.Status, Error: p.Err})
}
