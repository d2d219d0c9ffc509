// Package tools are the tools that the MCP endpoint has: what each is called,
// which scope it needs, and how its request becomes a command of the workflow
// domain or of the engine. It imports the kernel and those two.
//
// The one idea: a tool adds nothing to what its command says. State, change,
// replay and revision of a result come from the typed answer, each by name.
package tools

import (
	"context"
	"strings"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Scopes of the tools.
const (
	ScopeRead        = "communication:read"
	ScopeManage      = "communication:manage"
	ScopeCollaborate = "session:collaborate"
	ScopeRuntime     = "runtime:read"
	ScopeExecute     = "runtime:execute"
	ScopeAsk         = "operator:ask"
)

// Scopes are all of them.
func Scopes() []string {
	return []string{ScopeRead, ScopeManage, ScopeCollaborate, ScopeRuntime, ScopeExecute, ScopeAsk}
}

// read is the result of a command that only looks.
func read(output any, err error) kernel.Result {
	if err != nil {
		return kernel.FromError(err)
	}
	return kernel.Done(output, kernel.Unchanged)
}

// wrote is the result of a command that may have changed something.
func wrote(output any, err error, changed, replayed bool) kernel.Result {
	if err != nil {
		return kernel.FromError(err)
	}
	r := kernel.Done(output, kernel.ChangedIf(changed))
	r.Replayed = replayed
	return r
}

func goal(g workflow.GoalResult, err error) kernel.Result {
	r := wrote(g, err, g.StateChanged, g.Replayed)
	if err == nil {
		r.Revision = g.Goal.Summary.Revision
	}
	return r
}

func reads(name, scope, text string) kernel.Def {
	return kernel.Def{Name: name, Scope: scope, Description: text, Fields: envelope.All, Detail: envelope.Full, ReadOnly: true}
}

// writes is a tool that changes something; sidecar is how it stands in an
// envelope, where it can.
func writes(name, scope, text string, sidecar ...string) kernel.Def {
	return kernel.Def{Name: name, Scope: scope, Description: text, Sidecar: strings.Join(sidecar, " "), Fields: envelope.All, Detail: envelope.Brief}
}

// Goals are the tools on goals.
func Goals(s workflow.Service) []*kernel.Tool {
	type ctx = context.Context
	type by = kernel.By
	return []*kernel.Tool{
		kernel.NewTool(writes("create_goal", ScopeManage, "Make a goal with steps. A mission has one already: get_mission_context names it."),
			func(c ctx, b by, in workflow.CreateGoal) kernel.Result { return goal(s.CreateGoal(c, b.Caller, in)) }),
		kernel.NewTool(reads("get_goal", ScopeRead, "Read a goal: its revision, steps and last checkpoint."),
			func(c ctx, b by, in workflow.GetGoal) kernel.Result { return read(s.GetGoal(c, b.Caller, in)) }),
		kernel.NewTool(reads("list_goals", ScopeRead, "List goals, the last changed first."),
			func(c ctx, b by, in workflow.ListGoals) kernel.Result { return read(s.ListGoals(c, b.Caller, in)) }),
		kernel.NewTool(writes("checkpoint_goal", ScopeManage, "Record progress on a goal: steps done, the step begun, a summary.",
			`As a sidecar, with the same members: "_wc":{"control":{"before":{"goal_progress":{"goal_id":"wc_goal_abcdefghijklmnop","expected_revision":3,"completed_step_ids":["implement"],"current_step_id":"tests","summary":"Implemented; begin the tests","idempotency_key":"implement-done"}}}}`),
			func(c ctx, b by, in workflow.CheckpointGoal) kernel.Result {
				return goal(s.CheckpointGoal(c, b.Caller, in))
			}),
		kernel.NewTool(writes("update_goal", ScopeManage, "Change a goal, or end it with lifecycle completed or cancelled.",
			`On finish_coding_task, as a sidecar, completed: "_wc":{"control":{"after_success":{"goal_completion":{"goal_id":"wc_goal_abcdefghijklmnop","expected_revision":4,"idempotency_key":"goal-done","terminal_reason":"All conditions hold"}}}}`),
			func(c ctx, b by, in workflow.UpdateGoal) kernel.Result { return goal(s.UpdateGoal(c, b.Caller, in)) }),
	}
}

// Work are the tools on agent tasks, attempts and wakes.
func Work(s workflow.Service) []*kernel.Tool {
	type ctx = context.Context
	type by = kernel.By
	return []*kernel.Tool{
		kernel.NewTool(writes("create_agent_task", ScopeManage, "Make a task for an agent."),
			func(c ctx, b by, in workflow.CreateTask) kernel.Result {
				r, err := s.CreateTask(c, b.Caller, in)
				return wrote(r, err, r.StateChanged, r.Replayed)
			}),
		kernel.NewTool(reads("read_agent_task", ScopeRead, "Read a task and its attempts."),
			func(c ctx, b by, in workflow.ReadTask) kernel.Result { return read(s.ReadTask(c, b.Caller, in)) }),
		kernel.NewTool(writes("start_agent_task_attempt", ScopeManage, "Claim a task. Only this answer holds the attempt's fence."),
			func(c ctx, b by, in workflow.StartAttempt) kernel.Result {
				r, err := s.StartAttempt(c, b.Caller, in)
				return wrote(r, err, r.StateChanged, r.Replayed)
			}),
		kernel.NewTool(writes("heartbeat_agent_task_attempt", ScopeManage, "Move the lease of your attempt; nothing else does.",
			`As a sidecar: "_wc":{"control":{"before":{"attempt_heartbeat":{"task_id":"wc_agent_task_abcdefghijklmnop","attempt_id":"wc_agent_task_attempt_abcdefghijklmnop","assignee_agent_id":"wc_dagent_abcdefghijklmnop","attempt_fence":"wc_agent_task_fence_abcdefghijklmnopqrstuA","attempt_controller_generation":1}}}}`),
			func(c ctx, b by, in workflow.Heartbeat) kernel.Result {
				r, err := s.Heartbeat(c, b.Caller, in)
				return wrote(r, err, r.StateChanged, false)
			}),
		kernel.NewTool(writes("complete_agent_task_attempt", ScopeManage, "End your attempt and with it the task, as succeeded or failed."),
			func(c ctx, b by, in workflow.CompleteAttempt) kernel.Result {
				r, err := s.CompleteAttempt(c, b.Caller, in)
				return wrote(r, err, r.StateChanged, r.Replayed)
			}),
		kernel.NewTool(writes("consume_agent_wake", ScopeManage, "Say that you go on after a wake (a restart, a resume), with its token.",
			`As a sidecar: "_wc":{"control":{"before":{"wake_consume":{"agent_id":"wc_dagent_abcdefghijklmnop","endpoint_id":"wc_endpoint_abcdefghijklmnop","expected_controller_generation":2,"wake_id":"wc_wake_abcdefghijklmnop","consume_token":"wc_wake_consume_abcdefghijklmnopqrstuA"}}}}`),
			func(c ctx, b by, in workflow.ConsumeWake) kernel.Result {
				r, err := s.ConsumeWake(c, b.Caller, in)
				return wrote(r, err, r.StateChanged, r.AlreadyConsumed)
			}),
	}
}
