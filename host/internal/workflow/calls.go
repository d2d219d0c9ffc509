package workflow

import (
	"context"
	"errors"
)

// with is the row with a phase's outcome.
func (c *Call) with(p Phase, o PhaseOutcome, now int64) invocation {
	next := c.row
	next.set(p, o)
	next.Updated = max(now, next.Updated)
	return next
}

// put writes the row.
func (c *Call) put(tx Tx, v invocation) {
	if c.stored {
		tx.Update(rowOf(c.owner.Digest(), &v))
		return
	}
	tx.Insert(rowOf(c.owner.Digest(), &v))
}

func (c *Call) written(v invocation) { c.row, c.stored = v, true }

// Open takes a call into memory.
func (k *Keeper) Open(owner Owner, n NewCall) (*Call, error) {
	if n.Nonce != "" {
		if err := checkNonce(n.Nonce); err != nil {
			return nil, err
		}
	}
	id, err := k.newID(k.inMemory(), TableInvocations, prefixInvocation)
	if err != nil {
		return nil, k.failed(ofCalls, err)
	}
	no := false
	pending := func(kind string) *PhaseOutcome {
		if kind == "" {
			return nil
		}
		return &PhaseOutcome{Kind: kind, State: NeverStarted, StateChanged: &no}
	}
	now := k.now()
	c := &Call{ID: id, owner: owner, row: invocation{ID: id, Tool: n.Tool, Nonce: n.Nonce, Effect: n.Effect,
		Main: MainOutcome{State: NeverStarted, StateChanged: &no}, Before: pending(n.BeforeKind), After: pending(n.AfterKind), Created: now, Updated: now}}
	c.first = c.row
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[id] = c
	return c, nil
}

func checkNonce(nonce string) error {
	if n := chars(nonce); n < 1 || n > 128 {
		return refuse("invalid_invocation_nonce", FixInput, "the nonce must have 1 to 128 characters")
	}
	return nil
}

// inMemory is a reader that knows the ids of open calls only. The id of a call
// has 96 random bits, and the store's own row would refuse a second one.
func (k *Keeper) inMemory() Reader { return openIDs{k} }

type openIDs struct{ k *Keeper }

func (o openIDs) Get(_ Table, id string) (*Row, error) {
	o.k.mu.Lock()
	defer o.k.mu.Unlock()
	if o.k.open[id] != nil {
		return &Row{}, nil
	}
	return nil, nil
}
func (openIDs) List(Query) ([]Row, error)                       { return nil, errors.ErrUnsupported }
func (openIDs) Count(Query) (int, error)                        { return 0, errors.ErrUnsupported }
func (openIDs) Key([32]byte, string, [32]byte) (*KeyRow, error) { return nil, errors.ErrUnsupported }

// Close takes the call out of memory.
func (k *Keeper) Close(c *Call) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, c.ID)
}

// record writes the call's next row. A record is carried through whatever
// becomes of the request.
func (k *Keeper) record(ctx context.Context, c *Call, change func(*invocation)) error {
	next := c.row
	change(&next)
	next.Updated = max(k.now(), next.Updated)
	err := k.opts.Store.Update(context.WithoutCancel(ctx), c.owner, func(tx Tx) error {
		c.put(tx, next)
		return nil
	})
	if err == nil {
		c.written(next)
	}
	return k.failed(ofCalls, err)
}

// Refuse records that main will not be dispatched.
func (k *Keeper) Refuse(ctx context.Context, c *Call, before, after *PhaseOutcome) error {
	return k.record(ctx, c, func(v *invocation) {
		if before != nil {
			v.set(Before, *before)
		}
		if after != nil {
			v.set(After, *after)
		}
		v.Settled = true
	})
}

// Intend makes it durable that main is about to be dispatched.
func (k *Keeper) Intend(ctx context.Context, c *Call, callID string) error {
	return k.record(ctx, c, func(v *invocation) {
		v.Intended, v.CallID, v.Main = true, callID, MainOutcome{State: Unknown}
	})
}

// Settle records how main ended.
func (k *Keeper) Settle(ctx context.Context, c *Call, m MainOutcome, skip string) error {
	return k.record(ctx, c, func(v *invocation) {
		v.Settled, v.Main = true, m
		if skip != "" && v.After != nil {
			no := false
			v.set(After, PhaseOutcome{State: NeverStarted, StateChanged: &no, ErrorKind: skip})
		}
	})
}

// Note records what came of a phase.
func (k *Keeper) Note(ctx context.Context, c *Call, p Phase, o PhaseOutcome) error {
	return k.record(ctx, c, func(v *invocation) { v.set(p, o) })
}

// SettleStarted records how a main call that was handed off has ended.
func (k *Keeper) SettleStarted(ctx context.Context, owner Owner, id string, m MainOutcome) error {
	digest := owner.Digest()
	err := k.opts.Store.Update(context.WithoutCancel(ctx), owner, func(tx Tx) error {
		v, err := loadInvocation(tx, digest, id)
		if err != nil || v.Main.State != Started {
			return err // it was settled before: the first word counts
		}
		v.Main, v.Updated = m, max(k.now(), v.Updated)
		tx.Update(rowOf(digest, v))
		return nil
	})
	return k.failed(ofCalls, err)
}

// Resolved takes an operator's word on a governed call that nobody knew the end
// of.
func (k *Keeper) Resolved(tx Tx, owner Owner, callID string, end ExecutionState) error {
	digest := owner.Digest()
	open, err := list[invocation](tx, Query{Table: TableInvocations, By: ByOwner, Owner: digest, Open: true})
	if err != nil {
		return err
	}
	for _, v := range open {
		if v.CallID == callID && v.Settled {
			v.Main, v.Updated = MainOutcome{State: end}, max(k.now(), v.Updated)
			tx.Update(rowOf(digest, v))
		}
	}
	return nil
}

func loadInvocation(r Reader, owner [32]byte, id string) (*invocation, error) {
	if !isID(prefixInvocation, id) {
		return nil, refuse("invalid_invocation_id", FixInput, "invocation_id is not the id of an invocation")
	}
	v, err := load[invocation](r, TableInvocations, owner, id)
	if err == nil && v == nil {
		return nil, noInvocation()
	}
	return v, err
}

func noInvocation() *Error {
	return refuse("invocation_not_found", NoAction, "there is no such invocation: neither its before phase nor its main call has begun")
}

// Outcome answers what came of a call. A call that is not known has changed
// nothing: its row is written before main and together with a before phase.
func (k *Keeper) Outcome(ctx context.Context, by Caller, in GetOutcome) (CallOutcome, error) {
	if (in.InvocationID == nil) == (in.Nonce == nil) {
		return CallOutcome{}, refuse("invalid_invocation_id", FixInput, "give either invocation_id or nonce")
	}
	live := k.inFlight(by.Owner, in) // before the store: whoever ends meanwhile is there
	out, err := view(ctx, k, ofCalls, func(r Reader) (CallOutcome, error) {
		digest := by.Owner.Digest()
		if in.InvocationID != nil {
			v, err := loadInvocation(r, digest, *in.InvocationID)
			if err != nil {
				return CallOutcome{}, err
			}
			return v.outcome(), nil
		}
		if err := checkNonce(*in.Nonce); err != nil {
			return CallOutcome{}, err
		}
		found, err := list[invocation](r, Query{Table: TableInvocations, By: ByRef, Owner: digest, Key: *in.Nonce, Last: true})
		if err != nil || len(found) == 0 {
			return CallOutcome{}, errOr(err, noInvocation())
		}
		out := found[0].outcome()
		out.SameNonce = len(found)
		return out, nil
	})
	if live == nil {
		return out, err
	}
	if KindOf(err) == "invocation_not_found" || err == nil && out.InvocationID != live.InvocationID {
		out, err = *live, nil // nothing of it is stored yet
	}
	out.InProgress = true
	return out, err
}

// inFlight gives the call if it is one that this host is at, as it began.
func (k *Keeper) inFlight(owner Owner, in GetOutcome) *CallOutcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	var newest *Call
	for id, c := range k.open {
		if c.owner != owner || in.InvocationID != nil && id != *in.InvocationID || in.Nonce != nil && c.first.Nonce != *in.Nonce {
			continue
		}
		if newest == nil || c.first.Created > newest.first.Created {
			newest = c
		}
	}
	if newest == nil {
		return nil
	}
	out := newest.first.outcome()
	return &out
}

// Recover is what a start of the host does to the rows that its earlier life
// has left: calls that were cut off are settled as unknown (or never started),
// and wakes that may have been handed over are not sent again.
func (k *Keeper) Recover(tx Tx) error {
	now := k.now()
	for _, state := range []string{callOpen, callIntended, callStarted} { // what was handed off went with the host that had it
		rows, err := tx.List(Query{Table: TableInvocations, By: ByState, Key: state})
		if err != nil {
			return err
		}
		for _, row := range rows {
			v, err := decode[invocation](row)
			if err != nil {
				continue // it is left as it is; a bad row keeps no host from starting
			}
			v.swept(now)
			tx.Update(rowOf(row.Owner, v))
		}
	}
	for _, state := range []wakeState{wakeClaimed, wakePrepared} {
		rows, err := tx.List(Query{Table: TableWakes, By: ByState, Key: string(state)})
		if err != nil {
			return err
		}
		for _, row := range rows {
			if w, err := decode[wake](row); err == nil && w.recovered() {
				tx.Update(rowOf(row.Owner, w))
			}
		}
	}
	return nil
}
