package journal

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// wireEvent is an event in JSON. The payload is an object over HTTP and the
// exact text in an export.
type wireEvent struct {
	Sequence     uint64          `json:"sequence"`
	EventID      string          `json:"event_id"`
	TaskID       string          `json:"task_id"`
	Timestamp    string          `json:"timestamp"`
	Kind         Kind            `json:"kind"`
	Payload      json.RawMessage `json:"payload"`
	PreviousHash Digest          `json:"previous_hash"`
	Digest       Digest          `json:"digest"`
}

// MarshalJSON gives the event for HTTP readers: the payload as an object.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireEvent{
		e.Sequence, e.EventID, e.TaskID, e.Timestamp.UTC().Format(TimeLayout), e.Kind,
		json.RawMessage(e.Payload), e.PreviousHash, e.Digest,
	})
}

// ExportJSON gives the event for an export: the payload as a JSON string that
// holds the exact hashed text.
func (e Event) ExportJSON() ([]byte, error) { return e.AppendExport(nil), nil }

// AppendExport appends the event's line of an export, without the newline.
// Field order, spacing and escapes are always the same, so that two exports of
// one chain are identical.
func (e *Event) AppendExport(b []byte) []byte {
	b = append(b, `{"sequence":`...)
	b = strconv.AppendUint(b, e.Sequence, 10)
	b = append(b, `,"event_id":`...)
	b = appendString(b, e.EventID)
	b = append(b, `,"task_id":`...)
	b = appendString(b, e.TaskID)
	b = append(b, `,"timestamp":"`...)
	b = appendTime(b, e.Timestamp)
	b = append(b, `","kind":`...)
	b = appendString(b, string(e.Kind))
	b = append(b, `,"payload":`...)
	b = appendString(b, e.Payload)
	b = append(b, `,"previous_hash":"`...)
	b = hex.AppendEncode(b, e.PreviousHash[:])
	b = append(b, `","digest":"`...)
	b = hex.AppendEncode(b, e.Digest[:])
	return append(b, `"}`...)
}

// appendString appends s as a JSON string. Only what JSON demands is escaped;
// s is valid UTF-8 (Event.Check).
func appendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		start = i + 1
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// Check says whether the event can be kept at all, whatever its place in a
// chain: every text is UTF-8, the payload is one JSON object (so that a value
// that cannot be journalled fails before it is dispatched, governance J19),
// the time is whole milliseconds of a four-digit year, and the digest is right.
func (e *Event) Check() error {
	switch {
	case e.TaskID == "" || !utf8.ValidString(e.TaskID):
		return bad("the task id is empty or not UTF-8")
	case e.EventID == "" || !utf8.ValidString(e.EventID):
		return bad("the event id is empty or not UTF-8")
	case !e.Kind.Known():
		return bad("the kind " + strconv.Quote(string(e.Kind)) + " is not known")
	case !utf8.ValidString(e.Payload):
		return bad("the payload is not UTF-8")
	case len(e.Payload) == 0 || e.Payload[0] != '{' || !json.Valid([]byte(e.Payload)):
		return bad("the payload is not a JSON object")
	case e.Timestamp.Nanosecond()%int(time.Millisecond) != 0 || e.Timestamp.UTC().Year() < 1 || e.Timestamp.UTC().Year() > 9999:
		return bad("the timestamp is not in whole milliseconds of a four-digit year")
	case e.Digest != e.Sum():
		return bad("the digest does not match the content")
	}
	return nil
}

type bad string

func (b bad) Error() string { return "event cannot be kept: " + string(b) }
