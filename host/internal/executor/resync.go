package executor

import (
	"context"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// resync sends executor.resync as the first frame, waits until serve has read
// it (an open socket is provisional: a close with 4001 may still follow), and
// then restates every owned mission. The outbox is replayed after it.
func (x *Executor) resync(d *delivery) error {
	owned := x.opt.Engine.Owned()
	aborted := x.abortedMeanwhile(d.sock.ctx, owned) // before the first frame changes what it shows
	ids := make([]string, 0, len(owned))
	for _, o := range owned {
		ids = append(ids, o.MissionID)
	}
	if err := d.event("executor.resync", "", resyncData{Owned: ids, ProtocolVersion: specVersion}); err != nil {
		return err
	}
	select {
	case <-d.accepted:
	case <-d.sock.ctx.Done():
		return context.Cause(d.sock.ctx)
	}
	for _, o := range owned {
		if aborted[o.MissionID] {
			x.log.Info("mission was aborted at the orchestrator while the link was down", "mission", o.MissionID)
			x.inbox.abort(inbound{Event: "mission.aborted", MissionID: o.MissionID})
			continue
		}
		if err := x.reconnected(d, o); err != nil {
			return err
		}
		// Whatever serve made of all this is compared once the outbox is replayed.
		d.restate(o.MissionID, time.Now())
	}
	return nil
}

// reconnected tells serve of one owned mission (contract, section 2 row 10;
// rulings 5). Serve has just set it to running, whatever it was.
func (x *Executor) reconnected(d *delivery, o engine.Owned) error {
	pending, err := x.opt.Outbox.OutboxOf(d.sock.ctx, o.MissionID)
	if err != nil {
		return fmt.Errorf("reading the outbox: %w", err)
	}
	if len(pending) > 0 && pending[0].Event == "mission.assigned" {
		return nil // serve has never heard of it: there is nothing to reconnect
	}
	if holds(pending, "mission.reconnected") {
		return nil // the host's own restart is in the outbox, with the state after it
	}
	if o.Away {
		return nil // it is looked for; the outbox will say what is found
	}
	if o.State != mission.StateAssigned && o.State != mission.StateSuspended {
		if err := d.event("mission.reconnected", o.MissionID, reconnectedData{CheckpointID: o.CheckpointID}); err != nil {
			return err
		}
	}
	if o.State == mission.StateRunning {
		return d.event("mission.resumed", o.MissionID, resumedData{State: "running", ResumedFrom: "suspended"})
	}
	if o.True.Event == "" || terminalEvent(o.True.Event) {
		return nil
	}
	return d.wire(o.MissionID, o.True, nil)
}

func holds(items []store.OutboxItem, event string) bool {
	for _, it := range items {
		if it.Event == event {
			return true
		}
	}
	return false
}
