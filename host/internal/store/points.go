package store

import "github.com/airlock-host/airlock/host/internal/failpoint"

// Point and Hook are those of the table of failpoints.
type (
	Point = failpoint.Point
	Hook  = failpoint.Hook
)

// The store's points; the table says what has happened at each.
const (
	PointBlobWritten      = failpoint.StoreBlobWritten
	PointBlobNamed        = failpoint.StoreBlobNamed
	PointQueued           = failpoint.StoreQueued
	PointBegun            = failpoint.StoreBegun
	PointApplied          = failpoint.StoreApplied
	PointCommitted        = failpoint.StoreCommitted
	PointPublished        = failpoint.StorePublished
	PointAnswered         = failpoint.StoreAnswered
	PointBeforeCheckpoint = failpoint.StoreBeforeCheckpoint
	PointAfterCheckpoint  = failpoint.StoreAfterCheckpoint
)

// Points lists every point of the store.
func Points() []Point { return failpoint.Of("store") }

func (s *Store) at(p Point) error { return s.opts.Hook.At(p) }
