package store

import (
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Batch is what one caller commits atomically: events of one task and the
// projections that follow from them. A batch without events is allowed (a
// side-table write).
type Batch struct {
	// Task is the task whose chain the events extend.
	Task string
	// Events extend the chain in order. The store refuses a batch whose first
	// event is not the successor of the stored head (ErrConflict).
	Events []journal.Event
	// JournalUUID names the chain; required when Events starts at sequence 1.
	JournalUUID string
	// Mission replaces the mission's row when it is not nil.
	Mission *MissionRow
	// Outbox adds events for the orchestrator, in order; the store sets ID.
	Outbox []OutboxItem
	// Cells replaces the rows of these cells.
	Cells []CellRow
	// DropCells deletes the rows of these cells.
	DropCells []string
	// RuntimeState replaces the mission's runtime checkpoint.
	RuntimeState *RuntimeState
	// Work reads and changes rows of the workflow inside of the transaction, after
	// the batches before it. It may add to Events, Mission and Outbox of the batch
	// that it is given, for facts that follow from what it finds. It runs in the
	// writer and may run again from the start, with the batch as it was, so it uses
	// nothing but its arguments and memory that it sets anew. Its error refuses the
	// batch as it is.
	Work func(tx workflow.Tx, b *Batch) error
}

// MissionRow is the projection of one mission: the reducer's state as JSON and
// the columns that are searched by.
type MissionRow struct {
	MissionID string
	Origin    string // "orchestrator" | "local"
	Agent     string
	State     string // the wire's words
	Terminal  bool
	CreatedAt time.Time
	UpdatedAt time.Time
	Data      []byte       // JSON of the reducer's state
	Head      journal.Head // filled by the store on reads
}

// OutboxItem is one event for the orchestrator.
type OutboxItem struct {
	ID        int64 // set by the store, grows with the order of commits
	MissionID string
	Sequence  uint64 // of the journal event that it follows from
	Event     string // "mission.started"
	TS        time.Time
	Data      []byte // JSON object; nil = none
	Terminal  bool
}

// CellRow is one cell that the host has made or is about to make.
type CellRow struct {
	CellID      string
	Incarnation uint64
	Instance    string // ref of the isolation instance
	MissionID   string // empty: warm
	Generation  uint64
	State       string // "creating" | "warm" | "bound" | "ending"
	Data        []byte // JSON or protobuf of the engine's choice; holds the link secret
}

// RuntimeState is a runtime plugin's last checkpoint for a mission.
type RuntimeState struct {
	MissionID  string
	Generation uint64
	Offset     uint64
	State      []byte
}

// MissionFilter selects missions for a page.
type MissionFilter struct {
	States []string // empty: all
	Agent  string   // empty: all
	Live   bool     // only missions that are not terminal
	After  string   // cursor of the page before; empty: from the newest
	Limit  int      // 1 to 100
}
