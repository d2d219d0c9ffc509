// Package retention takes missions out of the store that are over for long
// enough: each is written as an evidence bundle, the bundle is read back and
// verified, and only then the mission is removed. It imports journal, evidence,
// the store, the reducer's state and the records of heads; adapters give it what
// it needs of the engine.
//
// The one idea: at every moment a mission is whole in the store or whole in its
// bundle. What is removed is noted first, so that a crash anywhere only repeats
// steps that may be repeated.
package retention

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

// Engine is what retention needs of the engine.
type Engine interface {
	// Holds says that a mission is still in somebody's hands: it runs, or owes
	// revocations, or a stop of it is not through.
	Holds(missionID string) bool
	// Discard removes what lies beside the store: output and files. It may be
	// called again.
	Discard(missionID string, sessions []string) error
}

// Rules say what is archived when.
type Rules struct {
	After   time.Duration // of a mission's end
	MaxSize int64         // of the store in bytes, 0: any
	States  []string      // ends that are archived
	Dir     string        // of the bundles
}

// Options of a Keeper.
type Options struct {
	Store  *store.Store
	Engine Engine
	Rules  Rules
	// Sign signs the head of a chain that was verified.
	Sign func(journal.NewHead) (record.Record, record.Key)
	Log  hclog.Logger
	Now  func() time.Time // nil: time.Now
	// Every is the time between two passes; 0: an hour.
	Every time.Duration
	// Hook is called at the named points of a crash test; nil: none. Its error
	// fails the step there.
	Hook failpoint.Hook
}

// Point names a place where crash tests stop the process, in the table of
// failpoints.
type Point = failpoint.Point

// The points of retention; the table says what has happened at each.
const (
	PointWritten   = failpoint.RetentionWritten
	PointNamed     = failpoint.RetentionNamed
	PointRetired   = failpoint.RetentionRetired
	PointDiscarded = failpoint.RetentionDiscarded
	PointSwept     = failpoint.RetentionSwept
)

// Points lists every point of retention.
func Points() []Point { return failpoint.Of("retention") }

// Keeper archives and removes.
type Keeper struct{ o Options }

// New makes a keeper; nothing runs yet.
func New(o Options) *Keeper {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Every == 0 {
		o.Every = time.Hour
	}
	return &Keeper{o}
}

// Run makes a pass now and then, until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(k.o.Every)
	defer tick.Stop()
	for {
		if n, err := k.Pass(ctx); err != nil && ctx.Err() == nil {
			k.o.Log.Error("missions that are over could not all be archived and removed; it is tried again", "archived", n, "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
