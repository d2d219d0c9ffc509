package workflow

import (
	"context"
	"encoding/hex"
)

// attempt is the stored form: State is as it was written. An expired attempt is
// found out when it is read, and written with the next claim.
type attempt struct {
	AttemptRecord
	FenceHash []byte    `json:"fence_hash"`
	Claim     string    `json:"claim"` // what the fence is derived from beside the id
	Execution execution `json:"execution,omitzero"`
	// Told: the fence has been used, so its holder has it.
	Told bool `json:"told,omitempty"`
}

func (a *attempt) row() Row {
	return Row{Table: TableAttempts, ID: a.AttemptID, Parent: a.TaskID, State: string(a.State)}
}

// dispatch is how far the execution of an attempt is.
type dispatch string

// The states of an execution. outcome_unknown is written before the work is
// handed over and corrected afterwards, so that a crash in between is known.
const (
	dispatchPrepared   dispatch = "prepared"
	dispatchNotStarted dispatch = "not_started"
	dispatchUnknown    dispatch = "outcome_unknown"
	dispatchBound      dispatch = "bound"
	dispatchTerminal   dispatch = "terminal"
)

// execution is what runs for an attempt; the zero one is nothing.
type execution struct {
	State dispatch `json:"state"`
	// Revision grows with each observation; an older one changes nothing.
	Revision   int64  `json:"revision"`
	EndpointID string `json:"endpoint_id,omitempty"`
	Generation int64  `json:"generation,omitempty"` // of the endpoint
}

func (e execution) blocks() bool { return e.State == dispatchUnknown || e.State == dispatchBound }

// observe merges an observation; it says whether anything is new.
func (e *execution) observe(state dispatch, revision int64) bool {
	if revision <= e.Revision || e.State == dispatchTerminal || e.State == dispatchNotStarted {
		return false
	}
	e.State, e.Revision = state, revision
	return true
}

// effective is the state now: a lease that has passed ends an attempt.
func (a *attempt) effective(now int64) AttemptState {
	if a.State == AttemptActive && now >= a.LeaseExpiresAt {
		return AttemptExpired
	}
	return a.State
}

func (a *attempt) record(now int64) AttemptRecord {
	r := a.AttemptRecord
	r.State = a.effective(now)
	r.LeaseActive = r.State == AttemptActive
	if r.State == AttemptExpired && r.TerminalAt == 0 {
		r.TerminalAt = r.LeaseExpiresAt
	}
	return r
}

func (k *Keeper) fence(a *attempt) string { return k.proof(prefixFence, a.AttemptID, a.Claim) }

func (r AttemptResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged, Replayed: r.Replayed}
}

func agentID(id, name string) error {
	if !isID(prefixAgent, id) {
		return refuse("invalid_agent_id", FixInput, name+" is not the id of an agent")
	}
	return nil
}

// StartAttempt claims a task: it makes an attempt with a lease and gives its
// fence, the only time but for an exact repetition.
func (k *Keeper) StartAttempt(ctx context.Context, by Caller, in StartAttempt) (AttemptResult, error) {
	return mutate(ctx, k, by, ofTasks, func(tx Tx) (AttemptResult, error) { return k.claim(tx, by.Owner.Digest(), in) })
}

func (k *Keeper) claim(tx Tx, owner [32]byte, in StartAttempt) (out AttemptResult, err error) {
	if err := taskID(in.TaskID); err != nil {
		return out, err
	}
	if err := agentID(in.AssigneeAgentID, "assignee_agent_id"); err != nil {
		return out, err
	}
	if in.IdempotencyKey, err = key(in.IdempotencyKey, "invalid_communication_idempotency_key"); err != nil {
		return out, err
	}
	t, err := loadTask(tx, owner, in.TaskID)
	if err != nil {
		return out, err
	}
	now := k.now()
	request := requestHash(opClaim, in)
	seen, err := replayed(tx, owner, opClaim, in.IdempotencyKey, request, "communication_idempotency_conflict")
	if err != nil {
		return out, err
	}
	last, err := latest(tx, t.TaskID)
	if err != nil {
		return out, err
	}
	if seen != nil {
		a, err := load[attempt](tx, TableAttempts, owner, seen.ResourceID)
		if err != nil || a == nil {
			return out, errOr(err, errCorrupt{TableAttempts, errGone})
		}
		return AttemptResult{Task: t.summary(last, now), Attempt: a.record(now), AttemptFence: k.fence(a), Replayed: true}, nil
	}
	if err := mayClaim(tx, owner, t, last, in.AssigneeAgentID, now); err != nil {
		return out, err
	}
	digest := keyHash(opClaim, in.IdempotencyKey)
	a, err := k.newAttempt(tx, owner, t, last, hex.EncodeToString(digest[:]), k.opts.Leases.Attempt.Milliseconds(), now)
	if err != nil {
		return out, err
	}
	tx.Insert(rowOf(owner, a))
	k.used(tx, owner, opClaim, in.IdempotencyKey, request, a.AttemptID, 0)
	return AttemptResult{Task: t.summary(a, now), Attempt: a.record(now), AttemptFence: k.fence(a), StateChanged: true}, nil
}

// mayClaim are the checks of a claim after the replay, in their order.
func mayClaim(tx Tx, owner [32]byte, t *task, last *attempt, assignee string, now int64) error {
	switch {
	case t.terminal():
		return refuse("agent_task_terminal", NoAction, "the agent task has ended")
	case t.AssigneeAgentID == "":
		return refuse("agent_task_unassigned", UserAction, "the agent task is assigned to nobody")
	case t.AssigneeAgentID != assignee:
		return refuse("agent_task_assignee_mismatch", FixInput, "the agent task is assigned to another agent")
	}
	if err := agentOf(tx, owner, &assignee); err != nil {
		return err
	}
	if last == nil {
		return nil
	}
	live := last.effective(now) == AttemptActive
	switch {
	case !live && last.Execution.State == dispatchUnknown:
		return refuse("agent_task_execution_outcome_unknown", Reconcile, "what the last attempt started may still run; find out first")
	case !live && last.Execution.State == dispatchBound:
		return refuse("agent_task_execution_active", Reobserve, "what the last attempt started still runs")
	case live:
		return refuse("agent_task_attempt_active", Reobserve, "the agent task has an attempt whose lease holds")
	}
	return nil
}

// newAttempt makes the next attempt of a task; the one before is written as
// expired. The task and what was expired are put, the attempt is not yet.
func (k *Keeper) newAttempt(tx Tx, owner [32]byte, t *task, last *attempt, claim string, lease, now int64) (*attempt, error) {
	if last != nil && last.State == AttemptActive {
		last.State, last.TerminalAt = AttemptExpired, last.LeaseExpiresAt
		tx.Update(rowOf(owner, last))
	}
	id, err := k.newID(tx, TableAttempts, prefixAttempt)
	if err != nil {
		return nil, err
	}
	t.AttemptCount++
	t.State, t.UpdatedAt = TaskActive, max(now, t.UpdatedAt)
	tx.Update(rowOf(owner, t))
	a := &attempt{Claim: claim}
	a.AttemptRecord = AttemptRecord{AttemptID: id, TaskID: t.TaskID, AttemptNumber: t.AttemptCount, AssigneeAgentID: t.AssigneeAgentID,
		State: AttemptActive, LeaseExpiresAt: now + lease, ControllerGeneration: 1, CreatedAt: now, StartedAt: now}
	a.FenceHash = proofHash(k.fence(a))
	return a, nil
}
