// Package envelope reads `_wc`, the member of a tool call's arguments that
// belongs to the control plane: which session records the call, what is
// acknowledged, and the control sidecars that run before and after it (seed
// 004). It imports strict and workflow (for the requests of the canonical tools) only.
//
// The one idea: an envelope is read whole before anything runs, by one grammar
// for every tool, and an error in it is a constant text. What is under `_wc` may
// be a secret, its names as well as its values.
package envelope

import (
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/airlock-host/airlock/host/internal/mcp/strict"
)

// Member is the name of the envelope in the arguments of a call.
const Member = "_wc"

// Fields are the members that a tool's envelope may have.
type Fields uint8

// The members.
const (
	Control Fields = 1 << iota
	Record
	Ack
	Resolve
	Context

	All Fields = Control | Record | Ack | Resolve | Context
)

// Limits of the members' values.
const (
	MaxAck        = 8
	MaxContext    = 8
	maxContextKey = 64   // characters
	maxResolution = 8000 // characters, after trimming
)

// Mutation is one phase: what it does, and the request of its canonical tool
// (workflow.CheckpointGoal and so on; goal_completion is a workflow.UpdateGoal).
type Mutation struct {
	Kind    Kind
	Request any
}

// Phases are the control sidecars of a call; either may be nil.
type Phases struct {
	Before *Mutation
	After  *Mutation
}

// Resolution resolves a message of the recording session.
type Resolution struct {
	MessageID  string
	Resolution string
}

// Envelope is what a call carries for the control plane.
type Envelope struct {
	Control *Phases // nil: the call has none, and its answer neither
	Record  string  // session that records the call; empty: none
	Ack     []string
	Resolve *Resolution
	Context []string
}

// Error is a refusal of an envelope. Its text is constant.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }

func refuse(text string) *Error { return &Error{text: "_wc: " + text} }

// retired are names that earlier forms had among the arguments.
func retired() []string {
	return []string{"_control", "_session_id", "recording_session_id", "ack_session_message_ids", "session_message_resolution",
		"context_request", "context_materials"}
}

// Split takes the envelope out of a call's arguments. wc.Kind is strict.Absent
// when there is none. A retired name is refused; a tool that has a member of
// that name itself does not exist.
func Split(args strict.Value) (business, wc strict.Value, err error) {
	for _, m := range args.Members {
		if slices.Contains(retired(), m.Name) {
			return strict.Value{}, strict.Value{}, &Error{text: "arguments: " + m.Name + " is not a member any more; use " + Member}
		}
	}
	wc = args.Get(Member)
	if wc.Kind == strict.Absent {
		return args, wc, nil
	}
	return args.Without(Member), wc, nil
}

// Grammar reads envelopes. Make it with New.
type Grammar struct{ g grammar }

// New makes the grammar that all tools share.
func New() *Grammar { return &Grammar{g: newGrammar()} }

// Shape is the shape of a kind's payload.
func (g *Grammar) Shape(k Kind) *strict.Shape { return g.g.shapes[k] }

// Parse reads an envelope of a tool that allows some members. The checks are in
// a fixed order: an object, its names, then control, record, ack, resolve,
// context. The error is an *Error.
func (g *Grammar) Parse(wc strict.Value, allowed Fields) (*Envelope, error) {
	if wc.Kind != strict.Object {
		return nil, refuse("it must be an object")
	}
	for _, m := range wc.Members {
		f, known := fieldOf(m.Name)
		switch {
		case !known:
			return nil, refuse("there is a member that it does not have; it has control, record, ack, resolve, context")
		case allowed&f == 0:
			return nil, refuse(m.Name + " is not possible with this tool")
		}
	}
	var e Envelope
	var err error
	if e.Control, err = g.control(wc.Get("control")); err != nil {
		return nil, err
	}
	if err := e.rest(wc); err != nil {
		return nil, err
	}
	return &e, nil
}

func fieldOf(name string) (Fields, bool) {
	switch name {
	case "control":
		return Control, true
	case "record":
		return Record, true
	case "ack":
		return Ack, true
	case "resolve":
		return Resolve, true
	case "context":
		return Context, true
	}
	return 0, false
}

// errControl is the one answer to every fault in the control member.
func errControl() *Error {
	return refuse("control is not well formed: it is an object with before and after_success at most, each with exactly one mutation, " +
		"whose members are exactly those of its canonical tool (docs/control-sidecars.md)")
}

func (g *Grammar) control(v strict.Value) (*Phases, error) {
	if v.Kind == strict.Absent {
		return nil, nil
	}
	if v.Kind != strict.Object {
		return nil, errControl()
	}
	var p Phases
	for _, m := range v.Members {
		var err error
		switch m.Name {
		case "before":
			p.Before, err = g.phase(m.Value, Before())
		case "after_success":
			p.After, err = g.phase(m.Value, After(true))
		default:
			err = errControl()
		}
		if err != nil {
			return nil, err
		}
	}
	return &p, nil
}

func (g *Grammar) phase(v strict.Value, kinds []Kind) (*Mutation, error) {
	if v.Kind != strict.Object || len(v.Members) != 1 {
		return nil, errControl()
	}
	k := Kind(v.Members[0].Name)
	if !slices.Contains(kinds, k) {
		return nil, errControl()
	}
	req, err := g.g.read[k](v.Members[0].Value)
	if err != nil {
		return nil, errControl()
	}
	return &Mutation{Kind: k, Request: req}, nil
}

func (e *Envelope) rest(wc strict.Value) error {
	var err error
	if v := wc.Get("record"); v.Kind != strict.Absent {
		if v.Kind != strict.String || !IsSession(v.Text) {
			return refuse("record must be the id of a session")
		}
		e.Record = v.Text
	}
	if v := wc.Get("ack"); v.Kind != strict.Absent {
		if e.Ack, err = words(v, MaxAck, IsMessage, "ack must be an array of at most 8 ids of messages"); err != nil {
			return err
		}
	}
	if v := wc.Get("resolve"); v.Kind != strict.Absent {
		if e.Resolve, err = resolution(v); err != nil {
			return err
		}
	}
	if v := wc.Get("context"); v.Kind != strict.Absent {
		if e.Context, err = words(v, MaxContext, isContextKey, "context must be an array of at most 8 keys of at most 64 characters without space"); err != nil {
			return err
		}
	}
	if e.Record == "" && (e.Resolve != nil || len(e.Ack) > 0) {
		return refuse("ack and resolve need record, the session that the messages are in")
	}
	return nil
}

func words(v strict.Value, limit int, ok func(string) bool, text string) ([]string, error) {
	if v.Kind != strict.Array || len(v.Items) > limit {
		return nil, refuse(text)
	}
	out := make([]string, 0, len(v.Items))
	for _, i := range v.Items {
		if i.Kind != strict.String || !ok(i.Text) {
			return nil, refuse(text)
		}
		out = append(out, i.Text)
	}
	return out, nil
}

func resolution(v strict.Value) (*Resolution, error) {
	id, text := v.Get("message_id"), v.Get("resolution")
	trimmed := strings.TrimSpace(text.Text)
	n := utf8.RuneCountInString(trimmed)
	if v.Kind != strict.Object || len(v.Members) != 2 || id.Kind != strict.String || text.Kind != strict.String ||
		!IsMessage(id.Text) || n == 0 || n > maxResolution {
		return nil, refuse("resolve must be an object of message_id and resolution (1 to 8000 characters), and nothing else")
	}
	return &Resolution{MessageID: id.Text, Resolution: trimmed}, nil
}

func isContextKey(s string) bool {
	n := utf8.RuneCountInString(s)
	return n > 0 && n <= maxContextKey && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

// IsSession says whether a text has the form of a session's id.
func IsSession(s string) bool { return isID(s, "wc_sess_") }

// IsMessage says whether a text has the form of a message's id.
func IsMessage(s string) bool { return isID(s, "wc_msg_") }

// isID: the prefix and 16 characters of base64url, or the older 32 hex digits.
func isID(s, prefix string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	switch {
	case !ok:
		return false
	case len(rest) == 16:
		return strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
	case len(rest) == 32:
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return false
}

// AsError finds the refusal of an envelope in an error.
func AsError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
