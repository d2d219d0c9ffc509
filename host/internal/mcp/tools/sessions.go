package tools

import (
	"context"

	"github.com/airlock-host/airlock/host/internal/mcp/envelope"
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Sessions are the tools on workflow sessions, and finish_coding_task.
func Sessions(s workflow.Service) []*kernel.Tool {
	type ctx = context.Context
	type by = kernel.By
	return []*kernel.Tool{
		kernel.Target(kernel.NewTool(writes("post_session_message", ScopeCollaborate, "Post a message to a session; a todo is one that must be completed."),
			func(c ctx, b by, in workflow.PostMessage) kernel.Result {
				r, err := s.PostMessage(c, b.Caller, in)
				return wrote(r, err, r.StateChanged, r.Replayed)
			}), func(in workflow.PostMessage) string { return in.SessionID }),
		kernel.Target(kernel.NewTool(reads("get_session_assignment", ScopeCollaborate, "Read a todo with its replies, and the fence that proves that you did."),
			func(c ctx, b by, in workflow.GetAssignment) kernel.Result {
				return read(s.GetAssignment(c, b.Caller, in))
			}), func(in workflow.GetAssignment) string { return in.SessionID }),
		kernel.Target(kernel.NewTool(writes("complete_session_message", ScopeCollaborate, "Answer a todo and resolve it, with the fence of the assignment as you read it.",
			`As a sidecar of the call that does the work: "_wc":{"control":{"after_success":{"todo_completion":{"session_id":"wc_sess_abcdefghijklmnop","message_id":"wc_msg_abcdefghijklmnop","answer":"Done","completion_key":"todo-1","expected_assignment_fence":"wsa2_abcdefghijklmnopqrstuA"}}}}`),
			func(c ctx, b by, in workflow.CompleteMessage) kernel.Result {
				r, err := s.CompleteMessage(c, b.Caller, in)
				return wrote(r, err, r.StateChanged, r.Replayed)
			}), func(in workflow.CompleteMessage) string { return in.SessionID }),
		kernel.Target(kernel.NewTool(writes("resolve_session_message", ScopeCollaborate, "Resolve a message that is no todo."),
			func(c ctx, b by, in workflow.ResolveMessage) kernel.Result {
				r, err := s.ResolveMessage(c, b.Caller, in)
				return wrote(r, err, r.StateChanged, r.Replayed)
			}), func(in workflow.ResolveMessage) string { return in.SessionID }),
		kernel.Target(kernel.NewTool(writes("update_session_context", ScopeCollaborate, "Replace a session's defaults.",
			`Reserved as a sidecar, and refused there: "_wc":{"control":{"before":{"session_context_update":{"project":"p","session_id":"wc_sess_abcdefghijklmnop","execution_context":{"default_shell":"sh"}}}}}`),
			func(c ctx, b by, in workflow.UpdateSessionContext) kernel.Result {
				r, err := s.UpdateSessionContext(c, b.Caller, in)
				return wrote(r, err, r.Changed, false)
			}), func(in workflow.UpdateSessionContext) string { return in.SessionID }),
		kernel.Target(kernel.NewTool(writes("close_session", ScopeCollaborate, "Close a session for good.",
			`On finish_coding_task, as a sidecar: "_wc":{"control":{"after_success":{"session_close":{"session_id":"wc_sess_abcdefghijklmnop"}}}}`),
			func(c ctx, b by, in workflow.CloseSession) kernel.Result {
				r, err := s.CloseSession(c, b.Caller, in)
				return wrote(r, err, r.StateChanged, r.AlreadyClosed)
			}), func(in workflow.CloseSession) string { return in.SessionID }),
		kernel.Target(kernel.NewTool(kernel.Def{Name: "finish_coding_task", Scope: ScopeRuntime, Fields: envelope.All, Detail: envelope.Full, Closeout: true, ReadOnly: true,
			Description: "Ask whether the work may be closed: task_outcome.blocking is true while a todo is open, an outcome unknown, a job running or an attempt failed. It closes nothing.",
			Sidecar:     "goal_completion or session_close may follow as after_success, and run only if it is not blocking."},
			func(c ctx, b by, in workflow.FinishTask) kernel.Result { return read(s.FinishTask(c, b.Caller, in)) }),
			func(in workflow.FinishTask) string { return in.SessionID }),
	}
}

// Lookups are the tools that say what is.
func Lookups(s workflow.Service) []*kernel.Tool {
	type ctx = context.Context
	type by = kernel.By
	return []*kernel.Tool{
		kernel.NewTool(reads("get_mission_context", ScopeManage, "Your goal, session, agent, task and attempt, with their proofs the first time, and a wake that waits. Call it first."),
			func(c ctx, b by, _ struct{}) kernel.Result { return read(s.Context(c, b.Caller)) }),
		kernel.NewTool(kernel.Def{Name: "get_invocation_outcome", Scope: ScopeRuntime, Fields: envelope.All, Detail: envelope.Full, ReadOnly: true,
			Description: "What became of a call whose answer was lost, by the invocation_id that it answered with or the nonce that it was sent with. Look here before you repeat a call.",
			Sidecar:     "A call that had _wc.control is found without a nonce too; a sidecar never makes its main call safe to repeat."},
			func(c ctx, b by, in workflow.GetOutcome) kernel.Result { return read(s.Outcome(c, b.Caller, in)) }),
	}
}
