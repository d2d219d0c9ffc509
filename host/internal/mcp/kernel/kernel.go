// Package kernel runs tool calls that agents make over MCP, and the control
// sidecars around them: before, the main call, after (seed 004). It imports the
// workflow domain and the packages of the envelope.
//
// The one idea: everything about a call is read and allowed before anything of
// it runs, and everything that is said about it afterwards is built from closed
// lists. A phase is the canonical tool, run through the same entry as when it is
// called alone, with nothing of the main call's rights and none of its secrets.
package kernel

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Service is what the kernel needs of the workflow domain.
type Service interface {
	workflow.Calls
	Recorder(ctx context.Context, owner workflow.Owner, session string) (workflow.SessionView, error)
	ResolveMessage(ctx context.Context, by workflow.Caller, in workflow.ResolveMessage) (workflow.ResolveResult, error)
	Ack(ctx context.Context, by workflow.Caller, session string, messageIDs []string) (workflow.AckResult, error)
	Attention(ctx context.Context, by workflow.Caller, session string) (workflow.Attention, error)
}

// Options of a Kernel. Service, Tools and Log are required.
type Options struct {
	Service Service
	Tools   []*Tool
	// Material gives what the envelope's context asks for, by key; ok is false
	// for a key that there is not. nil: there is none.
	Material func(ctx context.Context, c Caller, key string) (value any, ok bool, err error)
	Log      hclog.Logger
	// Observe is told of every call and phase: names from closed lists only.
	// nil: nobody.
	Observe func(Observation)
	// PhaseTimeout bounds what follows the dispatch of a main call; 0 = 30 s.
	PhaseTimeout time.Duration
}

// Observation is one call or phase, for metrics.
type Observation struct {
	Tool  string
	Kind  envelope.Kind // of a phase; empty: the main call
	State workflow.ExecutionState
}

// Kernel runs calls. Make it with New.
type Kernel struct {
	opts   Options
	tools  []*Tool
	byName map[string]*Tool
}

// New makes a kernel. It fails when a kind of sidecar has no canonical tool, or
// a name is there twice.
func New(opts Options) (*Kernel, error) {
	if opts.PhaseTimeout <= 0 {
		opts.PhaseTimeout = 30 * time.Second
	}
	if opts.Observe == nil {
		opts.Observe = func(Observation) {}
	}
	k := &Kernel{opts: opts, tools: opts.Tools, byName: map[string]*Tool{}}
	for _, t := range opts.Tools {
		if k.byName[t.Name] != nil {
			return nil, fmt.Errorf("two tools are named %s", t.Name)
		}
		k.byName[t.Name] = t
	}
	for _, kind := range append(envelope.Before(), envelope.After(true)...) {
		if k.byName[kind.Tool()] == nil {
			return nil, fmt.Errorf("%s needs the tool %s", kind, kind.Tool())
		}
	}
	return k, nil
}

// Tools are the tools, in the order of the list.
func (k *Kernel) Tools() []*Tool { return k.tools }

// Tool finds a tool by its name; nil when there is none.
func (k *Kernel) Tool(name string) *Tool { return k.byName[name] }

// Run runs a call. The error is an *ArgumentError of a call without sidecars,
// before anything has run; everything else is in the answer.
func (k *Kernel) Run(ctx context.Context, c *Call) (Answer, error) {
	r := &run{k: k, c: c, phases: c.phases()}
	if r.phases != nil {
		r.control = &Control{}
	}
	return r.all(ctx)
}

// ArgumentError says what is wrong with the arguments of a main call.
type ArgumentError struct{ Text string }

func (e *ArgumentError) Error() string { return e.Text }

// Unknown stands for a tool that a gateway was asked for and that there is not:
// it takes every envelope, and its call is refused like any other.
func (k *Kernel) Unknown() *Tool {
	t := NewTool(Def{Name: "unknown", Fields: envelope.All}, func(context.Context, By, struct{}) Result {
		return Refuse("unknown_tool", "there is no tool of this name", workflow.FixInput)
	})
	return Check(t, func(context.Context, By, struct{}) *Result {
		return refuse("unknown_tool", "there is no tool of this name", workflow.FixInput)
	})
}
