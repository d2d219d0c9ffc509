package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// events are a task's events, as the API shows them.
func (c *chaos) events(id string) []json.RawMessage {
	var all []json.RawMessage
	for after := 0; ; {
		var page struct {
			Events []json.RawMessage `json:"events"`
			Next   int               `json:"next"`
		}
		if c.call("GET", fmt.Sprintf("/tasks/%s/events?after=%d", escape(id), after), nil, &page) != http.StatusOK || len(page.Events) == 0 {
			return all
		}
		all, after = append(all, page.Events...), page.Next
	}
}

// remember notes every event that the host shows: who has seen one may rely on
// it.
func (c *chaos) remember() {
	for _, id := range c.ids() {
		if now := c.events(id); len(now) > len(c.seen[id]) {
			c.seen[id] = now
		}
	}
}

func (c *chaos) ids() []string {
	ids := append([]string(nil), c.tasks...)
	for _, e := range c.missions {
		ids = append(ids, e.id)
	}
	return ids
}

// judge waits until every mission is over and holds it against the model: one
// terminal state, told once, no side effect twice, no event lost that was seen,
// all access taken back.
func (c *chaos) judge() {
	c.t.Helper()
	for _, e := range c.missions {
		if !e.taken && c.call("GET", "/api/v1/missions/"+e.id, nil, nil) == http.StatusNotFound {
			continue // nobody was told that it is taken
		}
		c.judgeEffects(e, c.outcome(e))
		ends := 0
		for _, kind := range c.journal(e.id) {
			if kind == "ended" {
				ends++
			}
		}
		told := map[string]bool{}
		for _, name := range c.names(e.id) {
			switch name {
			case "mission.completed", "mission.failed", "mission.aborted":
				told[name] = true
			}
		}
		if ends != 1 || len(told) > 1 || len(told) == 0 && !e.forgotten {
			c.t.Errorf("%s: %d ends in its journal, told as %v", e.id, ends, told)
		}
		if c.issuer != nil {
			c.until(e.id+": its access is taken back", func() bool { return c.issuer.denies(e.id) })
		}
	}
	for _, id := range c.ids() {
		if len(c.seen[id]) == 0 && c.call("GET", "/tasks/"+id+"/status", nil, nil) == http.StatusNotFound {
			continue // it was never taken
		}
		var verdict struct {
			Valid bool `json:"valid"`
		}
		if status := c.call("GET", "/tasks/"+id+"/verify", nil, &verdict); status != 200 || !verdict.Valid {
			c.t.Errorf("%s: its journal does not verify (%d)", id, status)
		}
		now := c.events(id)
		for i, ev := range c.seen[id] {
			if i >= len(now) || !bytes.Equal(ev, now[i]) {
				c.t.Errorf("%s: event %d was there once and is lost or changed: %s", id, i+1, ev)
			}
		}
	}
	c.missions, c.tasks, c.seen = nil, nil, map[string][]json.RawMessage{}
}

// outcome is how a mission ended, as the orchestrator was told, or as the host
// says of one that the orchestrator has forgotten.
func (c *chaos) outcome(e expectation) orchestrator.Mission {
	if !e.forgotten {
		return c.reaches(e.id, "done", "failed", "aborted")
	}
	var m struct {
		State    string `json:"state"`
		ExitCode *int   `json:"exit_code"`
		Reason   string `json:"state_reason"`
	}
	c.until(e.id+" is over", func() bool {
		return c.call("GET", "/api/v1/missions/"+e.id, nil, &m) == http.StatusOK && (m.State == "done" || m.State == "failed" || m.State == "aborted")
	})
	return orchestrator.Mission{State: m.State, ExitCode: m.ExitCode, Error: m.Reason}
}

func (c *chaos) judgeEffects(e expectation, m orchestrator.Mission) {
	a, b := len(c.lines(e.id+".a")), len(c.lines(e.id+".b"))
	want := "done"
	if e.code != 0 {
		want = "failed"
	}
	excused := e.exposed && m.State == "failed" && m.ExitCode == nil || // with its cell
		m.State == "failed" && m.ExitCode == nil && a == 0 && b == 0 || // it was never started
		e.aborted && m.State == "aborted"
	switch {
	case a > 1 || b > 1:
		c.t.Errorf("%s: its side effects happened %d and %d times", e.id, a, b)
	case excused:
	case m.State != want || m.ExitCode == nil || *m.ExitCode != e.code:
		c.t.Errorf("%s: state %s, exit code %v, error %q; want %s with %d", e.id, m.State, m.ExitCode, m.Error, want, e.code)
	case !e.quiet && (a != 1 || b != 1):
		c.t.Errorf("%s: %s, and its side effects happened %d and %d times", e.id, m.State, a, b)
	}
}
