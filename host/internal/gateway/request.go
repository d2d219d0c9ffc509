package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// pathAllowed says whether a path may be called. One that a server might read
// otherwise than it is written is never allowed.
func pathAllowed(u *url.URL, globs []string) bool {
	p := u.Path
	if p == "" || p[0] != '/' || u.EscapedPath() != p || strings.ContainsAny(p, "\\;%") || strings.Contains(p, "//") {
		return false
	}
	if c := path.Clean(p); c != p && c+"/" != p {
		return false
	}
	for _, g := range globs {
		if glob(g, p) {
			return true
		}
	}
	return len(globs) == 0
}

// glob matches * with any characters, slashes too.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	rest, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return strings.HasSuffix(rest, parts[last])
}

// envelope is what the gateway must know of a request's body.
type envelope struct {
	body      []byte
	model     string
	maxTokens int64 // 0: not said
	at, end   int   // where max_tokens is written
	thinking  int64 // thinking.budget_tokens, which max_tokens must exceed
}

var errBody = errors.New("the body is not one JSON object")

// openEnvelope reads the top level of a body. A member that counts here and
// occurs twice is refused: servers differ in which one they take.
func openEnvelope(body []byte) (envelope, error) {
	e := envelope{body: body}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return e, errBody
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return e, errBody
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return e, errBody
		}
		name, _ := key.(string)
		switch name {
		case "model", "max_tokens", "thinking":
			if seen[name] {
				return e, fmt.Errorf("the body has %q twice", name)
			}
			seen[name] = true
		default:
			continue
		}
		end := int(d.InputOffset())
		if err := e.take(name, raw, end); err != nil {
			return e, err
		}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') || len(bytes.TrimSpace(body[d.InputOffset():])) > 0 {
		return e, errBody
	}
	return e, nil
}

func (e *envelope) take(name string, raw json.RawMessage, end int) error {
	switch name {
	case "model":
		if json.Unmarshal(raw, &e.model) != nil {
			return errors.New("model is not a string")
		}
	case "max_tokens":
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n < 1 || n > 1<<31 {
			return errors.New("max_tokens is not a whole number above 0")
		}
		e.maxTokens, e.at, e.end = n, end-len(raw), end
	case "thinking":
		var t struct {
			Budget int64 `json:"budget_tokens"`
		}
		if json.Unmarshal(raw, &t) == nil {
			e.thinking = t.Budget
		}
	}
	return nil
}

// lowered is the body with another max_tokens; every other byte is as it was.
func (e *envelope) lowered(n int64) []byte {
	out := make([]byte, 0, len(e.body)+20)
	out = append(out, e.body[:e.at]...)
	out = strconv.AppendInt(out, n, 10)
	return append(out, e.body[e.end:]...)
}

// inputEstimate is about how many tokens the body is; its JSON makes up for
// what is denser than four bytes a token.
func (e *envelope) inputEstimate() int64 { return int64(len(e.body)/4) + 1 }
