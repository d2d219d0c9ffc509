package messages

import (
	"encoding/json"
	"time"
)

// plan is one answer: what it says, and what goes wrong before.
type plan struct {
	parts  []part
	stop   string
	next   int // the step that follows
	faults []faultAt
	wait   time.Duration // before anything
	pace   time.Duration // before each event
	silent time.Duration // in the middle of the stream
	usage  *Usage        // nil: estimated
}

// part is one content block of an answer.
type part struct {
	kind  string // text | thinking | tool_use
	text  string
	tool  string
	input json.RawMessage
}

// faultAt is a fault and the place of its step, by which its times are counted.
type faultAt struct {
	step
	at int
}

const nothingToDo = `This is the stand-in of the Messages API: it follows steps in the prompt, one a line (say TEXT, bash COMMAND, write PATH TEXT, ask QUESTION|OPTION|OPTION), and there was none.`

// planFrom plans the answer at a place of the script.
func planFrom(steps []step, at int, last string) plan {
	p := plan{stop: "end_turn", next: len(steps)}
	for _, s := range steps[:min(at, len(steps))] {
		p.keep(s)
	}
	together := false
	for i := at; i < len(steps); i++ {
		s := steps[i]
		p.keep(s)
		switch s.verb {
		case "say":
			p.parts = append(p.parts, part{kind: "text", text: s.text})
		case "report":
			p.parts = append(p.parts, part{kind: "text", text: last})
		case "think":
			p.parts = append(p.parts, part{kind: "thinking", text: s.text})
		case "stop":
			if s.text != "" {
				p.parts = append(p.parts, part{kind: "text", text: s.text})
			}
			p.stop, p.next = s.stop, i+1
			return p
		case "tool":
			p.parts = append(p.parts, part{kind: "tool_use", tool: s.tool, input: s.input})
			if !together {
				p.stop, p.next = "tool_use", i+1
				return p
			}
		case "parallel":
			together = true
		case "end":
			if together && p.calls() {
				p.stop, p.next = "tool_use", i+1
				return p
			}
			together = false
		case "sleep":
			p.wait += s.wait
		case "silent":
			p.silent += s.wait
		case "overload", "error", "break", "fail":
			p.faults = append(p.faults, faultAt{s, i})
		}
	}
	switch {
	case p.calls(): // parallel without its end
		p.stop = "tool_use"
	case len(p.parts) == 0 && len(steps) == 0:
		p.parts = []part{{kind: "text", text: nothingToDo}}
	case len(p.parts) == 0:
		p.parts = []part{{kind: "text", text: "Done."}}
	}
	return p
}

// keep takes in what counts for all turns after it.
func (p *plan) keep(s step) {
	switch s.verb {
	case "slow":
		p.pace = s.wait
	case "usage":
		p.usage = &s.usage
	}
}

// calls says whether the answer calls a tool.
func (p *plan) calls() bool {
	for _, part := range p.parts {
		if part.kind == "tool_use" {
			return true
		}
	}
	return false
}

// size is how many tokens a part is, at four bytes a token.
func (p part) size() int64 { return int64(len(p.text)+len(p.input))/4 + 1 }

// fit cuts the answer to what it may have, as the API does.
func (p *plan) fit(limit int64) {
	left := limit
	for i, part := range p.parts {
		if n := part.size(); n <= left {
			left -= n
			continue
		}
		p.parts, p.stop = p.parts[:i], "max_tokens"
		if part.kind == "text" && left > 0 {
			part.text = part.text[:min(int64(len(part.text)), (left-1)*4)]
			p.parts = append(p.parts, part)
		}
		return
	}
}
