package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/gorilla/websocket"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// maxKnown bounds what a feed remembers of which task is whose.
const maxKnown = 4096

// prepareFeed is /ws/events?after=CURSOR&task=: every event that the operator
// may see, in the order of commits. Each frame carries the cursor to resume
// after. Without after it begins with what comes next.
func (s *Server) prepareFeed(r *http.Request, op *Operator) (wsRun, error) {
	f := &feed{s: s, op: op, task: r.URL.Query().Get("task"), known: map[string]bool{}}
	if text := r.URL.Query().Get("after"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return wsRun{}, badField("after", "it must be a cursor of this feed")
		}
		f.at = n
		return wsRun{run: f.run}, nil
	}
	end, err := s.opts.Events.FeedEnd(r.Context())
	if err != nil {
		return wsRun{}, err
	}
	f.at = end
	return wsRun{run: f.run}, nil
}

// feed is one socket of events.
type feed struct {
	s     *Server
	op    *Operator
	task  string
	at    int64
	known map[string]bool // by task: may the operator see it
}

func (f *feed) cursor() string { return strconv.FormatInt(f.at, 10) }

func (f *feed) run(ctx context.Context, c *wsConn) {
	ctx, cancel := context.WithCancel(ctx)
	if c.send(wsFrame{Type: "ready", Cursor: f.cursor()}) != nil {
		cancel()
		return
	}
	wait := c.serve(ctx, cancel, func(int, []byte) error { return nil })
	defer wait()
	err := f.pump(ctx, c)
	switch {
	case slow(err):
		c.close(websocket.CloseTryAgainLater, "too slow; resume with after="+f.cursor())
	case ctx.Err() != nil:
		c.close(websocket.CloseGoingAway, "going away; resume with after="+f.cursor())
	case err != nil:
		f.s.log.Error("the event feed cannot be read", "error", err)
		c.refuse(refuse(http.StatusServiceUnavailable, "the journal cannot be read"))
	}
}

// pump reads page by page at the reader's pace; nothing is queued.
func (f *feed) pump(ctx context.Context, c *wsConn) error {
	for {
		changed := f.s.opts.Events.Changed()
		events, cursors, err := f.s.opts.Events.Feed(ctx, f.at, maxPage)
		if err != nil {
			return err
		}
		for i := range events {
			if f.wanted(ctx, &events[i]) {
				body, err := json.Marshal(journal.Shown{Event: events[i]})
				if err != nil {
					return err
				}
				if err := c.send(wsFrame{Type: "event", Cursor: strconv.FormatInt(cursors[i], 10), Event: body}); err != nil {
					return err
				}
			}
			f.at = cursors[i]
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *feed) wanted(ctx context.Context, ev *journal.Event) bool {
	if f.task != "" && f.task != ev.TaskID {
		return false
	}
	if !f.op.Restricted() {
		return true
	}
	may, ok := f.known[ev.TaskID]
	if !ok {
		_, err := f.s.visible(ctx, f.op, ev.TaskID)
		may = err == nil
		if len(f.known) >= maxKnown {
			clear(f.known)
		}
		f.known[ev.TaskID] = may
	}
	return may
}
