package messages

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
)

// recalled is a member of a call's input that stands for one of an earlier
// result.
var recalled = regexp.MustCompile(`"\{\{([A-Za-z0-9_]+)\}\}"`)

// recall puts what earlier calls gave back into the input of a call: a string
// that is "{{NAME}}" becomes the member NAME of the newest result that has one,
// as it was written there. One that nothing has stays as it is, so that whoever
// wrote the script sees it.
func (c *conversation) recall(input json.RawMessage) json.RawMessage {
	return recalled.ReplaceAllFunc(input, func(m []byte) []byte {
		if value := c.member(string(recalled.FindSubmatch(m)[1])); value != nil {
			return value
		}
		return m
	})
}

// member finds a member in the results, the newest first.
func (c *conversation) member(name string) json.RawMessage {
	for _, m := range slices.Backward(c.Messages) {
		if m.Role != "user" {
			continue
		}
		for _, b := range slices.Backward(m.Content) {
			if b.Type != "tool_result" {
				continue
			}
			for _, text := range slices.Backward(b.texts()) {
				if value := within(json.RawMessage(text), name); value != nil {
					return value
				}
			}
		}
	}
	return nil
}

// within finds a member in a JSON text, at any depth: that of an object before
// those of what is in it.
func within(text json.RawMessage, name string) json.RawMessage {
	var members map[string]json.RawMessage
	var items []json.RawMessage
	switch text = bytes.TrimSpace(text); {
	case json.Unmarshal(text, &members) == nil:
		if value, ok := members[name]; ok {
			return value
		}
		names := make([]string, 0, len(members))
		for n := range members {
			names = append(names, n)
		}
		slices.Sort(names)
		for _, n := range names {
			items = append(items, members[n])
		}
	case json.Unmarshal(text, &items) != nil:
		return nil
	}
	for _, item := range items {
		if value := within(item, name); value != nil {
			return value
		}
	}
	return nil
}
