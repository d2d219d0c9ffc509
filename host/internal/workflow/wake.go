package workflow

import "context"

// endpoint is where an agent is reached. A generation is one carrier; what an
// older one has proves nothing any more.
type endpoint struct {
	ID          string `json:"id"`
	AgentID     string `json:"agent_id"`
	Generation  int64  `json:"generation"`
	Lifecycle   string `json:"lifecycle"`                  // attached | detached
	ExpiresAt   int64  `json:"lease_expires_at,omitempty"` // 0: it holds as long as it is attached
	WakeCapable bool   `json:"wake_capable"`
}

const (
	endpointAttached = "attached"
	endpointDetached = "detached"
)

func (e *endpoint) row() Row {
	return Row{Table: TableEndpoints, ID: e.ID, Parent: e.AgentID, State: e.Lifecycle}
}

// wakeState is how far a wake is.
type wakeState string

// The states of a wake. What was prepared and may have arrived is never sent
// again: it waits to be consumed, or is retired.
const (
	wakePending   wakeState = "pending"
	wakeClaimed   wakeState = "claimed"
	wakePrepared  wakeState = "prepared"
	wakeDelivered wakeState = "delivered"
	wakeUnknown   wakeState = "delivery_unknown"
	wakeConsumed  wakeState = "consumed"
	wakeRetired   wakeState = "retired"
)

// wake is a call to an agent to go on.
type wake struct {
	ID             string    `json:"id"`
	AgentID        string    `json:"agent_id"`
	Reason         string    `json:"reason"`
	TaskID         string    `json:"task_id,omitempty"` // where it comes from
	AttemptID      string    `json:"attempt_id,omitempty"`
	State          wakeState `json:"state"`
	EndpointID     string    `json:"endpoint_id,omitempty"` // where it was sent
	Generation     int64     `json:"generation,omitempty"`
	TokenHash      []byte    `json:"token_hash,omitempty"`
	ClaimExpiresAt int64     `json:"claim_expires_at,omitempty"`
	Activated      bool      `json:"activated,omitempty"` // asked for by its agent
	CreatedAt      int64     `json:"created_at"`
	ConsumedAt     int64     `json:"consumed_at,omitempty"`
}

func (w *wake) row() Row {
	r := Row{Table: TableWakes, ID: w.ID, Parent: w.AgentID, State: string(w.State)}
	if w.over() {
		r.State = ""
	}
	return r
}

// over says that nothing happens to the wake any more.
func (w *wake) over() bool { return w.State == wakeConsumed || w.State == wakeRetired }

// claim takes a wake that is to be handed over; false: somebody else has it.
func (w *wake) claim(now, lease int64) bool {
	if w.State != wakePending && !(w.State == wakeClaimed && now >= w.ClaimExpiresAt) {
		return false
	}
	w.State, w.ClaimExpiresAt = wakeClaimed, now+lease
	return true
}

// prepare fixes where a claimed wake goes; from then on it may have arrived.
func (w *wake) prepare(e *endpoint, token string) bool {
	if w.State != wakeClaimed {
		return false
	}
	w.State, w.EndpointID, w.Generation, w.TokenHash, w.ClaimExpiresAt = wakePrepared, e.ID, e.Generation, proofHash(token), 0
	return true
}

// delivered takes what is known of a handing over.
func (w *wake) delivered(d Delivery) bool {
	switch {
	case w.State != wakePrepared && !(w.State == wakeUnknown && d == DeliveredYes):
		return false
	case d == DeliveredYes:
		w.State = wakeDelivered
	case d == DeliveredNo:
		w.State, w.EndpointID, w.Generation, w.TokenHash = wakePending, "", 0, nil
	default:
		w.State = wakeUnknown
	}
	return true
}

// recovered is what a restart of the host does to a wake.
func (w *wake) recovered() bool {
	switch w.State {
	case wakeClaimed:
		w.State, w.ClaimExpiresAt = wakePending, 0
	case wakePrepared:
		w.State = wakeUnknown
	default:
		return false
	}
	return true
}

// consume takes the proof of the agent.
func (w *wake) consume(now int64) bool {
	switch w.State {
	case wakePrepared, wakeDelivered, wakeUnknown:
		w.State, w.ConsumedAt = wakeConsumed, now
		return true
	}
	return false
}

func (w *wake) retire() bool {
	if w.over() {
		return false
	}
	w.State = wakeRetired
	return true
}

func (w *wake) notice() *WakeNotice {
	return &WakeNotice{WakeID: w.ID, Reason: w.Reason, State: string(w.State), At: w.CreatedAt}
}

func (k *Keeper) token(w *wake, e *endpoint) string {
	return k.proof(prefixConsume, w.ID, e.ID, decimal(e.Generation))
}

func (r WakeResult) phase() PhaseOutcome {
	return PhaseOutcome{State: Succeeded, StateChanged: &r.StateChanged, Replayed: r.AlreadyConsumed}
}

// ConsumeWake takes the proof that a continuation runs. It is the only evidence
// for it; a delivery is none.
func (k *Keeper) ConsumeWake(ctx context.Context, by Caller, in ConsumeWake) (WakeResult, error) {
	return mutate(ctx, k, by, ofTasks, func(tx Tx) (WakeResult, error) { return k.consume(tx, by.Owner.Digest(), in) })
}

func (in *ConsumeWake) check() error {
	if err := agentID(in.AgentID, "agent_id"); err != nil {
		return err
	}
	switch {
	case !isID(prefixEndpoint, in.EndpointID):
		return refuse("invalid_endpoint_id", FixInput, "endpoint_id is not the id of an endpoint")
	case in.ExpectedControllerGeneration < 1:
		return refuse("invalid_controller_generation", FixInput, "expected_controller_generation must be 1 or more")
	case !isID(prefixWake, in.WakeID):
		return refuse("invalid_wake_id", FixInput, "wake_id is not the id of a wake")
	case !isProof(prefixConsume, in.ConsumeToken):
		return refuse("invalid_wake_consume_token", FixInput, "consume_token has not the form of a token")
	}
	return nil
}

func (k *Keeper) consume(tx Tx, owner [32]byte, in ConsumeWake) (out WakeResult, err error) {
	if err := in.check(); err != nil {
		return out, err
	}
	now := k.now()
	e, err := load[endpoint](tx, TableEndpoints, owner, in.EndpointID)
	if err != nil {
		return out, err
	}
	switch {
	case e == nil:
		return out, refuse("endpoint_not_found", FixInput, "there is no such endpoint")
	case e.Lifecycle != endpointAttached:
		return out, refuse("endpoint_detached", NoAction, "the endpoint is detached")
	case e.ExpiresAt != 0 && now >= e.ExpiresAt:
		return out, refuse("endpoint_expired", Reobserve, "the endpoint's lease has passed")
	case e.Generation != in.ExpectedControllerGeneration:
		return out, refuse("endpoint_generation_stale", Reobserve, "the endpoint has another generation now")
	}
	w, err := load[wake](tx, TableWakes, owner, in.WakeID)
	if err != nil {
		return out, err
	}
	switch {
	case w == nil:
		return out, refuse("wake_not_found", FixInput, "there is no such wake")
	case w.AgentID != in.AgentID:
		return out, refuse("wake_agent_mismatch", FixInput, "the wake is for another agent")
	case w.EndpointID == "":
		return out, refuse("wake_not_dispatched", Reobserve, "the wake was not handed over")
	case w.EndpointID != e.ID || w.Generation != e.Generation:
		return out, refuse("wake_endpoint_fence_mismatch", Reobserve, "the wake was handed over at another endpoint or generation")
	case !e.WakeCapable && !w.Activated:
		return out, refuse("endpoint_not_wake_capable", UserAction, "the endpoint takes no wakes")
	case !proofEqual(in.ConsumeToken, w.TokenHash):
		return out, refuse("wake_consume_token_mismatch", FixInput, "the token is not the wake's")
	}
	first := w.consume(now)
	if !first && w.State != wakeConsumed {
		return out, refuse("wake_not_dispatched", NoAction, "the wake was retired before it was consumed")
	}
	if first {
		tx.Update(rowOf(owner, w))
		if err := k.turnBegins(tx, owner, w, now); err != nil {
			return out, err
		}
	}
	return WakeResult{WakeID: w.ID, TargetAgentID: w.AgentID, State: string(w.State), AlreadyConsumed: !first, ConsumedAt: w.ConsumedAt, StateChanged: first}, nil
}

// turnBegins gives the attempt that a wake comes from a turn's lease, if it is
// still the task's live one; one that has expired is not revived.
func (k *Keeper) turnBegins(tx Tx, owner [32]byte, w *wake, now int64) error {
	if w.TaskID == "" {
		return nil
	}
	t, err := load[task](tx, TableTasks, owner, w.TaskID)
	if err != nil || t == nil || t.terminal() {
		return err
	}
	a, err := latest(tx, t.TaskID)
	if err != nil || a == nil || a.AttemptID != w.AttemptID || a.effective(now) != AttemptActive {
		return err
	}
	a.Told = true // who has the token was given the fence with it
	a.extend(now, k.opts.Leases.ActiveTurn.Milliseconds())
	tx.Update(rowOf(owner, a))
	return nil
}
