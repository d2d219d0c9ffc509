package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/airlock-host/airlock/host/internal/jsontext"
)

// maxBody is the longest body that is read (surface, Routes).
const maxBody = 1 << 20

// member is one member of a closed body: its name, spelled exactly, and where
// its value goes: *string, *bool, *[]string, *json.RawMessage (an object), *list
// (an array), *anyValue, *seconds or **int64. Raw values keep every byte that
// came. null is as good as absent.
type member struct {
	name     string
	into     any
	required bool
}

type (
	list     json.RawMessage // any JSON array
	anyValue json.RawMessage // any JSON value
	seconds  time.Duration   // a number of seconds, at most maxHold
)

// maxHold is the longest that a harness may have a request held.
const maxHold = time.Hour

// readBody reads the body of a request and decodes it. optional says that there
// may be none at all.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, optional bool, members ...member) error {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(s.now().Add(s.opts.BodyTimeout)) // not every server can
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil { // else the rest of the body must not be waited for either
		_ = rc.SetReadDeadline(time.Time{})
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody))
	case err != nil:
		return refuse(http.StatusBadRequest, "the body could not be read to its end")
	case len(data) == 0 && optional:
		return nil
	}
	if p := contentType(r); p != nil {
		return p
	}
	if p := decodeBody(data, members...); p != nil {
		return p
	}
	return nil
}

// contentType refuses everything but JSON in UTF-8.
func contentType(r *http.Request) *problem {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset, has := params["charset"]
	if err != nil || kind != "application/json" || has && !strings.EqualFold(charset, "utf-8") {
		p := refuse(http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		p.Field = "Content-Type"
		return p
	}
	return nil
}

// decodeBody decodes a closed body. Names are matched exactly; a name that is
// there twice, at any depth, or that is not known is refused with its path.
func decodeBody(data []byte, members ...member) *problem {
	if !utf8.Valid(data) {
		return refuse(http.StatusBadRequest, "the body is not UTF-8")
	}
	if !json.Valid(data) {
		return refuse(http.StatusBadRequest, "the body is not one JSON value")
	}
	if jsontext.LoneSurrogate(data) {
		return refuse(http.StatusBadRequest, "the body holds half of a surrogate pair")
	}
	if path := duplicate(data); path != "" {
		return badField(path, "it is there twice")
	}
	var body map[string]json.RawMessage
	if bytes.TrimLeft(data, " \t\r\n")[0] != '{' || json.Unmarshal(data, &body) != nil {
		return refuse(http.StatusBadRequest, "the body must be a JSON object")
	}
	for _, m := range members {
		raw, ok := body[m.name]
		delete(body, m.name)
		if !ok || string(raw) == "null" {
			if m.required {
				return badField(m.name, "it is required")
			}
			continue
		}
		if text := decodeMember(raw, m.into); text != "" {
			return badField(m.name, text)
		}
	}
	if len(body) > 0 {
		unknown := make([]string, 0, len(body))
		for name := range body {
			unknown = append(unknown, name)
		}
		slices.Sort(unknown)
		return badField(unknown[0], "unknown member")
	}
	return nil
}

// decodeMember decodes one value; it says what it must be when it is not.
func decodeMember(raw json.RawMessage, into any) string {
	switch dst := into.(type) {
	case *string:
		if raw[0] != '"' || json.Unmarshal(raw, dst) != nil {
			return "it must be a string"
		}
	case *bool:
		if json.Unmarshal(raw, dst) != nil {
			return "it must be true or false"
		}
	case *[]string:
		var items []*string
		if raw[0] != '[' || json.Unmarshal(raw, &items) != nil || slices.Contains(items, nil) {
			return "it must be an array of strings"
		}
		for _, item := range items {
			*dst = append(*dst, *item)
		}
	case *json.RawMessage:
		if raw[0] != '{' {
			return "it must be an object"
		}
		*dst = raw
	case *list:
		if raw[0] != '[' {
			return "it must be an array"
		}
		*dst = list(raw)
	case *anyValue:
		*dst = anyValue(raw)
	case *seconds:
		d, ok := parseSeconds(string(raw))
		if !ok {
			return badHold
		}
		*dst = seconds(d)
	case **int64:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n < 0 {
			return "it must be a whole number, not below 0"
		}
		*dst = &n
	}
	return ""
}

const badHold = "it must be a number of seconds from 0 to 3600"

// parseSeconds reads a wait.
func parseSeconds(text string) (time.Duration, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f <= maxHold.Seconds()) {
		return 0, false
	}
	return time.Duration(f * float64(time.Second)), true
}

// duplicate finds the first name that an object has twice and gives its path.
// data is valid JSON.
func duplicate(data []byte) string {
	type frame struct {
		names map[string]bool // nil: an array
		name  string          // the member whose value comes next; empty: a name comes next
		index int
	}
	var stack []*frame
	path := func() string {
		var b strings.Builder
		for i, f := range stack {
			switch {
			case f.names == nil:
				fmt.Fprintf(&b, "[%d]", f.index)
			default:
				if i > 0 {
					b.WriteByte('.')
				}
				b.WriteString(f.name)
			}
		}
		return b.String()
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	inName := false
	for {
		tok, err := dec.Token()
		if err != nil {
			return ""
		}
		top := func() *frame {
			if len(stack) == 0 {
				return nil
			}
			return stack[len(stack)-1]
		}
		if f := top(); f != nil && f.names != nil && inName {
			if name, ok := tok.(string); ok {
				f.name, inName = name, false
				if f.names[name] {
					return path()
				}
				f.names[name] = true
				continue
			}
		}
		switch tok {
		case json.Delim('{'):
			stack, inName = append(stack, &frame{names: map[string]bool{}}), true
			continue
		case json.Delim('['):
			stack, inName = append(stack, &frame{}), false
			continue
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
		// A value has ended.
		if f := top(); f != nil {
			f.index++
			inName = f.names != nil
		}
	}
}
