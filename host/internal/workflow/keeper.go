package workflow

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"
)

// Leases are how long what was given holds. Only the host sets them.
type Leases struct {
	Attempt    time.Duration // of a claimed attempt; 0: 60 s
	ActiveTurn time.Duration // of an attempt whose agent proved that it works; 0: 30 min
	WakeClaim  time.Duration // of a wake while it is handed over; 0: 30 s
}

func (l Leases) filled() Leases {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&l.Attempt, time.Minute)
	or(&l.ActiveTurn, 30*time.Minute)
	or(&l.WakeClaim, 30*time.Second)
	return l
}

// GovernedCalls are an owner's governed tool calls whose end is not known.
type GovernedCalls struct {
	Running    []GovernedCall
	Unresolved []GovernedCall // left open by a crash
}

// GovernedCall is one of them.
type GovernedCall struct{ InvocationID, Tool string }

// Options of a Keeper.
type Options struct {
	Store Store
	// Key is what proofs are derived from; at least 32 bytes that only the host
	// knows and that stay the same.
	Key    []byte
	Now    func() time.Time // nil: time.Now
	Rand   io.Reader        // nil: crypto/rand
	Leases Leases
	// Governed gives an owner's open governed calls; nil: there are none.
	Governed func(context.Context, Owner) (GovernedCalls, error)
	// Alive says why nothing of the owner may change any more; nil: it always may.
	Alive func(Owner) error
}

// Keeper is the Service over a Store. Make it with New.
type Keeper struct {
	opts Options

	mu   sync.Mutex
	open map[string]*Call // composite calls that run, by id
}

var _ Service = (*Keeper)(nil)

// New makes a Keeper.
func New(o Options) *Keeper {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	o.Leases = o.Leases.filled()
	return &Keeper{opts: o, open: map[string]*Call{}}
}

func (k *Keeper) now() int64 { return k.opts.Now().UnixMilli() }

// domain is the part of the store that a method works on: it names the error
// when the store fails.
type domain string

const (
	ofGoals    domain = "goal_store_unavailable"
	ofTasks    domain = "communication_store_unavailable"
	ofSessions domain = "session_store_unavailable"
	ofCalls    domain = "invocation_store_unavailable"
	// ofCompletion is ofSessions where an uncertain commit has a name of its own.
	ofCompletion domain = "completion_persistence_uncertain"
)

func refuse(kind string, r Recovery, message string) *Error {
	return &Error{Kind: kind, Message: message, Recovery: r}
}

// failed makes every error an *Error.
func (k *Keeper) failed(d domain, err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	unsure := k.opts.Store.Uncertain(err)
	kind, recovery := string(d), RetrySame
	message := "the store cannot be used now; nothing was changed"
	if unsure {
		recovery, message = Reconcile, "the store failed during the commit; whether it is durable is not known"
	} else if d == ofCompletion {
		kind = string(ofSessions)
	}
	var bad errCorrupt
	if errors.As(err, &bad) {
		recovery, message = UserAction, "a stored row cannot be read; it was left as it is"
	}
	return &Error{Kind: kind, Message: message, Recovery: recovery, Unknown: unsure, cause: err}
}

// phased is a result that can be recorded as a phase of a composite call.
type phased interface{ phase() PhaseOutcome }

// mutate runs one command in a transaction of its own.
func mutate[T phased](ctx context.Context, k *Keeper, by Caller, d domain, work func(Tx) (T, error)) (T, error) {
	return run(ctx, k, by, d, func(do func(Tx) error) error {
		return k.opts.Store.Update(ctx, by.Owner, do)
	}, work)
}

// run runs one command by way of commit.
func run[T phased](ctx context.Context, k *Keeper, by Caller, d domain, commit func(func(Tx) error) error, work func(Tx) (T, error)) (T, error) {
	var out, none T
	if k.opts.Alive != nil {
		if err := k.opts.Alive(by.Owner); err != nil {
			return none, k.phaseFailed(ctx, by, refuse("mission_not_running", NoAction, "the mission is stopped or has ended; nothing of it changes any more"))
		}
	}
	var next invocation
	err := commit(func(tx Tx) error {
		var err error
		if out, err = work(tx); err != nil {
			return err
		}
		if by.Call != nil {
			next = by.Call.with(by.Phase, out.phase(), k.now())
			by.Call.put(tx, next)
		}
		return nil
	})
	if err != nil {
		return none, k.phaseFailed(ctx, by, k.failed(d, err))
	}
	if by.Call != nil {
		by.Call.written(next)
	}
	return out, nil
}

// phaseFailed records what became of a phase that was refused; that the record
// is made is not sure, and the caller's error is the answer in any case.
func (k *Keeper) phaseFailed(ctx context.Context, by Caller, err error) error {
	var e *Error
	if by.Call == nil || !errors.As(err, &e) {
		return err
	}
	o := PhaseOutcome{State: Failed, StateChanged: e.StateChanged(), Revision: e.Revision, ErrorKind: e.Kind}
	if e.Unknown {
		o.State = Unknown
	}
	_ = k.Note(ctx, by.Call, by.Phase, o)
	return err
}

func view[T any](ctx context.Context, k *Keeper, d domain, read func(Reader) (T, error)) (T, error) {
	var out, none T
	err := k.opts.Store.View(ctx, func(r Reader) (err error) {
		out, err = read(r)
		return err
	})
	if err != nil {
		return none, k.failed(d, err)
	}
	return out, nil
}

// replayed looks an idempotency key up. It gives the row of an exact repetition,
// nil for a key that was not used, and conflict for another request under it.
func replayed(r Reader, owner [32]byte, operation, key string, request [32]byte, conflict string) (*KeyRow, error) {
	row, err := r.Key(owner, operation, keyHash(operation, key))
	if err != nil || row == nil {
		return nil, err
	}
	if row.RequestHash != request {
		return nil, refuse(conflict, FixInput, "this key was used for another request; use a new key for a new request")
	}
	return row, nil
}

// used records an idempotency key.
func (k *Keeper) used(tx Tx, owner [32]byte, operation, key string, request [32]byte, resource string, revision int64) {
	tx.InsertKey(KeyRow{Owner: owner, Operation: operation, KeyHash: keyHash(operation, key), RequestHash: request,
		ResourceID: resource, Revision: revision, CreatedAt: k.now()})
}
