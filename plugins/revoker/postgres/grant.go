package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Grant makes a role, or finds the one that the same grant has made before.
func (p *postgres) Grant(ctx context.Context, req *pluginv1.GrantRequest) (*pluginv1.GrantResponse, error) {
	i, err := p.configured()
	if err != nil {
		return nil, err
	}
	if req.GetGrantId() == "" || req.GetTask().GetTaskId() == "" {
		return nil, plugin.InvalidArgument("a grant needs a task and an id")
	}
	s, asked, err := i.narrowed(req.GetRequestJson())
	if err != nil {
		return nil, err
	}
	role := roleOf(i.hostID, req.GetGrantId())
	password, err := i.password(role)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*i.timeout)
	defer cancel()
	conn, err := i.connect(ctx, i.Database)
	if err != nil {
		return nil, asStatus(err)
	}
	defer closing(conn, i.settings)
	comment := fmt.Sprintf("airlock grant %s host=%s key=%s", taskLabel(i.hostID, req.GetTask().GetTaskId()), digest(i.hostID)[:16], i.keyID())
	var until time.Time
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		until, err = i.make(ctx, tx, s, role, password, comment, asked.ReadOnly)
		return err
	})
	if err != nil {
		return nil, asStatus(err)
	}
	p.log.Info("granted", "role", role, "task_id", req.GetTask().GetTaskId(), "until", until)
	host, port := i.Host, i.Port
	if i.ClientHost != nil {
		host = *i.ClientHost
	}
	if i.ClientPort != nil {
		port = *i.ClientPort
	}
	return &pluginv1.GrantResponse{Grant: &pluginv1.Grant{
		GrantId: req.GetGrantId(), ExpiresAt: timestamppb.New(until),
		Env: map[string]string{
			"PGHOST": host, "PGPORT": strconv.Itoa(int(port)), "PGDATABASE": i.Database, "PGUSER": role, "PGPASSWORD": password,
		},
	}}, nil
}

// make makes the role under its lock. The lock and the record make a Grant
// that comes after the Revoke find out, in whichever process it runs.
func (i *instance) make(ctx context.Context, tx pgx.Tx, s *settings, role, password, comment string, readOnly bool) (time.Time, error) {
	var server string
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey(role)); err != nil {
		return time.Time{}, err
	}
	if err := tx.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&server); err != nil {
		return time.Time{}, err
	}
	rec, err := i.read(role)
	if err != nil {
		return time.Time{}, err
	}
	if rec != nil && rec.Revoked {
		return time.Time{}, plugin.FailedPrecondition("the grant was revoked")
	}
	var until *time.Time
	err = tx.QueryRow(ctx, `SELECT CASE WHEN isfinite(rolvaliduntil) THEN rolvaliduntil END FROM pg_roles WHERE rolname = $1`, role).Scan(&until)
	exists := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, err
	}
	// The record is on disk before the role exists: a whole revocation can be
	// told from one at the wrong server.
	if err := i.write(role, record{Server: server, At: time.Now()}); err != nil {
		return time.Time{}, fmt.Errorf("keep the record: %w", err)
	}
	if until == nil { // a grant that comes again does not live longer
		t := time.Now().Add(s.ttl).UTC().Truncate(time.Second)
		until = &t
	}
	verifier, err := scram(password)
	if err != nil {
		return time.Time{}, err
	}
	var statements []string
	if !exists {
		statements = append(statements, "CREATE ROLE "+ident(role)+" NOLOGIN", "COMMENT ON ROLE "+ident(role)+" IS "+literal(comment))
	}
	statements = append(statements, fmt.Sprintf(
		"ALTER ROLE %s LOGIN INHERIT NOCREATEDB NOCREATEROLE CONNECTION LIMIT %d PASSWORD %s VALID UNTIL %s",
		ident(role), s.ConnectionLimit, literal(verifier), literal(until.Format(time.RFC3339))))
	if readOnly {
		statements = append(statements, "ALTER ROLE "+ident(role)+" SET default_transaction_read_only = on")
	}
	for _, r := range s.Roles {
		statements = append(statements, "GRANT "+ident(r)+" TO "+ident(role))
	}
	for _, g := range s.Privileges {
		grant, err := g.statement(role)
		if err != nil {
			return time.Time{}, plugin.InvalidArgument("privileges: %v", err)
		}
		statements = append(statements, grant)
	}
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return time.Time{}, err
		}
	}
	return *until, nil
}

// asStatus gives an error its gRPC code.
func asStatus(err error) error {
	_, made := status.FromError(err)
	switch {
	case made, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case retryable(err):
		return plugin.Unavailable("%s", words(err))
	}
	return plugin.FailedPrecondition("%s", words(err))
}
