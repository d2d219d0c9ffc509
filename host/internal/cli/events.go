package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// retryEvery is the wait before a broken stream is opened again.
const retryEvery = 500 * time.Millisecond

// maxRetries is how often in a row a stream may break without an event.
const maxRetries = 20

// errEnough ends a follow from inside.
var errEnough = errors.New("enough")

// follow hands a task's events after a sequence to take, as they come, until
// take gives errEnough or another error. A stream that breaks is opened again
// behind the last event.
func (c *client) follow(ctx context.Context, task string, after uint64, take func(event) error) error {
	failures := 0
	for {
		before := after
		err := c.stream(ctx, task, &after, take)
		var stop *stopError
		var e *exitError
		switch {
		case errors.As(err, &stop):
			return stop.err
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &e) && e.code != ExitFailed:
			return err // the host answered, and it will not change its mind
		}
		if failures++; after != before {
			failures = 0
		}
		if failures > maxRetries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryEvery):
		}
	}
}

// stopError says that take wants no more, because of err or nil.
type stopError struct{ err error }

func (s *stopError) Error() string { return "the follow was ended" }

func (c *client) stream(ctx context.Context, task string, after *uint64, take func(event) error) error {
	path := fmt.Sprintf("/tasks/%s/events?after=%d", segment(task), *after)
	resp, err := c.open(ctx, http.MethodGet, path, nil, "Accept", "text/event-stream")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("the stream of %s broke off: %w", c.where, err)
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte("data: "))
		if !ok {
			continue
		}
		ev := event{raw: data}
		if err := json.Unmarshal(data, &ev); err != nil || ev.Sequence == 0 {
			return fmt.Errorf("the host's journal cannot be read: %s", printable(string(data)))
		}
		*after = ev.Sequence
		if err := take(ev); err != nil {
			if errors.Is(err, errEnough) {
				err = nil
			}
			return &stopError{err}
		}
	}
}

// pages hands a task's events so far to take.
func (c *client) pages(ctx context.Context, task string, after uint64, take func(event) error) error {
	for {
		var page struct {
			Events []json.RawMessage `json:"events"`
			Next   uint64            `json:"next"`
		}
		if _, err := c.get(ctx, fmt.Sprintf("/tasks/%s/events?after=%d", segment(task), after), &page); err != nil {
			return err
		}
		for _, raw := range page.Events {
			ev := event{raw: raw}
			if err := json.Unmarshal(raw, &ev); err != nil {
				return err
			}
			if err := take(ev); err != nil {
				return err
			}
		}
		if page.Next <= after {
			return nil
		}
		after = page.Next
	}
}

// ended follows a mission to its end and reads it. each, if not nil, sees every
// event on the way.
func (c *client) ended(ctx context.Context, id string, each func(event) error) (*mission, []byte, error) {
	err := c.follow(ctx, id, 0, func(ev event) error {
		if each != nil {
			if err := each(ev); err != nil {
				return err
			}
		}
		if ev.Kind == "ended" {
			return errEnough
		}
		return nil
	})
	if err != nil {
		return nil, nil, named(err, "mission", id)
	}
	var m mission
	text, err := c.get(ctx, "/api/v1/missions/"+segment(id), &m)
	return &m, text, err
}

// says is an event on one line: kind and the payload's members that tell
// something, in the words of the journal.
func (ev *event) says() string {
	if ev.Damaged != "" {
		return "DAMAGED: " + ev.Damaged
	}
	var p map[string]any
	dec := json.NewDecoder(bytes.NewReader(ev.Payload))
	dec.UseNumber()
	if dec.Decode(&p) != nil {
		return ""
	}
	if d, ok := p["decision"].(map[string]any); ok { // the verdict of a decision event
		for _, key := range []string{"status", "risk", "reason"} {
			p[key] = d[key]
		}
	}
	var words []string
	for _, key := range []string{
		"tool", "tool_name", "issuer", "result", "status", "risk", "action", "phase", "summary", "pct_complete", "prompt", "hitl_id", "outcome", "resumed_from",
		"state", "reason", "error", "exit_code", "actor", "by", "aborted_by", "agent", "agent_runtime", "session_id", "cell_id", "checkpoint_id",
		"decision_id", "invocation_id", "what", "note", "epoch", "generation",
	} {
		v, ok := p[key]
		if !ok || v == nil || v == "" {
			continue
		}
		text := fmt.Sprint(v)
		if strings.ContainsAny(text, " \t\n\"") {
			if key != "error" { // what went wrong is shown whole
				text = cut(text, 100)
			}
			text = fmt.Sprintf("%q", text)
		}
		words = append(words, key+"="+text)
	}
	return strings.Join(words, " ")
}

// show prints the event on one line.
func (ev *event) show(w io.Writer) { ev.print(w, ev.says()) }

// print prints sequence, time and kind with a text.
func (ev *event) print(w io.Writer, text string) {
	at := ev.Timestamp
	if t, err := time.Parse(time.RFC3339, at); err == nil {
		at = t.Local().Format("15:04:05.000")
	}
	fmt.Fprintf(w, "%5d  %s  %-18s %s\n", ev.Sequence, at, printable(ev.Kind), printable(text))
}
