package journal

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Shown is an event as a reader gets it who is to have the others although this
// one is damaged.
type Shown struct {
	Event
	Damaged string // what is wrong with the stored record; empty: nothing was found
}

// shownEvent is a damaged event in JSON.
type shownEvent struct {
	wireEvent
	Damaged string `json:"damaged"`
	// Text is the stored payload where it is no JSON object any more.
	Text string `json:"payload_text,omitempty"`
}

// notAnObject is said of a payload that is no JSON object.
const notAnObject = "its payload is not the JSON object that was written: the record was torn or changed"

// MarshalJSON gives the event as Event does; of a damaged one it says "damaged",
// and where the payload cannot be an object it is null and its text beside it.
func (s Shown) MarshalJSON() ([]byte, error) {
	object := json.Valid([]byte(s.Payload)) && bytes.HasPrefix(bytes.TrimSpace([]byte(s.Payload)), []byte("{"))
	if object && s.Damaged == "" {
		return s.Event.MarshalJSON()
	}
	out := shownEvent{Damaged: s.Damaged, wireEvent: wireEvent{s.Sequence, s.EventID, s.TaskID, s.Timestamp.UTC().Format(TimeLayout), s.Kind, json.RawMessage(s.Payload), s.PreviousHash, s.Digest}}
	if !object {
		out.Payload, out.Text = json.RawMessage("null"), s.Payload
		if !utf8.ValidString(out.Text) {
			out.Text = strings.ToValidUTF8(out.Text, "\uFFFD")
		}
		if out.Damaged == "" {
			out.Damaged = notAnObject
		}
	}
	return json.Marshal(out)
}
