package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// fact is what the server was seen to say of one revoked role.
type fact struct {
	Role   string    `json:"role"`
	Server string    `json:"server"`
	OID    uint32    `json:"oid,omitempty"` // 0: there was no such role
	Ended  []int32   `json:"ended,omitempty"`
	Owned  string    `json:"owned,omitempty"`
	At     time.Time `json:"at"`
}

// cut revokes one role. Every step may fail or be the last before a crash, and
// all of them can be done again. From the second on the role cannot log in.
func (i *instance) cut(ctx context.Context, conn *pgx.Conn, role string) (_ *fact, err error) {
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lockKey(role)); err != nil {
		return nil, fmt.Errorf("wait for another call for the role: %w", err)
	}
	defer func() {
		if _, unlocked := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", lockKey(role)); unlocked != nil {
			closing(conn, i.settings) // the lock goes with the session
		}
	}()
	f := &fact{Role: role}
	if err := conn.QueryRow(ctx, "SELECT system_identifier::text, now() FROM pg_control_system()").Scan(&f.Server, &f.At); err != nil {
		return nil, err
	}
	rec, err := i.read(role)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		rec = &record{Server: f.Server}
	}
	// 1. No Grant of this id from here on.
	if !rec.Revoked {
		rec.Revoked, rec.At = true, time.Now()
		if err := i.write(role, *rec); err != nil {
			return nil, fmt.Errorf("keep the record: %w", err)
		}
	}
	err = conn.QueryRow(ctx, "SELECT oid FROM pg_roles WHERE rolname = $1", role).Scan(&f.OID)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && rec.Server != f.Server:
		return nil, &permanentError{"the grant was made at another server than the one that is configured now; revoke it there"}
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return nil, err
	default:
		if err := i.undo(ctx, conn, role, f); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	rec.Evidence = string(text)
	return f, i.write(role, *rec)
}

// undo takes a role away that exists.
func (i *instance) undo(ctx context.Context, conn *pgx.Conn, role string, f *fact) error {
	nobody, err := scram(rand.Text())
	if err != nil {
		return err
	}
	// 2. No login: in one statement, so that nothing else can fail with it.
	_, err = conn.Exec(ctx, "ALTER ROLE "+ident(role)+" NOLOGIN CONNECTION LIMIT 0 PASSWORD "+literal(nobody)+" VALID UNTIL '1970-01-01 00:00:00+00'")
	if err != nil {
		return fmt.Errorf("take the login: %w", err)
	}
	// 3. No session.
	if f.Ended, err = i.endSessions(ctx, conn, f.OID); err != nil {
		return fmt.Errorf("the role can log in no more, but: %w", err)
	}
	// 4. Nothing passed on, and nothing owned.
	if err := i.leaveRoles(ctx, conn, role, f.OID); err != nil {
		return fmt.Errorf("the role can log in no more and has no session, but to take its memberships: %w", err)
	}
	if f.Owned, err = i.settle(ctx, conn, role, f.OID); err != nil {
		return fmt.Errorf("the role can log in no more and has no session, but to settle what it owns: %w", err)
	}
	// 5. No role.
	if _, err := conn.Exec(ctx, "DROP ROLE IF EXISTS "+ident(role)); err != nil {
		return fmt.Errorf("the role can log in no more and has no session, but to drop it: %w", err)
	}
	// 6. Seen, not believed.
	var left int
	err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_roles WHERE oid = $1 OR rolname = $2) +
		(SELECT count(*) FROM pg_stat_activity WHERE usesysid = $1)`, f.OID, role).Scan(&left)
	if err == nil && left > 0 {
		err = errors.New("the role or a session of it is still there")
	}
	return err
}

// Between two looks at the sessions, and how long none must be seen: a login
// that was checked before step 2 shows itself only a moment later.
const (
	look     = 25 * time.Millisecond
	stillFor = 4
)

// endSessions ends every session of a role and waits until none is left.
func (i *instance) endSessions(ctx context.Context, conn *pgx.Conn, oid uint32) (ended []int32, err error) {
	deadline := time.Now().Add(i.timeout)
	seen := map[int32]bool{}
	for quiet := 0; ; {
		rows, err := conn.Query(ctx, "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE usesysid = $1", oid)
		if err != nil {
			return ended, fmt.Errorf("end its sessions: %w", err)
		}
		var pid int32
		var sent bool
		none := true
		_, err = pgx.ForEachRow(rows, []any{&pid, &sent}, func() error {
			none = false
			if !seen[pid] {
				seen[pid] = true
				ended = append(ended, pid)
			}
			return nil
		})
		if err != nil {
			return ended, fmt.Errorf("end its sessions: %w", err)
		}
		if quiet++; !none {
			quiet = 0
		}
		if quiet == stillFor {
			return ended, nil
		}
		if !none && time.Now().After(deadline) {
			return ended, fmt.Errorf("a session (process %d) does not end", pid)
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return ended, ctx.Err()
		}
	}
}

// leaveRoles ends the role's memberships, and those of others in it: a role
// may have passed itself on.
func (i *instance) leaveRoles(ctx context.Context, conn *pgx.Conn, role string, oid uint32) error {
	rows, err := conn.Query(ctx, `SELECT g.rolname, m.rolname FROM pg_auth_members a JOIN pg_roles g ON g.oid = a.roleid JOIN pg_roles m ON m.oid = a.member
		WHERE a.member = $1 OR a.roleid = $1 AND m.rolname <> current_user`, oid)
	if err != nil {
		return err
	}
	var of, member string
	var statements []string
	_, err = pgx.ForEachRow(rows, []any{&of, &member}, func() error {
		statements = append(statements, "REVOKE "+ident(of)+" FROM "+ident(member)+" CASCADE")
		return nil
	})
	if err != nil {
		return err
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
