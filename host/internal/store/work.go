package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/airlock-host/airlock/host/internal/workflow"
)

// workTx is the workflow.Tx of a batch's Work: it reads by the writer's
// connection, so it sees every batch before it in the same transaction, and
// keeps what is to be written until the batch cannot be refused any more.
type workTx struct {
	workRows
	writes []workWrite
}

// workWrite is a statement that changes one row.
type workWrite struct {
	query string
	vals  []driver.Value
}

// work runs a batch's Work and gives what is to be written.
func (w *writer) work(b *Batch) ([]workWrite, error) {
	tx := &workTx{workRows: workRows{query: w.workQuery}}
	err := b.Work(tx, b)
	return tx.writes, err
}

func (w *writer) writeWork(writes []workWrite) error {
	for _, x := range writes {
		st, err := w.workStmt(x.query, len(x.vals))
		if err != nil {
			return err
		}
		switch n, err := st.changed(x.vals...); {
		case err != nil:
			return err
		case n != 1:
			return fmt.Errorf("%w: %s", errHalfWritten, x.query)
		}
	}
	return nil
}

func (t *workTx) then(query string, vals ...driver.Value) {
	t.writes = append(t.writes, workWrite{query, vals})
}

// Insert implements workflow.Tx.
func (t *workTx) Insert(r workflow.Row) {
	t.then("INSERT INTO "+workTable(r.Table)+" (id, owner, parent, ref, state, data) VALUES (?, ?, ?, ?, ?, ?)",
		r.ID, r.Owner[:], orNull(r.Parent), orNull(r.Ref), r.State, string(r.Data))
}

// Update implements workflow.Tx.
func (t *workTx) Update(r workflow.Row) {
	t.then("UPDATE "+workTable(r.Table)+" SET state = ?, data = ? WHERE id = ? AND owner = ?", r.State, string(r.Data), r.ID, r.Owner[:])
}

// InsertKey implements workflow.Tx.
func (t *workTx) InsertKey(k workflow.KeyRow) {
	t.then("INSERT INTO wf_keys (owner, operation, key_hash, request_hash, resource_id, revision, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
		k.Owner[:], k.Operation, k.KeyHash[:], k.RequestHash[:], k.ResourceID, k.Revision, k.CreatedAt)
}

func orNull(s string) driver.Value {
	if s == "" {
		return nil
	}
	return s
}

func workTable(t workflow.Table) string { return "wf_" + string(t) }

// workStmt prepares a statement of the workflow once; there are a few dozen.
func (w *writer) workStmt(query string, nargs int) (*stmt, error) {
	if st := w.works[query]; st != nil {
		return st, nil
	}
	st, err := w.c.prepare(query, nargs)
	if err == nil {
		w.works[query] = st
	}
	return st, err
}

func (w *writer) workQuery(query string, args []any, use func([]driver.Value) error) error {
	st, err := w.workStmt(query, len(args))
	if err != nil {
		return err
	}
	vals := make([]driver.Value, len(args))
	for i, a := range args {
		vals[i] = a
	}
	var bad error
	err = st.query(vals, func(v []driver.Value) bool {
		bad = use(v)
		return bad == nil
	})
	return errors.Join(err, bad)
}

// ViewWork shows the workflow's committed rows, all at one moment. f must be
// short: it holds a snapshot.
func (s *Store) ViewWork(ctx context.Context, f func(workflow.Reader) error) error {
	tx, err := s.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return s.readError(err)
	}
	var fresh []string // met for the first time
	defer func() {
		_ = tx.Rollback() // it has changed nothing
		for _, query := range fresh {
			_, _ = s.prepared(ctx, query)
		}
	}()
	return f(workRows{query: func(query string, args []any, use func([]driver.Value) error) error {
		var rows *sql.Rows
		var err error
		if st, ok := s.stmts.Load(query); ok {
			rows, err = tx.StmtContext(ctx, st.(*sql.Stmt)).QueryContext(ctx, args...)
		} else {
			// Preparing it takes a connection, and as many callers as there are
			// connections may hold one here: then each would wait for the others.
			rows, err = tx.QueryContext(ctx, query, args...)
			fresh = append(fresh, query)
		}
		if err != nil {
			return s.readError(err)
		}
		defer rows.Close()
		return s.readError(scanWork(rows, use))
	}})
}

// scanWork gives each row's values to use, until it fails.
func scanWork(rows *sql.Rows, use func([]driver.Value) error) error {
	cols, err := rows.Columns()
	if err != nil {
		return err
	}
	scanned, to, vals := make([]any, len(cols)), make([]any, len(cols)), make([]driver.Value, len(cols))
	for i := range to {
		to[i] = &scanned[i]
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return err
		}
		for i, v := range scanned {
			vals[i] = v
		}
		if err := use(vals); err != nil {
			return err
		}
	}
	return rows.Err()
}

// workRows is a workflow.Reader over anything that can be queried.
type workRows struct {
	query func(query string, args []any, use func([]driver.Value) error) error
}

const workColumns = "SELECT id, owner, parent, ref, state, data FROM "

func workRow(t workflow.Table, v []driver.Value) workflow.Row {
	r := workflow.Row{Table: t, ID: text(v[0]), Parent: text(v[2]), Ref: text(v[3]), State: text(v[4]), Data: []byte(text(v[5]))}
	owner, _ := v[1].([]byte)
	copy(r.Owner[:], owner)
	return r
}

func text(v driver.Value) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// Get implements workflow.Reader.
func (q workRows) Get(t workflow.Table, id string) (row *workflow.Row, err error) {
	err = q.query(workColumns+workTable(t)+" WHERE id = ?", []any{id}, func(v []driver.Value) error {
		r := workRow(t, v)
		row = &r
		return nil
	})
	return row, err
}

// List implements workflow.Reader.
func (q workRows) List(wanted workflow.Query) (rows []workflow.Row, err error) {
	cond, args := workWhere(wanted)
	query := workColumns + workTable(wanted.Table) + cond + " ORDER BY n"
	if wanted.Last {
		query += " DESC"
	}
	if wanted.Limit > 0 {
		query += " LIMIT ?"
		args = append(args, int64(wanted.Limit))
	}
	err = q.query(query, args, func(v []driver.Value) error {
		rows = append(rows, workRow(wanted.Table, v))
		return nil
	})
	return rows, err
}

// Count implements workflow.Reader.
func (q workRows) Count(wanted workflow.Query) (n int, err error) {
	cond, args := workWhere(wanted)
	err = q.query("SELECT count(*) FROM "+workTable(wanted.Table)+cond, args, func(v []driver.Value) error {
		got, _ := v[0].(int64)
		n = int(got)
		return nil
	})
	return n, err
}

// Key implements workflow.Reader.
func (q workRows) Key(owner [32]byte, operation string, key [32]byte) (row *workflow.KeyRow, err error) {
	err = q.query("SELECT request_hash, resource_id, revision, created_at FROM wf_keys WHERE owner = ? AND operation = ? AND key_hash = ?",
		[]any{owner[:], operation, key[:]}, func(v []driver.Value) error {
			row = &workflow.KeyRow{Owner: owner, Operation: operation, KeyHash: key, ResourceID: text(v[1])}
			request, _ := v[0].([]byte)
			copy(row.RequestHash[:], request)
			row.Revision, _ = v[2].(int64)
			row.CreatedAt, _ = v[3].(int64)
			return nil
		})
	return row, err
}

// workWhere is a query's condition. A state is written out: SQLite uses a
// partial index only for conditions that it can read.
func workWhere(q workflow.Query) (cond string, args []any) {
	switch q.By {
	case workflow.ByOwner:
		cond, args = " WHERE owner = ?", []any{q.Owner[:]}
	case workflow.ByParent:
		cond, args = " WHERE parent = ?", []any{q.Key}
	case workflow.ByRef:
		cond, args = " WHERE ref = ? AND owner = ?", []any{q.Key, q.Owner[:]}
	default:
		cond = " WHERE state = '" + strings.ReplaceAll(q.Key, "'", "''") + "'"
	}
	if q.Open {
		cond += " AND state <> ''"
	}
	return cond, args
}
