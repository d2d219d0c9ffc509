package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// watch stands at the orchestrator's door: it notes when events come in, the
// token that the host registers with, and answers read-backs of missions that
// were dispatched past the orchestrator, as it would had it dispatched them.
type watch struct {
	mu      sync.Mutex
	seen    map[string]orchestrator.Event // by event and mission: the first
	shown   map[string]*shown
	token   string
	changed chan struct{}
}

type shown struct{ state, completed string }

func newWatch() *watch {
	return &watch{seen: map[string]orchestrator.Event{}, shown: map[string]*shown{}, changed: make(chan struct{})}
}

func (w *watch) hooks() orchestrator.Hooks {
	return orchestrator.Hooks{Intercept: w.request, BeforeEvent: w.event}
}

// request sees every request to the orchestrator.
func (w *watch) request(rw http.ResponseWriter, r *http.Request) bool {
	if strings.HasPrefix(r.URL.Path, "/ws/executors/") {
		w.mu.Lock()
		w.token = r.URL.Query().Get("token")
		w.mu.Unlock()
		return false
	}
	id, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/v1/missions/")
	if !ok || r.Method != http.MethodGet {
		return false
	}
	if id, err := url.PathUnescape(id); err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if s := w.shown[id]; s != nil {
			rw.Header().Set("Content-Type", "application/json")
			body := map[string]string{"mission_id": id, "state": s.state}
			if s.completed != "" {
				body["completed_at"] = s.completed
			}
			_ = json.NewEncoder(rw).Encode(body)
			return true
		}
	}
	return false
}

// event sees every event before it is handled.
func (w *watch) event(e orchestrator.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.shown[e.MissionID]; s != nil {
		switch e.Event {
		case "mission.completed":
			s.state, s.completed = "done", e.TS
		case "mission.failed":
			s.state, s.completed = "failed", e.TS
		case "mission.aborted":
			s.state, s.completed = "aborted", e.TS
		}
	}
	key := e.Event + " " + e.MissionID
	if _, ok := w.seen[key]; ok {
		return
	}
	w.seen[key] = e
	close(w.changed)
	w.changed = make(chan struct{})
}

// show makes a mission known that was dispatched past the orchestrator.
func (w *watch) show(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown[id] = &shown{state: "assigned"}
}

// forget lets the same events be awaited anew.
func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = map[string]orchestrator.Event{}
}

func (w *watch) executorToken() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.token
}

// await waits until an event of each of these missions has come in, and gives
// them in the same order.
func (w *watch) await(ctx context.Context, event string, ids ...string) ([]orchestrator.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		got := make([]orchestrator.Event, 0, len(ids))
		w.mu.Lock()
		for _, id := range ids {
			if e, ok := w.seen[event+" "+id]; ok {
				got = append(got, e)
			}
		}
		changed := w.changed
		w.mu.Unlock()
		if len(got) == len(ids) {
			return got, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d missions had %s: %w", len(got), len(ids), event, ctx.Err())
		}
	}
}

// last is when the last of some events came in.
func last(events []orchestrator.Event) time.Time {
	var t time.Time
	for _, e := range events {
		if e.Received.After(t) {
			t = e.Received
		}
	}
	return t
}
