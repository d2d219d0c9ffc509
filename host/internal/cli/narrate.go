package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// narrator tells a task's events in the words of seed 003: what was proposed,
// blocked, paused, suspended, executed, completed, failed. Completed is what
// came back well, never what was only proposed or allowed.
type narrator struct {
	tools map[string]string // by invocation id
}

// tell prints one event on one line; what is no call is told as it is.
func (n *narrator) tell(w io.Writer, ev *event) {
	word, text := n.words(ev)
	if word == "" {
		ev.show(w)
		return
	}
	told := event{Sequence: ev.Sequence, Timestamp: ev.Timestamp, Kind: word}
	told.print(w, text)
}

func (n *narrator) words(ev *event) (word, text string) {
	var p struct {
		Tool       string          `json:"tool_name"`
		Args       json.RawMessage `json:"tool_args"`
		Invocation string          `json:"invocation_id"`
		DecisionID string          `json:"decision_id"`
		Outcome    string          `json:"outcome"`
		Error      string          `json:"error"`
		Decision   struct {
			Status string `json:"status"`
			Reason string `json:"reason"`
		} `json:"decision"`
	}
	if json.Unmarshal(ev.Payload, &p) != nil {
		return "", ""
	}
	switch ev.Kind {
	case "proposed":
		return "proposed", p.Tool + " " + cut(string(p.Args), 120)
	case "decision":
		switch p.Decision.Status {
		case "BLOCK":
			return "blocked", p.Tool + ": " + p.Decision.Reason
		case "PAUSE", "ESCALATE":
			return "paused", fmt.Sprintf("%s: %s (airlock approve %s approve_once|reject|…)", p.Tool, p.Decision.Reason, p.DecisionID)
		case "CHALLENGE", "REPLAN":
			return "suspended", p.Tool + ": " + p.Decision.Reason
		}
		return "", ""
	case "executed":
		n.tools[p.Invocation] = p.Tool
		return "executed", p.Tool + " " + p.Invocation
	case "completed", "failed":
		if p.Invocation == "" {
			return "", "" // a mission's own end, or a proposal that was withdrawn
		}
		tool := n.tools[p.Invocation]
		delete(n.tools, p.Invocation)
		text = strings.TrimSpace(tool + " " + p.Invocation)
		if ev.Kind == "failed" {
			text += ": " + strings.TrimSuffix(p.Outcome+", "+p.Error, ", ")
		}
		return ev.Kind, text
	}
	return "", ""
}
