package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// heartbeat is how often a silent stream says that it is alive.
const heartbeat = 15 * time.Second

// sseWrite is how many bytes of events are gathered for one write, about.
const sseWrite = 256 << 10

// eventList is the answer of GET /tasks/{id}/events.
type eventList struct {
	Events []journal.Shown `json:"events"`
	Next   uint64          `json:"next"` // what to ask for after
}

// taskEvents answers a page of events, or with Accept: text/event-stream all of
// them as they come.
func (s *Server) taskEvents(w http.ResponseWriter, r *http.Request, op *Operator) error {
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	text, field := r.URL.Query().Get("after"), "after"
	stream := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	if last := r.Header.Get("Last-Event-ID"); stream && last != "" {
		text, field = last, "Last-Event-ID"
	}
	var after uint64
	if text != "" {
		if after, err = strconv.ParseUint(text, 10, 63); err != nil {
			return badField(field, "it must be a sequence number")
		}
	}
	if stream {
		return s.streamEvents(w, r, v.TaskID, after)
	}
	limit := maxPage
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return badField("limit", "it must be a number from 1 to 100")
		}
		limit = min(n, maxPage)
	}
	page, err := s.opts.Events.Show(r.Context(), v.TaskID, after, limit)
	if err != nil {
		return err
	}
	list := eventList{Events: page, Next: after}
	if page == nil {
		list.Events = []journal.Shown{}
	}
	if n := len(page); n > 0 {
		list.Next = page[n-1].Sequence
	}
	return writeJSON(w, http.StatusOK, list)
}

// eventName is the name of a server-sent event. A kind that was changed may hold
// anything.
func eventName(ev journal.Shown) string {
	if ev.Kind == "" || strings.ContainsFunc(string(ev.Kind), func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		return "damaged"
	}
	return string(ev.Kind)
}

// streamEvents sends server-sent events; the id is the sequence. It reads page
// by page at the reader's pace, so nothing is queued for a slow one; a write
// that does not get through in time ends it.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request, task string, after uint64) error {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	send := func(text []byte) bool {
		_ = rc.SetWriteDeadline(s.now().Add(s.opts.WriteTimeout))
		if _, err := w.Write(text); err != nil {
			return false
		}
		return rc.Flush() == nil
	}
	if !send([]byte(": events\n\n")) {
		return nil
	}
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		changed := s.opts.Events.EventsChanged(task)
		page, err := s.opts.Events.Show(r.Context(), task, after, maxPage)
		if err != nil {
			send([]byte("event: error\ndata: {\"error\":\"the journal cannot be read\"}\n\n"))
			return nil
		}
		// What is written at once is also read and drawn at once.
		var text []byte
		for i := range page {
			body, err := json.Marshal(page[i])
			if err != nil {
				return nil
			}
			text = fmt.Appendf(text, "id: %d\nevent: %s\ndata: %s\n\n", page[i].Sequence, eventName(page[i]), body)
			if len(text) >= sseWrite || i == len(page)-1 {
				if !send(text) {
					return nil
				}
				text = text[:0]
			}
			after = page[i].Sequence
		}
		if len(page) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ticker.C:
			if !send([]byte(": alive\n\n")) {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}

// exportTask is GET /tasks/{id}/export: the journal up to now as JSON lines, the
// payloads as the exact hashed text, so that it can be verified by itself. An
// export that cannot be finished ends the connection, never as if it were whole.
func (s *Server) exportTask(w http.ResponseWriter, r *http.Request, op *Operator) error {
	v, err := s.visible(r.Context(), op, r.PathValue("id"))
	if err != nil {
		return err
	}
	head, err := s.opts.Events.Head(r.Context(), v.TaskID)
	if err != nil {
		return err
	}
	out := journal.NewWriter(w)
	if err := s.sendEvents(w, r, head, out.Write); err != nil {
		return err
	}
	if out.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// sendEvents hands over the events of a task up to a head, page by page. Its
// error is one that can still be answered; later ones end the connection.
func (s *Server) sendEvents(w http.ResponseWriter, r *http.Request, head journal.Head, write func(*journal.Event) error) error {
	rc := http.NewResponseController(w)
	for after := uint64(0); after < head.Sequence; {
		page, err := s.opts.Events.Events(r.Context(), head.TaskID, after, maxPage)
		switch {
		case err != nil && after == 0:
			return err
		case err != nil || len(page) == 0:
			s.log.Error("an export cannot be finished", "task", head.TaskID, "after", after, "error", err)
			panic(http.ErrAbortHandler)
		}
		if after == 0 {
			h := w.Header()
			h.Set("Content-Type", "application/x-ndjson")
			h.Set("Cache-Control", "no-store")
			h.Set("Airlock-Head-Sequence", strconv.FormatUint(head.Sequence, 10))
			h.Set("Airlock-Head-Digest", head.Digest.String())
		}
		_ = rc.SetWriteDeadline(s.now().Add(s.opts.WriteTimeout))
		for i := range page {
			if page[i].Sequence > head.Sequence {
				break
			}
			if err := write(&page[i]); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		after = page[len(page)-1].Sequence
	}
	return nil
}
