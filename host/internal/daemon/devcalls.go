package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// callEvery is how often the journal is looked at for calls.
const callEvery = 50 * time.Millisecond

// taskEvent is an event of a journal as the API gives it.
type taskEvent struct {
	Timestamp string          `json:"timestamp"`
	Kind      string          `json:"kind"`
	Payload   json.RawMessage `json:"payload"`
}

// calls tells of a mission's tool calls: what was proposed, what the gate has
// decided, and what became of it.
type calls struct {
	d       *dev
	mission string
	after   uint64
	tools   map[string]string // by invocation id
}

// tellCalls tells of a mission's calls until the function that it gives is
// called, which tells the rest.
func (d *dev) tellCalls(ctx context.Context, mission string) (finish func()) {
	c := &calls{d: d, mission: mission, tools: map[string]string{}}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(callEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-stop:
				c.tell(ctx)
				return
			case <-t.C:
				c.tell(ctx)
			}
		}
	}()
	return func() { close(stop); <-done }
}

// tell tells what is new in the journal.
func (c *calls) tell(ctx context.Context) {
	for {
		var page struct {
			Events []json.RawMessage `json:"events"`
			Next   uint64            `json:"next"`
		}
		path := fmt.Sprintf("/tasks/%s/events?after=%d", url.PathEscape(c.mission), c.after)
		if err := c.d.get(ctx, path, &page); err != nil || len(page.Events) == 0 {
			return
		}
		c.after = page.Next
		for _, raw := range page.Events {
			c.one(raw)
		}
	}
}

// one tells one event, if it is about a call.
func (c *calls) one(raw json.RawMessage) {
	var ev taskEvent
	if json.Unmarshal(raw, &ev) != nil {
		return
	}
	word, text := c.words(&ev)
	switch {
	case word == "":
	case c.d.json:
		c.d.say("%s\n", raw)
	default:
		at, err := time.Parse(time.RFC3339Nano, ev.Timestamp)
		clock := ev.Timestamp
		if err == nil {
			clock = at.Local().Format("15:04:05.000")
		}
		c.d.say("%s    %-20s %s\n", clock, word, text)
	}
}

// words are the words of seed 003 for an event; "" = it is no call.
func (c *calls) words(ev *taskEvent) (word, text string) {
	var p struct {
		Tool       string          `json:"tool_name"`
		Args       json.RawMessage `json:"tool_args"`
		Invocation string          `json:"invocation_id"`
		Outcome    string          `json:"outcome"`
		Error      string          `json:"error"`
		Decision   struct {
			Status string `json:"status"`
			Reason string `json:"reason"`
		} `json:"decision"`
	}
	if json.Unmarshal(ev.Payload, &p) != nil {
		return "", ""
	}
	switch ev.Kind {
	case "proposed":
		return "proposed", p.Tool + " " + short(p.Args)
	case "decision":
		return "decided", p.Tool + " " + strings.TrimSuffix(p.Decision.Status+": "+p.Decision.Reason, ": ")
	case "executed":
		c.tools[p.Invocation] = p.Tool
		return "executed", p.Tool + " " + p.Invocation
	case "completed", "failed":
		if p.Invocation == "" {
			return "", "" // the mission's own end
		}
		text = c.tools[p.Invocation] + " " + p.Invocation
		if ev.Kind == "failed" {
			text += ": " + strings.TrimSuffix(p.Outcome+", "+p.Error, ", ")
		}
		return ev.Kind, text
	}
	return "", ""
}

// short is a call's arguments on a part of a line.
func short(args json.RawMessage) string {
	const most = 100
	r := []rune(string(args))
	if len(r) > most {
		return string(r[:most]) + "…"
	}
	return string(r)
}

// get reads an answer of the host's API.
func (d *dev) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.addresses.REST+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(into)
}
