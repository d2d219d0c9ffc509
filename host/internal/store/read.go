package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// pageMax is how many rows are read at once. No snapshot is held after a page.
const pageMax = 100

func page(limit int) int { return min(max(limit, 1), pageMax) }

// queryAll reads all rows of a query into memory.
func queryAll[T any](ctx context.Context, s *Store, query string, args []any, scan func(*sql.Rows) (T, error)) ([]T, error) {
	stmt, err := s.prepared(ctx, query)
	if err != nil {
		return nil, s.readError(err)
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, s.readError(err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, s.readError(rows.Err())
}

// prepared gives a statement that is prepared once a connection. The queries
// are constants, and the few forms of a mission filter.
func (s *Store) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt, ok := s.stmts.Load(query); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := s.readers.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if first, raced := s.stmts.LoadOrStore(query, stmt); raced {
		return first.(*sql.Stmt), stmt.Close()
	}
	return stmt, nil
}

// readError translates what a closed pool says, and says what to do about a
// damaged file.
func (s *Store) readError(err error) error {
	if err != nil && s.w.isClosed() {
		return ErrClosed
	}
	return s.damaged(err)
}

const missionColumns = "SELECT no, task_id, origin, agent, state, terminal, created_at, updated_at, data, journal_uuid, head_seq, head_digest FROM tasks "

type numbered struct {
	no  int64
	row MissionRow
}

func scanMission(rows *sql.Rows) (n numbered, err error) {
	var created, updated int64
	var digest []byte
	m := &n.row
	err = rows.Scan(&n.no, &m.MissionID, &m.Origin, &m.Agent, &m.State, &m.Terminal, &created, &updated, &m.Data, &m.Head.JournalUUID, &m.Head.Sequence, &digest)
	m.CreatedAt, m.UpdatedAt = fromNanos(created), fromNanos(updated)
	m.Head.TaskID = m.MissionID
	m.Head = fullHead(m.Head, digest)
	return n, err
}

// fullHead puts the digest in; a chain without events has the genesis digest.
func fullHead(h journal.Head, digest []byte) journal.Head {
	if h.Sequence == 0 && h.JournalUUID != "" {
		return journal.Genesis(h.TaskID, h.JournalUUID)
	}
	copy(h.Digest[:], digest)
	return h
}

// Mission reads one mission; ErrNotFound when there is none.
func (s *Store) Mission(ctx context.Context, id string) (MissionRow, error) {
	rows, err := queryAll(ctx, s, missionColumns+"WHERE task_id = ? AND data IS NOT NULL", []any{id}, scanMission)
	if err != nil {
		return MissionRow{}, err
	}
	if len(rows) == 0 {
		return MissionRow{}, fmt.Errorf("%w: mission %q", ErrNotFound, id)
	}
	return rows[0].row, nil
}

// Missions reads a page, newest first; next is the cursor for the page after
// it, empty at the end. Its cost does not grow with the missions stored: each
// filter walks an index.
func (s *Store) Missions(ctx context.Context, f MissionFilter) (out []MissionRow, next string, err error) {
	limit := page(f.Limit)
	before := int64(1<<63 - 1)
	if f.After != "" {
		if before, err = strconv.ParseInt(f.After, 10, 64); err != nil {
			return nil, "", fmt.Errorf("%w: the cursor %q is not one of this store", ErrInvalid, f.After)
		}
	}
	cond, args := "data IS NOT NULL AND no < ?", []any{before}
	if f.Agent != "" {
		cond, args = cond+" AND agent = ?", append(args, f.Agent)
	}
	if f.Live {
		cond += " AND terminal = 0"
	}
	query := missionColumns + "WHERE " + cond + " ORDER BY no DESC LIMIT ?"
	args = append(args, limit+1)
	if len(f.States) > 0 { // one walk down the index for each state, then merged
		walk := "SELECT no FROM (SELECT no FROM tasks WHERE state = ? AND " + cond + " ORDER BY no DESC LIMIT ?)"
		var walks []string
		var all []any
		for _, state := range f.States {
			walks = append(walks, walk)
			all = append(append(all, state), args...)
		}
		query = missionColumns + "WHERE no IN (" + strings.Join(walks, " UNION ALL ") + ") ORDER BY no DESC LIMIT ?"
		args = append(all, limit+1)
	}
	rows, err := queryAll(ctx, s, query, args, scanMission)
	if err != nil {
		return nil, "", err
	}
	for i, r := range rows {
		if i == limit {
			next = strconv.FormatInt(rows[i-1].no, 10)
			break
		}
		out = append(out, r.row)
	}
	return out, next, nil
}

// LiveMissions reads every mission that is not terminal, oldest first.
func (s *Store) LiveMissions(ctx context.Context) ([]MissionRow, error) {
	var out []MissionRow
	for after := int64(0); ; {
		rows, err := queryAll(ctx, s, missionColumns+"WHERE terminal = 0 AND data IS NOT NULL AND no > ? ORDER BY no LIMIT ?", []any{after, pageMax}, scanMission)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			out = append(out, r.row)
			after = r.no
		}
		if len(rows) < pageMax {
			return out, nil
		}
	}
}

// Cells reads every cell row.
func (s *Store) Cells(ctx context.Context) ([]CellRow, error) {
	return queryAll(ctx, s, "SELECT cell_id, incarnation, instance, mission_id, generation, state, data FROM cells ORDER BY cell_id", nil, func(rows *sql.Rows) (c CellRow, err error) {
		var incarnation, generation int64
		err = rows.Scan(&c.CellID, &incarnation, &c.Instance, &c.MissionID, &generation, &c.State, &c.Data)
		c.Incarnation, c.Generation = uint64(incarnation), uint64(generation)
		return c, err
	})
}

// RuntimeState reads a runtime checkpoint; ErrNotFound when there is none.
func (s *Store) RuntimeState(ctx context.Context, missionID string) (RuntimeState, error) {
	rs := RuntimeState{MissionID: missionID}
	var generation, offset int64
	err := s.readers.QueryRowContext(ctx, `SELECT r.generation, r."offset", r.state FROM runtime_state r JOIN tasks t ON t.no = r.task_no WHERE t.task_id = ?`, missionID).
		Scan(&generation, &offset, &rs.State)
	if errors.Is(err, sql.ErrNoRows) {
		return RuntimeState{}, fmt.Errorf("%w: runtime state of mission %q", ErrNotFound, missionID)
	}
	rs.Generation, rs.Offset = uint64(generation), uint64(offset)
	return rs, s.readError(err)
}

// Head reads a task's head; ErrNotFound when there is none.
func (s *Store) Head(ctx context.Context, taskID string) (journal.Head, error) {
	_, head, err := s.taskRow(ctx, taskID)
	return head, err
}

// taskRow finds a task's number and its projected head.
func (s *Store) taskRow(ctx context.Context, taskID string) (int64, journal.Head, error) {
	var no int64
	var digest []byte
	head := journal.Head{TaskID: taskID}
	err := s.readers.QueryRowContext(ctx, "SELECT no, journal_uuid, head_seq, head_digest FROM tasks WHERE task_id = ?", taskID).
		Scan(&no, &head.JournalUUID, &head.Sequence, &digest)
	if errors.Is(err, sql.ErrNoRows) || (err == nil && head.JournalUUID == "") {
		return 0, journal.Head{}, fmt.Errorf("%w: task %q", ErrNotFound, taskID)
	}
	return no, fullHead(head, digest), s.readError(err)
}
