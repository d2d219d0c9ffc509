package tools

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// commandOutput is the output of run_command.
type commandOutput struct {
	CallID     string `json:"call_id"` // as the journal has it
	ExitCode   *int   `json:"exit_code,omitempty"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	Truncated  bool   `json:"truncated"` // only the end of a stream is here
	DurationMS int64  `json:"duration_ms"`
	Job        bool   `json:"job,omitempty"` // it goes on
}

// finished is a command that has ended, or of which nothing is known.
type finished struct {
	res kernel.Result
	end string // outcome of the governed call
}

// run runs a command. One that takes long is handed off: it goes on, its end is
// recorded, and its output is lost but for what it writes to files.
func (e *Effects) run(ctx context.Context, by kernel.By, in RunCommand) kernel.Result {
	leave, ok := by.Leave.(engine.AdmittedCall)
	if !ok {
		return kernel.Unsure("internal_error", "a command without leave")
	}
	start := e.Now()
	row := ""
	if by.Row != nil {
		row = by.Row.ID
	}
	done := make(chan finished, 1)
	handed := make(chan struct{})
	e.Go(func(life context.Context) {
		// The call's own context counts until the command is handed off.
		life, cancel := context.WithTimeout(life, longest)
		defer cancel()
		stop := context.AfterFunc(ctx, func() {
			select {
			case <-handed:
			default:
				cancel()
			}
		})
		defer stop()
		out, err := e.Runtime.Exec(life, string(by.Owner), engine.CellCommand{Argv: append([]string{in.Executable}, in.Args...), MaxOutput: maxOutput})
		took := e.Now().Sub(start)
		f := ended(leave.InvocationID, out, err, took)
		e.Runtime.EndCall(context.WithoutCancel(life), string(by.Owner), leave, f.end, took)
		select {
		case done <- f:
		default:
		}
		select {
		case <-handed:
			if row != "" {
				<-by.Settled // what was answered first stands first
				e.Ended(by.Owner, row, workflow.MainOutcome{State: f.res.State})
			}
		default:
		}
	})
	wait := e.Foreground
	if wait <= 0 {
		wait = foreground
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case f := <-done:
		return f.res
	case <-t.C:
	}
	close(handed)
	select {
	case f := <-done: // it ended just now
		return f.res
	default:
	}
	return kernel.Result{State: workflow.Started, Change: kernel.ChangeUnknown,
		Output: commandOutput{CallID: leave.InvocationID, Job: true, DurationMS: e.Now().Sub(start).Milliseconds()}}
}

// ended is the result of a command.
func ended(callID string, out engine.CellResult, err error, took time.Duration) finished {
	o := commandOutput{CallID: callID, Stdout: text(out.Stdout), Stderr: text(out.Stderr), Truncated: out.Truncated, DurationMS: took.Milliseconds()}
	var never *engine.NotStarted
	switch {
	case errors.Is(err, engine.ErrNoCell):
		r := kernel.Refuse("no_cell", "this task has no cell in which a command can run", workflow.UserAction)
		return finished{r, governance.NeverStarted}
	case errors.As(err, &never):
		r := kernel.Refuse("command_not_started", "the program could not be started in the cell", workflow.FixInput)
		return finished{r, governance.NeverStarted}
	case err != nil:
		r := kernel.Unsure("command_outcome_unknown", "the command was cut off; what it did is not known")
		r.Output = o
		return finished{r, governance.Unknown}
	}
	o.ExitCode = &out.ExitCode
	if out.ExitCode != 0 {
		return finished{kernel.Result{State: workflow.Failed, Change: kernel.ChangeUnknown, Output: o,
			Fault: &kernel.Fault{Kind: "command_failed", Message: "the command exited with a code other than 0", Recovery: workflow.Reobserve}}, governance.Failed}
	}
	return finished{kernel.Done(o, kernel.ChangeUnknown), governance.Succeeded}
}

// text makes output fit into JSON.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// ask puts a question to a human.
func (e *Effects) ask(ctx context.Context, by kernel.By, in AskOperator) kernel.Result {
	leave, ok := by.Leave.(engine.AdmittedCall)
	if !ok {
		return kernel.Unsure("internal_error", "a question without leave")
	}
	start := e.Now()
	answer, err := e.Runtime.AskOperator(ctx, string(by.Owner), in.Question)
	took := e.Now().Sub(start)
	out, end := kernel.Done(struct {
		CallID string `json:"call_id"`
		Answer string `json:"answer"`
	}{leave.InvocationID, answer}, kernel.Unchanged), governance.Succeeded
	if err != nil {
		out = kernel.Result{State: workflow.Failed, Change: kernel.Unchanged,
			Fault: &kernel.Fault{Kind: "not_answered", Message: "nobody answered the question", Recovery: workflow.UserAction}}
		end = governance.Failed
	}
	e.Runtime.EndCall(context.WithoutCancel(ctx), string(by.Owner), leave, end, took)
	return out
}
