package workflow

import (
	"context"
	"fmt"
)

func (MissionContext) phase() PhaseOutcome {
	no := false
	return PhaseOutcome{State: Succeeded, StateChanged: &no}
}

// Context gives a mission's ids, its proofs and the wake that waits. Handing the
// wake over counts as its delivery.
func (k *Keeper) Context(ctx context.Context, by Caller) (MissionContext, error) {
	return mutate(ctx, k, by, ofTasks, func(tx Tx) (MissionContext, error) {
		c, w, err := k.missionContext(tx, by.Owner.Digest())
		if err == nil && w != nil && w.delivered(DeliveredYes) {
			tx.Update(rowOf(by.Owner.Digest(), w))
			c.Wake = w.notice()
		}
		return c, err
	})
}

// missionContext reads what a mission has and prepares its pending wake, which
// it gives with the change already put.
func (k *Keeper) missionContext(tx Tx, owner [32]byte) (c MissionContext, w *wake, err error) {
	run, err := loadRun(tx, owner)
	if err != nil {
		return c, nil, err
	}
	if run == nil {
		return c, nil, refuse("mission_context_not_found", UserAction, "the caller has no mission with a goal and a session")
	}
	g, err := loadGoal(tx, owner, run.GoalID)
	if err != nil {
		return c, nil, err
	}
	e, err := load[endpoint](tx, TableEndpoints, owner, run.EndpointID)
	if err != nil || e == nil {
		return c, nil, errOr(err, errCorrupt{TableRuns, errGone})
	}
	a, err := load[attempt](tx, TableAttempts, owner, run.AttemptID)
	if err != nil || a == nil {
		return c, nil, errOr(err, errCorrupt{TableRuns, errGone})
	}
	c = MissionContext{Project: run.Project, GoalID: run.GoalID, Revision: g.Summary.Revision, SessionID: run.SessionID, AgentID: run.AgentID,
		EndpointID: e.ID, Generation: e.Generation, TaskID: run.TaskID, AttemptID: a.AttemptID, AttemptGeneration: a.ControllerGeneration, LeaseExpiresAt: a.LeaseExpiresAt}
	var p Proofs
	if !a.Told {
		p.AttemptFence = k.fence(a)
	}
	if w, err = k.waiting(tx, owner, e); err != nil {
		return c, nil, err
	}
	if w != nil {
		p.ConsumeToken = k.token(w, e)
		c.Wake = w.notice()
	}
	if p != (Proofs{}) {
		c.Proofs = &p
	}
	return c, w, nil
}

// waiting finds the wake that an endpoint's agent has not consumed; a pending
// one is prepared.
func (k *Keeper) waiting(tx Tx, owner [32]byte, e *endpoint) (*wake, error) {
	if e.Lifecycle != endpointAttached {
		return nil, nil
	}
	open, err := list[wake](tx, Query{Table: TableWakes, By: ByParent, Key: e.AgentID, Open: true})
	if err != nil {
		return nil, err
	}
	for _, w := range open {
		if w.EndpointID == e.ID && w.Generation == e.Generation {
			return w, nil
		}
		if w.claim(k.now(), k.opts.Leases.WakeClaim.Milliseconds()) && w.prepare(e, k.token(w, e)) {
			tx.Update(rowOf(owner, w))
			return w, nil
		}
	}
	return nil, nil
}

// Resume gives the text for the prompt of a resumed agent. A prompt is stored
// with the plan of its session, so the token is not in it.
func (k *Keeper) Resume(ctx context.Context, owner Owner) (p ResumePrompt, ok bool, err error) {
	c, err := mutate(ctx, k, Caller{Owner: owner}, ofTasks, func(tx Tx) (MissionContext, error) {
		c, _, err := k.missionContext(tx, owner.Digest())
		return c, err
	})
	if KindOf(err) == "mission_context_not_found" {
		return p, false, nil
	}
	if err != nil || c.Wake == nil {
		return p, false, err
	}
	p.Context = c
	why := "you were resumed"
	if c.Wake.Reason == string(MissionReconnected) {
		why = "the host was restarted and has you back"
	}
	p.Text = fmt.Sprintf("%s: the wake %s waits for you. Take up your work where you left it. get_mission_context gives your goal, session and attempt, "+
		"and the token of the wake; to show that you go on, call consume_agent_wake once with it.", upper(why), c.Wake.WakeID)
	return p, true, nil
}

func upper(s string) string { return string(s[0]-'a'+'A') + s[1:] }

// Delivered says whether a prepared wake has reached the agent.
func (k *Keeper) Delivered(ctx context.Context, owner Owner, wakeID string, d Delivery) error {
	digest := owner.Digest()
	err := k.opts.Store.Update(context.WithoutCancel(ctx), owner, func(tx Tx) error {
		w, err := load[wake](tx, TableWakes, digest, wakeID)
		if err != nil {
			return err
		}
		if w == nil {
			return refuse("wake_not_found", FixInput, "there is no such wake")
		}
		if w.delivered(d) {
			tx.Update(rowOf(digest, w))
		}
		return nil
	})
	return k.failed(ofTasks, err)
}
