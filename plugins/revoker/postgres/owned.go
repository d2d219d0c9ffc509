package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// settle deals with what a role owns, and drops every privilege that it has or
// has given, in each database where there is something of it. It says what was
// done with the objects.
func (i *instance) settle(ctx context.Context, conn *pgx.Conn, role string, oid uint32) (string, error) {
	// DROP and REASSIGN OWNED want the rights of the role, which a mere
	// CREATEROLE gets by becoming a member. A superuser has them.
	_, err := conn.Exec(ctx, `DO $$ BEGIN IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
		EXECUTE format('GRANT %I TO %I', '`+role+`', current_user); END IF; END $$`)
	if err != nil {
		return "", fmt.Errorf("get the rights of the role: %w", err)
	}
	rows, err := conn.Query(ctx, `SELECT d.datname, count(*) FILTER (WHERE s.deptype = 'o') FROM pg_shdepend s JOIN pg_database d ON d.oid = s.dbid
		WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = $1 GROUP BY 1 ORDER BY 1`, oid)
	if err != nil {
		return "", err
	}
	var database string
	var objects int
	databases := []string{i.Database} // also for privileges on shared objects
	owns := map[string]int{}
	_, err = pgx.ForEachRow(rows, []any{&database, &objects}, func() error {
		if database != i.Database {
			databases = append(databases, database)
		}
		owns[database] = objects
		return nil
	})
	if err != nil {
		return "", err
	}
	var said []string
	for _, database := range databases {
		in := conn
		if database != i.Database {
			if in, err = i.connect(ctx, database); err != nil {
				return "", fmt.Errorf("in the database %s: %w", database, err)
			}
		}
		err := pgx.BeginFunc(ctx, in, func(tx pgx.Tx) error { return i.settleHere(ctx, tx, role, oid, owns[database] > 0) })
		if in != conn {
			closing(in, i.settings)
		}
		if err != nil {
			return "", fmt.Errorf("in the database %s: %w", database, err)
		}
		if n := owns[database]; n > 0 {
			said = append(said, fmt.Sprintf("%s: %d objects of %s", i.Owned, n, database))
		}
	}
	return strings.Join(said, ", "), nil
}

// keeperOf is the role that objects go to with owned = "keep": nobody can log
// in as it, nobody is a member of it, and it may do nothing.
func keeperOf(role string) string { return prefix + "kept_" + strings.TrimPrefix(role, prefix)[:40] }

func (i *instance) settleHere(ctx context.Context, tx pgx.Tx, role string, oid uint32, owns bool) error {
	var statements []string
	if owns && i.Owned != ownedDrop {
		to := keeperOf(role)
		if i.Owned == ownedReassign {
			to = *i.ReassignTo
		} else {
			var exists bool
			if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", to).Scan(&exists); err != nil {
				return err
			}
			if !exists {
				statements = append(statements, "CREATE ROLE "+ident(to)+" NOLOGIN",
					"COMMENT ON ROLE "+ident(to)+" IS 'airlock: owner of what a revoked mission has left'")
			}
		}
		// A function that runs with its owner's rights would run with those of
		// the new owner.
		rows, err := tx.Query(ctx, "SELECT oid::regprocedure::text FROM pg_proc WHERE proowner = $1 AND prosecdef", oid)
		if err != nil {
			return err
		}
		functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, f := range functions { // quoted by regprocedure
			statements = append(statements, "ALTER ROUTINE "+f+" SECURITY INVOKER")
		}
		statements = append(statements, "REASSIGN OWNED BY "+ident(role)+" TO "+ident(to))
	}
	statements = append(statements, "DROP OWNED BY "+ident(role)) // privileges, and what is still owned
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
