package workflow

import (
	"context"
	"errors"
)

var errGone = errors.New("a row that another one names is not there")

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func (r HeartbeatResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged}
}

func (r CompleteAttemptResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged, Replayed: r.Replayed}
}

// attemptProof is the tuple that proves who holds an attempt.
type attemptProof struct {
	task, attempt, assignee, fence string
	generation                     int64
}

func (p attemptProof) check() error {
	if err := taskID(p.task); err != nil {
		return err
	}
	if !isID(prefixAttempt, p.attempt) {
		return refuse("invalid_agent_task_attempt_id", FixInput, "attempt_id is not the id of an attempt")
	}
	if err := agentID(p.assignee, "assignee_agent_id"); err != nil {
		return err
	}
	if !isProof(prefixFence, p.fence) {
		return refuse("invalid_agent_task_attempt_fence", FixInput, "attempt_fence has not the form of a fence")
	}
	if p.generation < 1 {
		return refuse("invalid_agent_task_controller_generation", FixInput, "attempt_controller_generation must be 1 or more")
	}
	return nil
}

// current checks that the proof is of the task's live attempt, in the order that
// all who need it share.
func (p attemptProof) current(t *task, last *attempt, now int64) error {
	stale := func(text string) error { return refuse("agent_task_attempt_stale", Reobserve, text) }
	switch {
	case t.terminal():
		return refuse("agent_task_terminal", NoAction, "the agent task has ended")
	case last == nil || last.AttemptID != p.attempt:
		return stale("it is not the newest attempt of the agent task")
	case t.AssigneeAgentID != p.assignee:
		return refuse("agent_task_assignee_mismatch", FixInput, "the agent task is assigned to another agent")
	case !proofEqual(p.fence, last.FenceHash), last.AssigneeAgentID != p.assignee, last.ControllerGeneration != p.generation:
		return stale("fence, agent or generation are not those of the attempt")
	case last.effective(now) != AttemptActive:
		return stale("the attempt has ended or its lease has passed")
	}
	return nil
}

// Heartbeat extends the lease of an attempt; the host decides by how much.
func (k *Keeper) Heartbeat(ctx context.Context, by Caller, in Heartbeat) (HeartbeatResult, error) {
	return mutate(ctx, k, by, ofTasks, func(tx Tx) (HeartbeatResult, error) { return k.heartbeat(tx, by.Owner.Digest(), in) })
}

func (k *Keeper) heartbeat(tx Tx, owner [32]byte, in Heartbeat) (out HeartbeatResult, err error) {
	p := attemptProof{in.TaskID, in.AttemptID, in.AssigneeAgentID, in.AttemptFence, in.AttemptControllerGeneration}
	if err := p.check(); err != nil {
		return out, err
	}
	if err := in.checkTurn(); err != nil {
		return out, err
	}
	t, err := loadTask(tx, owner, in.TaskID)
	if err != nil {
		return out, err
	}
	a, err := latest(tx, t.TaskID)
	if err != nil {
		return out, err
	}
	now := k.now()
	if err := p.current(t, a, now); err != nil {
		return out, err
	}
	window := k.opts.Leases.Attempt
	if in.ActiveTurnWakeID != nil {
		if err := k.activeTurn(tx, owner, a, *in.ActiveTurnWakeID, *in.ActiveTurnConsumeToken); err != nil {
			return out, err
		}
		window = k.opts.Leases.ActiveTurn
	}
	moved := a.extend(now, window.Milliseconds())
	if moved || !a.Told {
		a.Told = true
		tx.Update(rowOf(owner, a))
	}
	return HeartbeatResult{Task: t.summary(a, now), Attempt: a.record(now), StateChanged: moved}, nil
}

// extend moves the lease, never back; it says whether it moved.
func (a *attempt) extend(now, window int64) bool {
	if now+window <= a.LeaseExpiresAt {
		return false
	}
	a.LeaseExpiresAt = now + window
	return true
}

// checkTurn checks the form of the proof of an active turn.
func (in *Heartbeat) checkTurn() error {
	wake, token := in.ActiveTurnWakeID, in.ActiveTurnConsumeToken
	switch {
	case (wake == nil) != (token == nil):
		return refuse("invalid_agent_task_active_turn_proof", FixInput, "active_turn_wake_id and active_turn_consume_token go together")
	case wake == nil:
		return nil
	case !isID(prefixWake, *wake):
		return refuse("invalid_agent_task_active_turn_wake_id", FixInput, "active_turn_wake_id is not the id of a wake")
	case !isProof(prefixConsume, *token):
		return refuse("invalid_agent_task_active_turn_consume_token", FixInput, "active_turn_consume_token has not the form of a token")
	}
	return nil
}

// activeTurn checks that the wake was made by exactly this attempt, that it has
// been consumed with the token, and by the endpoint that the execution is bound
// to.
func (k *Keeper) activeTurn(r Reader, owner [32]byte, a *attempt, wakeID, token string) error {
	w, err := load[wake](r, TableWakes, owner, wakeID)
	if err != nil {
		return err
	}
	e := a.Execution
	if w == nil || w.State != wakeConsumed || w.TaskID != a.TaskID || w.AttemptID != a.AttemptID || w.AgentID != a.AssigneeAgentID ||
		!proofEqual(token, w.TokenHash) || e.EndpointID == "" || w.EndpointID != e.EndpointID || w.Generation != e.Generation {
		return refuse("agent_task_active_turn_proof_invalid", FixInput, "the wake is not one of this attempt that its agent has consumed at its present endpoint")
	}
	return nil
}

// CompleteAttempt ends an attempt and, with either outcome, its task.
func (k *Keeper) CompleteAttempt(ctx context.Context, by Caller, in CompleteAttempt) (CompleteAttemptResult, error) {
	return mutate(ctx, k, by, ofTasks, func(tx Tx) (CompleteAttemptResult, error) {
		return k.completeAttempt(tx, by.Owner.Digest(), in)
	})
}

func (k *Keeper) completeAttempt(tx Tx, owner [32]byte, in CompleteAttempt) (out CompleteAttemptResult, err error) {
	p := attemptProof{in.TaskID, in.AttemptID, in.AssigneeAgentID, in.AttemptFence, in.AttemptControllerGeneration}
	if err := p.check(); err != nil {
		return out, err
	}
	if in.Outcome != string(AttemptSucceeded) && in.Outcome != string(AttemptFailed) {
		return out, refuse("invalid_agent_task_outcome", FixInput, "outcome must be succeeded or failed")
	}
	if len(value(in.TerminalResult)) > maxTerminal || len(value(in.TerminalReason)) > maxTerminal {
		return out, refuse("invalid_agent_task_outcome", FixInput, "terminal_result and terminal_reason may have 4096 bytes each")
	}
	if in.CompletionKey, err = key(in.CompletionKey, "invalid_communication_idempotency_key"); err != nil {
		return out, err
	}
	t, err := loadTask(tx, owner, in.TaskID)
	if err != nil {
		return out, err
	}
	now := k.now()
	request := requestHash(opComplete, in)
	seen, err := replayed(tx, owner, opComplete, in.CompletionKey, request, "communication_idempotency_conflict")
	if err != nil {
		return out, err
	}
	a, err := latest(tx, t.TaskID)
	if err != nil {
		return out, err
	}
	if seen != nil {
		done, err := load[attempt](tx, TableAttempts, owner, seen.ResourceID)
		if err != nil || done == nil {
			return out, errOr(err, errCorrupt{TableAttempts, errGone})
		}
		return CompleteAttemptResult{Task: t.summary(a, now), Attempt: done.record(now), Replayed: true}, nil
	}
	if err := p.current(t, a, now); err != nil {
		return out, err
	}
	a.Told = true
	k.endAttempt(tx, owner, t, a, AttemptState(in.Outcome), value(in.TerminalResult), value(in.TerminalReason), now)
	if err := k.announce(tx, owner, t, a, now); err != nil {
		return out, err
	}
	k.used(tx, owner, opComplete, in.CompletionKey, request, a.AttemptID, 0)
	return CompleteAttemptResult{Task: t.summary(a, now), Attempt: a.record(now), StateChanged: true}, nil
}

// endAttempt writes the end of an attempt and its task.
func (k *Keeper) endAttempt(tx Tx, owner [32]byte, t *task, a *attempt, end AttemptState, result, reason string, now int64) {
	a.State, a.TerminalAt, a.TerminalResult, a.TerminalReason = end, max(now, a.StartedAt), result, reason
	if a.Execution.State != "" {
		a.Execution.observe(dispatchTerminal, a.Execution.Revision+1)
	}
	t.State, t.TerminalAt, t.UpdatedAt = TaskState(end), a.TerminalAt, max(now, t.UpdatedAt)
	tx.Update(rowOf(owner, a))
	tx.Update(rowOf(owner, t))
}
