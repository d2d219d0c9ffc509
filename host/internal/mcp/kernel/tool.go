package kernel

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Def is what a tool is, beside what it does.
type Def struct {
	Name        string
	Description string
	Sidecar     string          // what there is to say of it to a caller that may have envelopes
	Scope       string          // what a caller must be allowed; empty: nothing (a gateway: its target's)
	Fields      envelope.Fields // which members its envelope may have
	Detail      envelope.Detail // how much of them its schema spells out
	Closeout    bool            // says in task_outcome whether the work may be closed (R17)
	Effect      bool            // reaches beyond the host's store
	ReadOnly    bool            // changes nothing
	Gateway     bool            // calls another tool that its arguments name
	Hidden      bool            // not in the list; called by its name only
}

// By is on whose behalf a tool runs.
type By struct {
	workflow.Caller
	// ToolUseID is the id that the agent's runtime has proposed this call under,
	// when it said so; Cell says that the call came over the link of the
	// mission's cell. Both are empty for a phase.
	ToolUseID string
	Cell      bool
	// CallID and Leave are what Admit took; empty: the tool asks for no leave.
	CallID string
	Leave  any
	// Row is the row of the call; nil: it leaves none. Settled is closed once what
	// the tool has answered stands in it.
	Row     *workflow.Call
	Settled <-chan struct{}
}

// Admission is leave to run a call with effect.
type Admission struct {
	CallID string
	// Leave is handed to the tool as it is.
	Leave any
	// Request replaces the one that was sent, where a rule has rewritten it; nil:
	// it stays.
	Request any
	// Abandon gives the leave back: the call was not begun. nil: nothing to do.
	Abandon func()
}

// Tool is one tool. Make it with NewTool.
type Tool struct {
	Def
	Shape *strict.Shape

	decode   func(strict.Value) (any, error)
	fits     func(any) bool
	session  func(any) string
	admit    func(context.Context, By, any) (Admission, *Result)
	run      func(context.Context, By, any) Result
	validate func(context.Context, By, any) *Result
}

// NewTool makes a tool whose request is T.
func NewTool[T any](d Def, run func(context.Context, By, T) Result) *Tool {
	shape := strict.ShapeOf[T]()
	return &Tool{Def: d, Shape: shape,
		decode: func(v strict.Value) (any, error) {
			var req T
			if err := shape.Decode(v, &req); err != nil {
				return nil, fmt.Errorf("arguments: %w", err)
			}
			return req, nil
		},
		fits: func(req any) bool { _, ok := req.(T); return ok },
		run:  func(ctx context.Context, by By, req any) Result { return run(ctx, by, req.(T)) },
	}
}

// Target says which session a request is about, so that it is authorized before
// anything is changed on the way to it.
func Target[T any](t *Tool, session func(T) string) *Tool {
	t.session = func(req any) string { return session(req.(T)) }
	return t
}

// Check is what else of a request is authorized before anything is changed; nil
// lets it pass.
func Check[T any](t *Tool, check func(context.Context, By, T) *Result) *Tool {
	t.validate = func(ctx context.Context, by By, req any) *Result { return check(ctx, by, req.(T)) }
	return t
}

// Admit is how a tool gets leave for its effect, after the phase before and
// before its intent is written. Either the result is nil or it says why not.
func Admit[T any](t *Tool, admit func(context.Context, By, T) (Admission, *Result)) *Tool {
	t.admit = func(ctx context.Context, by By, req any) (Admission, *Result) { return admit(ctx, by, req.(T)) }
	return t
}

// Schema is the JSON schema of the tool's arguments, with its envelope where
// the caller's revision has one.
func (t *Tool) Schema(g *envelope.Grammar, withEnvelope bool) []byte {
	if !withEnvelope {
		return t.Shape.SchemaWith(nil, nil)
	}
	property, defs := g.Schema(t.Fields, t.Closeout || t.Gateway, t.Detail)
	return t.Shape.SchemaWith(property, defs)
}

// Describe is the tool's description, with what concerns envelopes where the
// caller's revision has them.
func (t *Tool) Describe(withEnvelope bool) string {
	if !withEnvelope || t.Sidecar == "" {
		return t.Description
	}
	return t.Description + " " + t.Sidecar
}

// Enter reads the arguments of a gateway: the name of the tool that is meant,
// and what it is called with. The error is an *ArgumentError.
func Enter(gateway *Tool, args strict.Value) (name string, inner strict.Value, err error) {
	var req struct {
		Tool      string       `wc:"tool,required"`
		Arguments strict.Value `wc:"arguments,required"`
	}
	if err := gateway.Shape.Decode(args, &req); err != nil {
		return "", strict.Value{}, &ArgumentError{Text: "arguments: " + err.Error()}
	}
	if n := utf8.RuneCountInString(req.Tool); n < 1 || n > maxToolName {
		return "", strict.Value{}, &ArgumentError{Text: "arguments: tool must have 1 to 128 characters"}
	}
	return req.Tool, req.Arguments, nil
}

// maxToolName is the longest name of a tool, in characters.
const maxToolName = 128
