package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// gather is how long changes are gathered before they are sent as one. The first
// one after a rest is sent at once.
const gather = 50 * time.Millisecond

// sse is an answer of server-sent events. A write that does not get through in
// time ends it.
type sse struct {
	s  *Server
	w  http.ResponseWriter
	rc *http.ResponseController
}

// stream begins an answer of server-sent events.
func (s *Server) stream(w http.ResponseWriter) *sse {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	return &sse{s, w, http.NewResponseController(w)}
}

func (e *sse) write(text []byte) bool {
	_ = e.rc.SetWriteDeadline(e.s.now().Add(e.s.opts.WriteTimeout))
	if _, err := e.w.Write(text); err != nil {
		return false
	}
	return e.rc.Flush() == nil
}

// event sends v as the data of an event.
func (e *sse) event(name string, v any) bool {
	body, err := json.Marshal(v)
	return err == nil && e.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, body))
}

// alive sends a comment, so that a silent stream is not taken for a dead one.
func (e *sse) alive() bool { return e.write([]byte(": alive\n\n")) }

// streamMissions is GET /api/v1/missions with Accept: text/event-stream: each
// mission that changes, as it is then. What changes often is sent once for every
// 50 ms, what changes after a rest at once. Ask for the list after the first comment has come: nothing is missed.
func (s *Server) streamMissions(w http.ResponseWriter, r *http.Request, op *Operator) error {
	at, err := s.opts.Events.FeedEnd(r.Context())
	if err != nil {
		return err
	}
	out := s.stream(w)
	if !out.write([]byte(": missions\n\n")) {
		return nil
	}
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		rest := time.After(gather)
		changed := s.opts.Events.Changed()
		ids, end, err := s.changedSince(r.Context(), at)
		if err != nil {
			out.event("error", map[string]string{"error": "the journal cannot be read"})
			return nil
		}
		at = end
		for _, id := range ids {
			v, err := s.visible(r.Context(), op, id)
			if err == nil && !out.event("mission", v) {
				return nil
			}
		}
		select {
		case <-changed:
		case <-ticker.C:
			if !out.alive() {
				return nil
			}
			continue
		case <-r.Context().Done():
			return nil
		}
		select {
		case <-rest:
		case <-r.Context().Done():
			return nil
		}
	}
}

// changedSince lists the tasks that have events behind a cursor, each once.
func (s *Server) changedSince(ctx context.Context, at int64) (ids []string, end int64, err error) {
	seen := map[string]bool{}
	for {
		events, cursors, err := s.opts.Events.Feed(ctx, at, maxPage)
		if err != nil {
			return nil, at, err
		}
		for i := range events {
			if id := events[i].TaskID; !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
			at = cursors[i]
		}
		if len(events) < maxPage || len(ids) >= maxPage {
			return ids, at, nil
		}
	}
}
