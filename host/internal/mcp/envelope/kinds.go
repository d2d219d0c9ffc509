package envelope

import (
	"github.com/airlock-host/airlock/host/internal/mcp/strict"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Kind is what a phase of a control envelope does. It is fit for logs and
// metrics: there are only these seven.
type Kind string

// The kinds.
const (
	GoalProgress         Kind = "goal_progress"
	WakeConsume          Kind = "wake_consume"
	AttemptHeartbeat     Kind = "attempt_heartbeat"
	SessionContextUpdate Kind = "session_context_update" // reserved: always refused
	GoalCompletion       Kind = "goal_completion"
	SessionClose         Kind = "session_close"
	TodoCompletion       Kind = "todo_completion"
)

// Before are the kinds of the phase before the main call, in order.
func Before() []Kind {
	return []Kind{GoalProgress, WakeConsume, AttemptHeartbeat, SessionContextUpdate}
}

// After are the kinds of the phase after a main call that succeeded. closing
// says whether those are among them that only a closing tool takes.
func After(closing bool) []Kind {
	if closing {
		return []Kind{GoalCompletion, SessionClose, TodoCompletion}
	}
	return []Kind{TodoCompletion}
}

// Closing says whether a kind ends something, and so needs a main call that
// says that nothing is open (R17, R25).
func (k Kind) Closing() bool { return k == GoalCompletion || k == SessionClose }

// Goal says whether a kind changes a goal, and so reports its revision (R36).
func (k Kind) Goal() bool { return k == GoalProgress || k == GoalCompletion }

// Tool is the canonical tool that does the same alone.
func (k Kind) Tool() string {
	switch k {
	case GoalProgress:
		return "checkpoint_goal"
	case WakeConsume:
		return "consume_agent_wake"
	case AttemptHeartbeat:
		return "heartbeat_agent_task_attempt"
	case SessionContextUpdate:
		return "update_session_context"
	case GoalCompletion:
		return "update_goal"
	case SessionClose:
		return "close_session"
	case TodoCompletion:
		return "complete_session_message"
	}
	return ""
}

// grammar holds the shape of each payload and how it becomes the request of the
// canonical tool.
type grammar struct {
	shapes map[Kind]*strict.Shape
	read   map[Kind]func(strict.Value) (any, error)
}

func newGrammar() grammar {
	g := grammar{shapes: map[Kind]*strict.Shape{}, read: map[Kind]func(strict.Value) (any, error){}}
	payload(g, GoalProgress, same[workflow.CheckpointGoal])
	payload(g, WakeConsume, same[workflow.ConsumeWake])
	payload(g, AttemptHeartbeat, same[workflow.Heartbeat])
	payload(g, SessionContextUpdate, same[workflow.UpdateSessionContext])
	payload(g, GoalCompletion, func(c workflow.CompleteGoal) any { return c.Update() })
	payload(g, SessionClose, same[workflow.CloseSession])
	payload(g, TodoCompletion, same[workflow.CompleteMessage])
	return g
}

func same[T any](req T) any { return req }

func payload[T any](g grammar, k Kind, canonical func(T) any) {
	shape := strict.ShapeOf[T]()
	g.shapes[k] = shape
	g.read[k] = func(v strict.Value) (any, error) {
		var req T
		if err := shape.Decode(v, &req); err != nil {
			return nil, err
		}
		return canonical(req), nil
	}
}
