package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// event is one event of the task's journal.
type event struct {
	Sequence uint64          `json:"sequence"`
	Kind     string          `json:"kind"`
	Payload  json.RawMessage `json:"payload"`
	raw      json.RawMessage
}

// events reads the journal behind a sequence.
func (s *story) events(ctx context.Context, after uint64) ([]event, error) {
	var list []event
	for {
		var page struct {
			Events []json.RawMessage `json:"events"`
			Next   uint64            `json:"next"`
		}
		if err := s.host.operator(ctx, "GET", fmt.Sprintf("%s/events?after=%d", s.task, after), nil, &page); err != nil {
			return nil, err
		}
		if page.Next == after {
			return list, nil
		}
		for _, raw := range page.Events {
			ev := event{raw: raw}
			if err := json.Unmarshal(raw, &ev); err != nil {
				return nil, err
			}
			list = append(list, ev)
		}
		after = page.Next
	}
}

// narrate prints what the journal has that was not printed yet.
func (s *story) narrate(ctx context.Context) error {
	list, err := s.events(ctx, s.told)
	if err != nil {
		return err
	}
	for _, ev := range list {
		s.told = ev.Sequence
		if word, text := s.words(ev); word != "" {
			fmt.Printf("%-10s %s\n", word, text)
		}
	}
	return nil
}

func (s *story) words(ev event) (word, text string) {
	var p struct {
		Tool       string          `json:"tool_name"`
		Args       json.RawMessage `json:"tool_args"`
		Invocation string          `json:"invocation_id"`
		Actor      string          `json:"actor"`
		Action     string          `json:"action"`
		Issuer     string          `json:"issuer"`
		Result     string          `json:"result"`
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
		return "proposed", p.Tool + " " + string(p.Args)
	case "decision":
		switch p.Decision.Status {
		case "ALLOW", "WARN":
			return "allowed", p.Tool
		case "BLOCK":
			return "blocked", p.Tool + ": " + p.Decision.Reason
		case "PAUSE", "ESCALATE":
			return "paused", p.Tool + ": " + p.Decision.Reason
		default:
			return "suspended", p.Tool + ": " + p.Decision.Reason
		}
	case "approval":
		return "approval", p.Actor + ": " + p.Action
	case "executed":
		s.tools[p.Invocation] = p.Tool
		return "executed", p.Tool
	case "completed", "failed":
		return ev.Kind, s.tools[p.Invocation]
	case "stop":
		return "stop", p.Actor
	case "revocation_result":
		return "revoked", p.Issuer + ": " + p.Result
	}
	return "", ""
}

// recording is what --record writes: evidence of one actual run.
type recording struct {
	Events  []json.RawMessage `json:"events"`
	Receipt map[string]any    `json:"receipt"`
	Ledger  []json.RawMessage `json:"ledger"`
}

func (s *story) record(ctx context.Context, file string) error {
	list, err := s.events(ctx, 0)
	if err != nil {
		return err
	}
	r := recording{Receipt: s.receipt}
	for _, ev := range list {
		r.Events = append(r.Events, ev.raw)
	}
	ledger, err := os.ReadFile(s.ledger())
	if err != nil {
		return err
	}
	for line := range bytes.Lines(ledger) {
		r.Ledger = append(r.Ledger, bytes.TrimSpace(line))
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // no secret in it
}
