package messages

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// step is one line of a script.
type step struct {
	verb  string
	text  string // of say, think, stop
	tool  string
	input json.RawMessage
	times int // of a fault; 0: every time
	wait  time.Duration
	code  int // of error
	stop  string
	usage Usage
}

var reminder = regexp.MustCompile(`(?s)<system-reminder>.*?</system-reminder>`)

// parse reads the steps in a user's text. A step that is written wrongly says
// so as text, so that whoever wrote it sees it.
func parse(text string) []step {
	var steps []step
	for line := range strings.SplitSeq(reminder.ReplaceAllString(text, "\n"), "\n") {
		verb, rest, _ := strings.Cut(strings.TrimRight(line, "\r \t"), " ")
		rest = strings.TrimSpace(rest)
		read, ok := verbs[verb]
		if !ok {
			continue
		}
		s, err := read(rest)
		if err != nil {
			s = step{verb: "say", text: fmt.Sprintf("the step %q cannot be read: %v", line, err)}
		} else if s.verb == "" {
			s.verb = verb
		}
		steps = append(steps, s)
	}
	return steps
}

var verbs = map[string]func(rest string) (step, error){
	"say":      func(rest string) (step, error) { return step{text: unescape(rest)}, nil },
	"think":    func(rest string) (step, error) { return step{text: unescape(rest)}, nil },
	"report":   bare,
	"parallel": bare,
	"end":      bare,
	"bash": func(rest string) (step, error) {
		return call("Bash", map[string]any{"command": rest, "description": "a step of the script"})
	},
	"read": func(rest string) (step, error) { return call("Read", map[string]any{"file_path": rest}) },
	"write": func(rest string) (step, error) {
		path, text, _ := strings.Cut(rest, " ")
		return call("Write", map[string]any{"file_path": path, "content": unescape(text)})
	},
	"edit": func(rest string) (step, error) {
		p := strings.Split(rest, "|")
		if len(p) != 3 {
			return step{}, fmt.Errorf("it is edit PATH|OLD|NEW")
		}
		return call("Edit", map[string]any{"file_path": p[0], "old_string": unescape(p[1]), "new_string": unescape(p[2])})
	},
	"ask":   ask,
	"agent": subagent,
	"mcp": func(rest string) (step, error) {
		p := strings.SplitN(rest, " ", 3)
		if len(p) < 2 {
			return step{}, fmt.Errorf("it is mcp SERVER TOOL JSON")
		}
		return object("mcp__"+p[0]+"__"+p[1], p[2:])
	},
	"tool": func(rest string) (step, error) {
		p := strings.SplitN(rest, " ", 2)
		return object(p[0], p[1:])
	},
	"stop": func(rest string) (step, error) {
		reason, text, _ := strings.Cut(rest, " ")
		if reason == "" {
			return step{}, fmt.Errorf("it is stop REASON [TEXT]")
		}
		return step{stop: reason, text: unescape(text)}, nil
	},
	"overload": fault,
	"break":    fault,
	"fail":     fault,
	"error": func(rest string) (step, error) {
		n, err := numbers(rest, 1, 2)
		if err != nil || n[0] < 400 || n[0] > 599 {
			return step{}, fmt.Errorf("it is error STATUS [N], with a status from 400 to 599")
		}
		return step{code: n[0], times: n[1]}, nil
	},
	"silent": pause,
	"sleep":  pause,
	"slow":   pause,
	"usage": func(rest string) (step, error) {
		n, err := numbers(rest, 2, 4)
		if err != nil {
			return step{}, err
		}
		return step{usage: Usage{Input: int64(n[0]), Output: int64(n[1]), CacheRead: int64(n[2]), CacheWrite: int64(n[3])}}, nil
	},
}

func bare(rest string) (step, error) {
	if rest != "" {
		return step{}, fmt.Errorf("nothing follows this word")
	}
	return step{}, nil
}

func call(tool string, input any) (step, error) {
	raw, err := json.Marshal(input)
	return step{verb: "tool", tool: tool, input: raw}, err
}

// object is a call with its input written as JSON; none is an empty object.
func object(tool string, input []string) (step, error) {
	raw := "{}"
	if len(input) > 0 && strings.TrimSpace(input[0]) != "" {
		raw = input[0]
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal([]byte(raw), &o); err != nil || tool == "" {
		return step{}, fmt.Errorf("a tool's name and a JSON object are needed")
	}
	return step{verb: "tool", tool: tool, input: json.RawMessage(raw)}, nil
}

func ask(rest string) (step, error) {
	p := strings.Split(rest, "|")
	if len(p) < 3 {
		return step{}, fmt.Errorf("it is ask QUESTION|OPTION|OPTION, with two options or more")
	}
	options := make([]map[string]string, 0, len(p)-1)
	for _, o := range p[1:] {
		options = append(options, map[string]string{"label": o, "description": o})
	}
	header := []rune(strings.TrimRight(p[0], "?"))
	return call("AskUserQuestion", map[string]any{"questions": []any{map[string]any{
		"question": p[0], "header": string(header[:min(len(header), 12)]), "multiSelect": false, "options": options,
	}}})
}

func subagent(rest string) (step, error) {
	return call("Agent", map[string]any{"description": "a part of the script", "prompt": unescape(rest), "subagent_type": "general-purpose"})
}

func fault(rest string) (step, error) {
	n, err := numbers(rest, 0, 1)
	if err != nil {
		return step{}, err
	}
	return step{times: n[0]}, nil
}

func pause(rest string) (step, error) {
	n, err := numbers(rest, 1, 1)
	if err != nil {
		return step{}, err
	}
	return step{wait: time.Duration(n[0]) * time.Millisecond}, nil
}

// numbers reads at least least and at most most whole numbers; what is left out
// is 0.
func numbers(rest string, least, most int) ([]int, error) {
	out := make([]int, most)
	fields := strings.Fields(rest)
	if len(fields) < least || len(fields) > most {
		return nil, fmt.Errorf("it takes %d to %d numbers", least, most)
	}
	for i, f := range fields {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is no whole number", f)
		}
		out[i] = n
	}
	return out, nil
}

func unescape(s string) string {
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(s)
}
