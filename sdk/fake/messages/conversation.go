package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// conversation is what a request's body says.
type conversation struct {
	Model     string    `json:"model"`
	MaxTokens int64     `json:"max_tokens"`
	Stream    bool      `json:"stream"`
	Messages  []message `json:"messages"`
	Tools     []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

type message struct {
	Role    string `json:"role"`
	Content blocks `json:"content"`
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// blocks are a message's content, which may be written as a plain string.
type blocks []block

// UnmarshalJSON is json.Unmarshaler's.
func (b *blocks) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*b = blocks{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(raw, (*[]block)(b))
}

// check says what the API would refuse. counting requests need no max_tokens.
func (c *conversation) check(counting bool) error {
	switch {
	case c.Model == "":
		return fmt.Errorf("model: Field required")
	case c.MaxTokens < 1 && !counting:
		return fmt.Errorf("max_tokens: Input should be greater than or equal to 1")
	case len(c.Messages) == 0:
		return fmt.Errorf("messages: at least one message is required")
	}
	var open []string // calls that wait for their result
	for i, m := range c.Messages {
		switch m.Role {
		case "system": // may stand between the others
		case "assistant":
			if len(open) > 0 {
				return unanswered(i-1, open)
			}
			for _, b := range m.Content {
				if b.Type == "tool_use" {
					open = append(open, b.ID)
				}
			}
		case "user":
			given := m.Content.results()
			for _, id := range open {
				if !slices.Contains(given, id) {
					return unanswered(i-1, []string{id})
				}
			}
			for _, id := range given {
				if !slices.Contains(open, id) {
					return fmt.Errorf("messages.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s", i, id)
				}
			}
			open = nil
		default:
			return fmt.Errorf("messages.%d.role: Input should be 'user', 'assistant' or 'system'", i)
		}
	}
	if len(open) > 0 {
		return unanswered(len(c.Messages)-1, open)
	}
	return nil
}

func unanswered(i int, ids []string) error {
	return fmt.Errorf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s", i, strings.Join(ids, ", "))
}

// results are the ids of the calls that a message answers.
func (b blocks) results() []string {
	var ids []string
	for _, r := range b {
		if r.Type == "tool_result" {
			ids = append(ids, r.ToolUseID)
		}
	}
	return ids
}

// place walks the conversation: the steps so far, and the one that is next. A
// call of ours tells by its id what follows it; a turn without a call ended
// where the plan made at that place ends.
func (c *conversation) place() (steps []step, next int) {
	for _, m := range c.Messages {
		switch m.Role {
		case "user":
			for _, b := range m.Content {
				if b.Type == "text" {
					steps = append(steps, parse(b.Text)...)
				}
			}
		case "assistant":
			called := false
			for _, b := range m.Content {
				if b.Type == "tool_use" {
					called = true
					next = max(next, afterCall(b.ID))
				}
			}
			if p := planFrom(steps, next, ""); !called && !p.calls() {
				next = p.next
			}
		}
	}
	return steps, next
}

// afterCall is the place that follows a call, which its id ends with.
func afterCall(id string) int {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '_')+1:])
	if err != nil {
		return 0
	}
	return n
}

// lastResults is what the last calls gave back, as text.
func (c *conversation) lastResults() string {
	for _, m := range slices.Backward(c.Messages) {
		if m.Role != "user" || len(m.Content.results()) == 0 {
			continue
		}
		var out []string
		for _, b := range m.Content {
			if b.Type == "tool_result" {
				out = append(out, b.result())
			}
		}
		return strings.Join(out, "\n")
	}
	return "no tool was called"
}

// result is the text of a tool_result.
func (b block) result() string { return strings.Join(b.texts(), "\n") }

// texts are the texts of a tool_result.
func (b block) texts() (out []string) {
	var inner blocks
	_ = json.Unmarshal(b.Content, &inner)
	for _, i := range inner {
		out = append(out, i.Text)
	}
	return out
}
