package store

// Point names a place at which crash tests stop the process or make the
// operation fail.
type Point string

// The points, in the order in which a batch passes them.
const (
	PointBlobWritten      Point = "store.blob_written"      // a payload file is synced, not yet named
	PointBlobNamed        Point = "store.blob_named"        // it has its name
	PointQueued           Point = "store.queued"            // the writer has taken the batch
	PointBegun            Point = "store.begun"             // the transaction is open
	PointApplied          Point = "store.applied"           // everything is written, nothing is committed
	PointCommitted        Point = "store.committed"         // durable, nobody knows
	PointPublished        Point = "store.published"         // heads and followers were told, callers were not
	PointAnswered         Point = "store.answered"          // callers were told
	PointBeforeCheckpoint Point = "store.before_checkpoint" // the log is about to be copied into the file
	PointAfterCheckpoint  Point = "store.after_checkpoint"
)

// Points lists every point, so that a crash test can go through all of them.
func Points() []Point {
	return []Point{
		PointBlobWritten, PointBlobNamed, PointQueued, PointBegun, PointApplied, PointCommitted,
		PointPublished, PointAnswered, PointBeforeCheckpoint, PointAfterCheckpoint,
	}
}

// Hook is called at every point. An error makes the operation there fail with
// it, as if the disk had. It may be called by several goroutines.
type Hook func(Point) error

// at calls the hook; one nil check when there is none.
func (s *Store) at(p Point) error {
	if s.opts.Hook == nil {
		return nil
	}
	return s.opts.Hook(p)
}
