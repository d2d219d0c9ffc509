// Package failpoint names every place at which a test may stop the host or make
// an operation fail, in one table. It imports journal for the kinds of events and
// nothing else of ours; who has a point imports it.
//
// The one idea: a point costs a nil check when nobody uses it, and since there is
// one table, a test can walk all of it.
package failpoint

import (
	"slices"
	"strings"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// Point names a place: OWNER.WHAT, where the owner is the package.
type Point string

// Hook is called at points. An error makes the operation there fail with it, as
// if the disk had; where there is nothing to fail it is ignored. It may be called
// by several goroutines. nil: nobody uses the points.
type Hook func(Point) error

// At calls the hook, if there is one.
func (h Hook) At(p Point) error {
	if h == nil {
		return nil
	}
	return h(p)
}

// The points of the store, in the order in which a batch passes them.
const (
	StoreBlobWritten      Point = "store.blob_written"      // a payload file is synced, not yet named
	StoreBlobNamed        Point = "store.blob_named"        // it has its name
	StoreQueued           Point = "store.queued"            // the writer has taken the batch
	StoreBegun            Point = "store.begun"             // the transaction is open
	StoreApplied          Point = "store.applied"           // everything is written, nothing is committed
	StoreCommitted        Point = "store.committed"         // durable, nobody knows
	StorePublished        Point = "store.published"         // heads and followers were told, callers were not
	StoreAnswered         Point = "store.answered"          // callers were told
	StoreBeforeCheckpoint Point = "store.before_checkpoint" // the log is about to be copied into the file
	StoreAfterCheckpoint  Point = "store.after_checkpoint"  // it was copied
)

// The points of the file of heads.
const (
	HeadsBeforeAppend  Point = "heads.before_append"  // heads are signed, nothing is written
	HeadsBeforeSync    Point = "heads.before_sync"    // they are written
	HeadsAfterSync     Point = "heads.after_sync"     // they are durable
	HeadsBeforeCompact Point = "heads.before_compact" // the file is about to be made smaller
	HeadsAfterArchive  Point = "heads.after_archive"  // heads of ended tasks are in the file beside it
	HeadsAfterCompact  Point = "heads.after_compact"  // the smaller file has the name
)

// The points of retention, in the order in which a mission passes them.
const (
	RetentionWritten   Point = "retention.written"   // the bundle is synced under another name
	RetentionNamed     Point = "retention.named"     // it was verified and has its name
	RetentionRetired   Point = "retention.retired"   // the mission is gone from the list, its events are not
	RetentionDiscarded Point = "retention.discarded" // output and files are removed
	RetentionSwept     Point = "retention.swept"     // events are removed
)

// Before is the point of the engine at which a fact of this kind was decided and
// its effect may have happened already, but nothing of it is stored.
func Before(kind journal.Kind) Point { return Point("engine.before_" + string(kind)) }

// After is the point at which it is durable and nobody has acted on it.
func After(kind journal.Kind) Point { return Point("engine.after_" + string(kind)) }

// Table lists every point there is, by owner and in order.
func Table() []Point {
	all := []Point{
		StoreBlobWritten, StoreBlobNamed, StoreQueued, StoreBegun, StoreApplied, StoreCommitted,
		StorePublished, StoreAnswered, StoreBeforeCheckpoint, StoreAfterCheckpoint,
		HeadsBeforeAppend, HeadsBeforeSync, HeadsAfterSync, HeadsBeforeCompact, HeadsAfterArchive, HeadsAfterCompact,
		RetentionWritten, RetentionNamed, RetentionRetired, RetentionDiscarded, RetentionSwept,
	}
	for _, kind := range journal.Kinds() {
		all = append(all, Before(kind), After(kind))
	}
	return all
}

// Of lists the points of one owner.
func Of(owner string) []Point {
	return slices.DeleteFunc(Table(), func(p Point) bool { return !strings.HasPrefix(string(p), owner+".") })
}
