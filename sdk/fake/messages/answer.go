package messages

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// answer is a plan on its way to a client.
type answer struct {
	plan
	id, model string
	used      Usage
	ids       []string // of the parts that are calls
}

func newAnswer(p plan, model string, body int) *answer {
	a := &answer{plan: p, id: newID("msg"), model: model, used: p.used(body)}
	for _, part := range p.parts {
		id := ""
		if part.kind == "tool_use" {
			id = fmt.Sprintf("%s_%d", newID("toolu"), p.next)
		}
		a.ids = append(a.ids, id)
	}
	return a
}

func newID(kind string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return kind + "_" + hex.EncodeToString(b[:])
}

// content is a part as a plain answer has it.
func (a *answer) content(i int) map[string]any {
	switch part := a.parts[i]; part.kind {
	case "tool_use":
		return map[string]any{"type": "tool_use", "id": a.ids[i], "name": part.tool, "input": part.input}
	case "thinking":
		return map[string]any{"type": "thinking", "thinking": part.text, "signature": "stand-in"}
	default:
		return map[string]any{"type": "text", "text": part.text}
	}
}

// message is the answer as one document.
func (a *answer) message() map[string]any {
	content := make([]any, len(a.parts))
	for i := range a.parts {
		content[i] = a.content(i)
	}
	return map[string]any{
		"id": a.id, "type": "message", "role": "assistant", "model": a.model,
		"content": content, "stop_reason": a.stop, "stop_sequence": nil, "usage": a.used,
	}
}

// stream writes the answer as events, in the API's order. cut ends it in the
// middle: "break" closes the connection, "fail" sends an error event.
func (a *answer) stream(w http.ResponseWriter, r *http.Request, cut string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	rc := http.NewResponseController(w)
	send := func(kind string, members map[string]any) bool {
		members["type"] = kind
		text, err := json.Marshal(members)
		if err != nil {
			return false
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, text); err != nil || rc.Flush() != nil {
			return false
		}
		return pauseFor(r, a.pace)
	}
	first := a.message()
	begun := a.used
	begun.Output = 1
	first["content"], first["stop_reason"], first["usage"] = []any{}, nil, begun
	if !send("message_start", map[string]any{"message": first}) {
		return
	}
	for i := range a.parts {
		begin, deltas := a.opening(i)
		if !send("content_block_start", map[string]any{"index": i, "content_block": begin}) || i == 0 && !send("ping", map[string]any{}) {
			return
		}
		for n, d := range deltas {
			if i == len(a.parts)-1 && n == len(deltas)/2 && !a.middle(r, cut, send) {
				return
			}
			if !send("content_block_delta", map[string]any{"index": i, "delta": d}) {
				return
			}
		}
		if !send("content_block_stop", map[string]any{"index": i}) {
			return
		}
	}
	if send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": a.stop, "stop_sequence": nil}, "usage": a.used}) {
		send("message_stop", map[string]any{})
	}
}

// middle is what happens half-way of the last part; false ends the stream.
func (a *answer) middle(r *http.Request, cut string, send func(string, map[string]any) bool) bool {
	switch cut {
	case "break":
		panic(http.ErrAbortHandler) // the connection is closed without an end
	case "fail":
		send("error", errorBody(http.StatusInternalServerError, "the script has failed this stream"))
		return false
	}
	return pauseFor(r, a.silent)
}

// opening is a part's first event and the pieces that follow.
func (a *answer) opening(i int) (begin map[string]any, deltas []map[string]any) {
	part := a.parts[i]
	begin = a.content(i)
	switch part.kind {
	case "tool_use":
		begin["input"] = map[string]any{}
		for _, p := range pieces(string(part.input)) {
			deltas = append(deltas, map[string]any{"type": "input_json_delta", "partial_json": p})
		}
	case "thinking":
		begin["thinking"], begin["signature"] = "", ""
		for _, p := range pieces(part.text) {
			deltas = append(deltas, map[string]any{"type": "thinking_delta", "thinking": p})
		}
		deltas = append(deltas, map[string]any{"type": "signature_delta", "signature": "stand-in"})
	default:
		begin["text"] = ""
		for _, p := range pieces(part.text) {
			deltas = append(deltas, map[string]any{"type": "text_delta", "text": p})
		}
	}
	return begin, deltas
}

// pieces cuts a text into a few parts, between characters; at least two, so
// that there is a middle.
func pieces(s string) []string {
	runes := []rune(s)
	size := max((len(runes)+3)/4, 1)
	var out []string
	for len(runes) > 0 {
		n := min(size, len(runes))
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	for len(out) < 2 {
		out = append([]string{""}, out...)
	}
	return out
}

// pauseFor waits, unless the client goes away.
func pauseFor(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return r.Context().Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// errorBody is an error in the API's shape, without its outer type.
func errorBody(status int, text string) map[string]any {
	kind := "api_error"
	switch status {
	case http.StatusBadRequest:
		kind = "invalid_request_error"
	case http.StatusUnauthorized:
		kind = "authentication_error"
	case http.StatusForbidden:
		kind = "permission_error"
	case http.StatusNotFound:
		kind = "not_found_error"
	case http.StatusRequestEntityTooLarge:
		kind = "request_too_large"
	case http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case statusOverloaded:
		kind = "overloaded_error"
	}
	return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": text}}
}

const statusOverloaded = 529
