package request

import "github.com/airlock-host/airlock/host/internal/mcp/strict"

// CallTool is call_runtime_tool.
type CallTool struct {
	Tool      string       `wc:"tool,required"`
	Arguments strict.Value `wc:"arguments,required" doc:"the tool's own arguments; never with a _wc in them"`
}

// InvocationOutcome is get_invocation_outcome.
type InvocationOutcome struct {
	InvocationID *string `wc:"invocation_id" doc:"as a call with _wc.control has answered it; if left out, the newest ones"`
}

// RunCommand is run_command.
type RunCommand struct {
	Project    string   `wc:"project,required" doc:"from get_mission_context"`
	Executable string   `wc:"executable,required"`
	Args       []string `wc:"args"`
}

// AskOperator is ask_operator.
type AskOperator struct {
	Question string `wc:"question,required"`
}

// MissionContext is get_mission_context.
type MissionContext struct{}
