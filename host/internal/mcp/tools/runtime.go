package tools

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Runtime is what the tools with effect need of the engine.
type Runtime interface {
	// AdmitCall passes a call through the gate and takes its reservation.
	AdmitCall(ctx context.Context, taskID string, c engine.CellCall) (engine.AdmittedCall, error)
	// EndCall records how it ended.
	EndCall(ctx context.Context, taskID string, c engine.AdmittedCall, outcome string, took time.Duration)
	// Exec runs a program in the mission's cell.
	Exec(ctx context.Context, taskID string, c engine.CellCommand) (engine.CellResult, error)
	// AskOperator puts a question to a human and waits for the answer.
	AskOperator(ctx context.Context, taskID, prompt string) (answer string, err error)
}

// CallTool is call_runtime_tool.
type CallTool struct {
	Tool      string       `wc:"tool,required"`
	Arguments strict.Value `wc:"arguments,required" doc:"the tool's own arguments"`
}

// RunCommand is run_command (rulings 39).
type RunCommand struct {
	Project    string   `wc:"project,required" json:"project" doc:"from get_mission_context"`
	Executable string   `wc:"executable,required" json:"executable"`
	Args       []string `wc:"args" json:"args"`
}

// AskOperator is ask_operator.
type AskOperator struct {
	Question string `wc:"question,required" json:"question"`
}

// guidance is R9, where a model reads it.
const guidance = "_wc.control attaches one fact that is already established to a call that you need anyway: with the next ordinary call say, as before, that the previous step is done and the next one begun. " +
	"Never say that tests are done before they ran, never hoard checkpoints for the end, and leave it out when there is nothing to say; every one of its tools can be called alone too. " +
	"It never makes the call itself safe to repeat: after a lost answer ask get_invocation_outcome."

const (
	maxOutput   = 64 << 10        // bytes of each stream of a command that are given back
	maxQuestion = 8 << 10         // bytes
	foreground  = 2 * time.Minute // then a command goes on as a job
	longest     = time.Hour       // of a command
)

// Effects are the tools that reach beyond the host's store.
type Effects struct {
	Runtime Runtime
	// Project is the id of the task's workspace.
	Project func(ctx context.Context, owner workflow.Owner) (string, error)
	// Ended is told how a call ended that was handed off, by the id of its row;
	// the row is empty when it has none.
	Ended func(owner workflow.Owner, row string, m workflow.MainOutcome)
	// Foreground is how long a command is waited for; 0 = two minutes.
	Foreground time.Duration
	Now        func() time.Time
	// Go runs a job that outlives its call.
	Go func(func(context.Context))
}

// Tools are run_command, ask_operator and call_runtime_tool.
func (e *Effects) Tools() []*kernel.Tool {
	run := kernel.NewTool(kernel.Def{Name: "run_command", Scope: ScopeExecute, Effect: true, Fields: envelope.All, Detail: envelope.Full,
		Description: "Run a program in your workspace and wait for it; after two minutes it goes on as a job.", Sidecar: guidance}, e.run)
	kernel.Check(run, e.project)
	kernel.Admit(run, func(ctx context.Context, by kernel.By, in RunCommand) (kernel.Admission, *kernel.Result) {
		return admit(ctx, e.Runtime, "run_command", by, in)
	})
	ask := kernel.NewTool(kernel.Def{Name: "ask_operator", Scope: ScopeAsk, Effect: true, Fields: envelope.All, Detail: envelope.Full,
		Description: "Ask the human operator a question and wait for the answer."}, e.ask)
	kernel.Check(ask, func(_ context.Context, _ kernel.By, in AskOperator) *kernel.Result {
		if in.Question == "" || len(in.Question) > maxQuestion {
			r := kernel.Refuse("invalid_question", "question must have 1 to 8192 bytes", workflow.FixInput)
			return &r
		}
		return nil
	})
	kernel.Admit(ask, func(ctx context.Context, by kernel.By, in AskOperator) (kernel.Admission, *kernel.Result) {
		return admit(ctx, e.Runtime, "ask_operator", by, in)
	})
	call := kernel.NewTool(kernel.Def{Name: "call_runtime_tool", Gateway: true, Fields: envelope.All, Detail: envelope.Full,
		Description: "Call another of these tools by its name.",
		Sidecar:     "_wc stands beside tool, not in the arguments of the tool that is called, and counts for that."},
		func(context.Context, kernel.By, CallTool) kernel.Result {
			return kernel.Unsure("internal_error", "a gateway is no tool that runs") // the adapter puts its target in its place
		})
	return []*kernel.Tool{run, ask, call}
}

// admit passes a call through the gate.
func admit[T any](ctx context.Context, rt Runtime, tool string, by kernel.By, in T) (kernel.Admission, *kernel.Result) {
	args, err := json.Marshal(in)
	if err != nil {
		return kernel.Admission{}, denied("invalid_arguments", "the arguments cannot be written", workflow.FixInput)
	}
	got, err := rt.AdmitCall(ctx, string(by.Owner), engine.CellCall{Tool: tool, Args: args, ToolUseID: by.ToolUseID})
	if err != nil {
		return kernel.Admission{}, refusal(err)
	}
	a := kernel.Admission{CallID: got.InvocationID, Leave: got, Abandon: func() {
		rt.EndCall(context.WithoutCancel(ctx), string(by.Owner), got, governance.NeverStarted, 0)
	}}
	if string(got.Args) != string(args) { // a rule has rewritten them
		var changed T
		v, err := strict.Parse(got.Args)
		if err == nil {
			err = strict.ShapeOf[T]().Decode(v, &changed)
		}
		if err != nil {
			a.Abandon()
			return kernel.Admission{}, denied("permission_denied", "a rule of the host has rewritten the call into one that this tool does not take", workflow.UserAction)
		}
		a.Request = changed
	}
	return a, nil
}

func denied(kind, message string, rec workflow.Recovery) *kernel.Result {
	r := kernel.Refuse(kind, message, rec)
	return &r
}

// refusal says why the gate did not let a call pass.
func refusal(err error) *kernel.Result {
	var d *engine.Denied
	var g *governance.Refused
	switch {
	case errors.As(err, &d) && d.Waits:
		return denied("permission_denied", "a human has to allow this call and has not yet: "+d.Reason, workflow.UserAction)
	case errors.As(err, &d):
		return denied("permission_denied", d.Error(), workflow.UserAction)
	case errors.As(err, &g):
		return denied("permission_denied", g.Code+": "+g.Detail, workflow.RetrySame)
	case errors.Is(err, engine.ErrUnavailable):
		return denied("governance_unavailable", "the host cannot decide on calls now", workflow.RetrySame)
	}
	return denied("permission_denied", "the call could not be judged", workflow.UserAction)
}

// project authorizes the workspace that a command names.
func (e *Effects) project(ctx context.Context, by kernel.By, in RunCommand) *kernel.Result {
	if in.Executable == "" {
		return denied("invalid_executable", "executable must not be empty", workflow.FixInput)
	}
	want, err := e.Project(ctx, by.Owner)
	if err != nil || want != in.Project {
		return denied("project_not_found", "project is not your workspace; get_mission_context names it", workflow.FixInput)
	}
	return nil
}
