package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// askTool is the tool with which the agent asks a human.
const askTool = "AskUserQuestion"

// question is one of the questions of a call.
type question struct {
	Question string `json:"question"`
	Header   string `json:"header"`
	Multi    bool   `json:"multiSelect"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

func readQuestions(input json.RawMessage) []question {
	var in struct {
		Questions []question `json:"questions"`
	}
	_ = json.Unmarshal(input, &in) // what has another shape has no question
	return in.Questions
}

// questions puts a call's questions to a human, one after the other; true =
// all are answered. The same question has the same id after a restart.
func (m *machine) questions(c *call, input json.RawMessage) bool {
	all := readQuestions(input)
	for i, q := range all {
		if _, ok := c.Answers[q.Question]; ok || strings.TrimSpace(q.Question) == "" {
			continue
		}
		if c.asked <= i { // once a stream
			c.asked = i + 1
			m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Question{Question: q.wire(c.ID, i, len(all))}})
		}
		return false
	}
	return true
}

// asksWhat is the input as it will be asked, before the second gate.
func (c *call) asksWhat() json.RawMessage {
	if len(c.updated) > 0 {
		return c.updated
	}
	return c.input
}

// waits lets a question go that nobody has answered for long, so that the CLI
// need not be kept: it asks again when it is resumed.
func (m *machine) waits(c *call) {
	switch {
	case m.opts.hold <= 0 || c.Agent != "" || m.st.letGo():
	case c.letGoAt.IsZero():
		c.letGoAt = m.now.Add(m.opts.hold)
	case !m.now.Before(c.letGoAt):
		m.letGo(c, "the question waits for a human")
	}
}

func (q *question) wire(call string, i, n int) *pluginv1.Question {
	out := &pluginv1.Question{HitlId: fmt.Sprintf("%s/%d", call, i), Prompt: q.Question}
	var context []string
	if q.Header != "" {
		context = append(context, q.Header)
	}
	if n > 1 {
		context = append(context, fmt.Sprintf("question %d of %d", i+1, n))
	}
	for i, o := range q.Options {
		out.Options = append(out.Options, o.Label)
		s := fmt.Sprintf("%d) %s", i+1, o.Label)
		if o.Description != "" {
			s += ": " + o.Description
		}
		context = append(context, s)
	}
	if len(q.Options) > 0 {
		var labels []string
		for _, o := range q.Options {
			labels = append(labels, o.Label)
		}
		out.Prompt += " [" + strings.Join(labels, " / ") + "]"
		if q.Multi {
			context = append(context, "more than one may be chosen, with commas between them; another answer in words is good, too")
		} else {
			context = append(context, "another answer in words is good, too")
		}
	}
	out.Context = strings.Join(context, "\n")
	return out
}

// answer is a human's answer, or why there is none.
func (m *machine) answer(a *pluginv1.Answer) {
	id, number, _ := cutLast(a.GetHitlId(), "/")
	i, err := strconv.Atoi(number)
	c := m.st.Calls[id]
	if c == nil || err != nil || c.Tool != askTool || c.Pre == "" && c.Can == "" {
		return
	}
	input := c.canInput
	if c.Pre != "" {
		input = c.asksWhat()
	}
	all := readQuestions(input)
	if i < 0 || i >= len(all) {
		return
	}
	if _, ok := c.Answers[all[i].Question]; ok {
		return // the first answer counts
	}
	if c.Answers == nil {
		c.Answers = map[string]string{}
	}
	text := ""
	if a.GetNone() == "" {
		text = all[i].choose(a)
	}
	c.Answers[all[i].Question] = text
	m.checkpoint()
	m.advance(c)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// choose turns an answer into what the CLI expects: the labels that were
// chosen, or words of the human's own.
func (q *question) choose(a *pluginv1.Answer) string {
	var one string
	var many []string
	var in struct {
		Answer json.RawMessage `json:"answer"`
	}
	if json.Unmarshal(a.GetStructured(), &in) == nil && len(in.Answer) > 0 { // {"answer": "A"} or {"answer": ["A", "C"]}
		switch {
		case json.Unmarshal(in.Answer, &one) == nil:
			return q.label(one)
		case json.Unmarshal(in.Answer, &many) == nil:
			for i := range many {
				many[i] = q.label(many[i])
			}
			return strings.Join(many, ", ")
		}
	}
	text := strings.TrimSpace(a.GetText())
	if !q.Multi {
		return q.label(text)
	}
	parts := strings.Split(text, ",")
	for i, p := range parts {
		if parts[i] = q.label(p); !q.has(parts[i]) {
			return text // words of their own, with a comma in them
		}
	}
	return strings.Join(parts, ", ")
}

// label is the option that is meant by its label or its number.
func (q *question) label(s string) string {
	s = strings.TrimSpace(s)
	for _, o := range q.Options {
		if strings.EqualFold(o.Label, s) {
			return o.Label
		}
	}
	if n, err := strconv.Atoi(strings.TrimSuffix(s, ")")); err == nil && n >= 1 && n <= len(q.Options) {
		return q.Options[n-1].Label
	}
	return s
}

func (q *question) has(label string) bool {
	for _, o := range q.Options {
		if o.Label == label {
			return true
		}
	}
	return false
}

// answered is the input of a call that asks, with the answers in it; nil for
// every other call. Questions that nobody answered stay without one.
func (c *call) answered() json.RawMessage {
	if c.Tool != askTool {
		return nil
	}
	var in map[string]json.RawMessage
	if json.Unmarshal(c.canInput, &in) != nil {
		return nil
	}
	given := map[string]string{}
	for q, a := range c.Answers {
		if a != "" {
			given[q] = a
		}
	}
	if len(given) == 0 {
		return nil
	}
	in["answers"] = line(given)
	return line(in)
}
