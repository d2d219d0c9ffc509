package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Table is where rows of one kind are.
type Table string

// The tables.
const (
	TableGoals       Table = "goals"
	TableAgents      Table = "agents"
	TableEndpoints   Table = "endpoints"   // parent: the agent
	TableTasks       Table = "tasks"       //
	TableAttempts    Table = "attempts"    // parent: the task
	TableWakes       Table = "wakes"       // parent: the agent
	TableSessions    Table = "sessions"    //
	TableMessages    Table = "messages"    // parent: the session; ref: the message it answers
	TableInvocations Table = "invocations" // ref: the caller's nonce
	TableRuns        Table = "runs"        // one for each owner that is a mission
)

// Tables lists every table.
func Tables() []Table {
	return []Table{TableGoals, TableAgents, TableEndpoints, TableTasks, TableAttempts, TableWakes,
		TableSessions, TableMessages, TableInvocations, TableRuns}
}

// Row is one stored entity. What is searched by is in fields of its own, all
// that is known of it in Data.
type Row struct {
	Table  Table
	ID     string
	Owner  [32]byte
	Parent string
	Ref    string
	// State is empty when nothing waits for the entity any more, where a table is
	// searched for what is open.
	State string
	Data  []byte // a JSON object
}

// KeyRow says that an idempotency key was used.
type KeyRow struct {
	Owner       [32]byte
	Operation   string
	KeyHash     [32]byte
	RequestHash [32]byte
	ResourceID  string
	Revision    int64 // of the goal that the request made; 0: none
	CreatedAt   int64
}

// By is what rows are searched by.
type By string

// What rows are searched by.
const (
	ByOwner  By = "owner" // Key is Query.Owner
	ByParent By = "parent"
	ByRef    By = "ref" // of the owner
	ByState  By = "state"
)

// Query selects rows, in the order in which they were made.
type Query struct {
	Table Table
	By    By
	Owner [32]byte // with ByOwner and ByRef
	Key   string   // with the others
	Open  bool     // only rows with a state
	Last  bool     // the newest first
	Limit int      // 0: all
}

// Reader reads rows.
type Reader interface {
	// Get reads a row by its id, whoever's it is; nil when there is none.
	Get(t Table, id string) (*Row, error)
	List(q Query) ([]Row, error)
	Count(q Query) (int, error)
	// Key reads an idempotency row; nil when there is none.
	Key(owner [32]byte, operation string, key [32]byte) (*KeyRow, error)
}

// Tx reads rows and writes them. What was put is written when the work that
// puts it has ended well; it is not read before.
type Tx interface {
	Reader
	// Insert adds a row, Update replaces one.
	Insert(Row)
	Update(Row)
	InsertKey(KeyRow)
}

// Store keeps rows. Work is called inside of one write transaction, with
// nothing else being written meanwhile; it may be called again from the start,
// and must not do anything but use its Tx. An error of work is returned as it is
// and leaves everything as it was.
type Store interface {
	Update(ctx context.Context, owner Owner, work func(Tx) error) error
	// Progress is Update for work that the mission's own record must follow, in
	// the same transaction: what work reports becomes a fact of the mission.
	Progress(ctx context.Context, owner Owner, work func(Tx) (*Progress, error)) error
	// View shows committed rows, at one moment.
	View(ctx context.Context, f func(Reader) error) error
	// Uncertain says of an error of the store whether the transaction may have
	// become durable all the same.
	Uncertain(err error) bool
}

// errCorrupt is a stored row that cannot be read: fail closed.
type errCorrupt struct {
	table Table
	err   error
}

// Unreadable says that an error is of stored rows that cannot be read or that
// contradict each other, and not of the store.
func Unreadable(err error) bool {
	return errors.As(err, new(errCorrupt)) || errors.As(err, new(*Error))
}

func (e errCorrupt) Error() string { return fmt.Sprintf("stored row of %s: %v", e.table, e.err) }
func (e errCorrupt) Unwrap() error { return e.err }

// load reads an entity of the owner; nil when there is none, or when it is
// somebody else's.
func load[T any](r Reader, t Table, owner [32]byte, id string) (*T, error) {
	row, err := r.Get(t, id)
	if err != nil || row == nil || row.Owner != owner {
		return nil, err
	}
	return decode[T](*row)
}

func decode[T any](row Row) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(row.Data, v); err != nil {
		return nil, errCorrupt{row.Table, err}
	}
	return v, nil
}

// list reads entities.
func list[T any](r Reader, q Query) ([]*T, error) {
	rows, err := r.List(q)
	if err != nil {
		return nil, err
	}
	out := make([]*T, 0, len(rows))
	for _, row := range rows {
		v, err := decode[T](row)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// entity knows its row, but for the owner.
type entity interface{ row() Row }

func rowOf(owner [32]byte, e entity) Row {
	r := e.row()
	r.Owner = owner
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // entities are strings, numbers and flags
	}
	r.Data = data
	return r
}
