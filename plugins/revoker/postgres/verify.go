package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Findings, from good to bad.
const (
	refusedByIssuer = pluginv1.VerifyResult_VERIFY_RESULT_REFUSED_BY_ISSUER
	cannotTell      = pluginv1.VerifyResult_VERIFY_RESULT_CANNOT_TELL
	stillAccepted   = pluginv1.VerifyResult_VERIFY_RESULT_STILL_ACCEPTED
)

// Verify tries to log in with every grant's own password, which the instance
// can derive again, and asks the catalog for the role and its sessions. The
// worst finding counts.
func (p *postgres) Verify(ctx context.Context, req *pluginv1.VerifyRequest) (*pluginv1.VerifyResponse, error) {
	i, err := p.configured()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*i.timeout)
	defer cancel()
	conn, err := i.connect(ctx, i.Database)
	if err != nil {
		return &pluginv1.VerifyResponse{Result: cannotTell, Detail: words(err)}, nil
	}
	defer closing(conn, i.settings)
	worst := &pluginv1.VerifyResponse{Result: refusedByIssuer, Detail: "no grant has a role that can log in, or a session"}
	for _, g := range req.GetGrants() {
		got, why := i.verify(ctx, conn, roleOf(i.hostID, g))
		if got == stillAccepted || got == cannotTell && worst.Result == refusedByIssuer {
			worst = &pluginv1.VerifyResponse{Result: got, Detail: fmt.Sprintf("grant %s: %s", g, why)}
		}
	}
	return worst, nil
}

func (i *instance) verify(ctx context.Context, conn *pgx.Conn, role string) (pluginv1.VerifyResult, string) {
	var login bool
	var sessions int
	err := conn.QueryRow(ctx, `SELECT rolcanlogin, (SELECT count(*) FROM pg_stat_activity WHERE usesysid = r.oid)
		FROM pg_roles r WHERE rolname = $1`, role).Scan(&login, &sessions)
	gone := errors.Is(err, pgx.ErrNoRows)
	switch {
	case err != nil && !gone:
		return cannotTell, words(err)
	case sessions > 0:
		return stillAccepted, fmt.Sprintf("its role has %d sessions", sessions)
	}
	in, why := i.tryLogin(ctx, role)
	switch {
	case in:
		return stillAccepted, "its password opens a session"
	case why != nil && sqlState(why) == "":
		return cannotTell, words(why)
	case !gone && login && sqlState(why) == "28P01":
		return refusedByIssuer, "its role can log in, but not with its password, or not any more"
	case !gone && login:
		return cannotTell, "its role can log in; the login failed for another reason: " + words(why)
	}
	rec, err := i.read(role)
	if err != nil {
		return cannotTell, err.Error()
	}
	var server string
	if err := conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&server); err != nil {
		return cannotTell, words(err)
	}
	if gone && rec != nil && rec.Server != server {
		return cannotTell, "the grant was made at another server than the one that is configured now"
	}
	return refusedByIssuer, ""
}

// tryLogin logs in as a mission would.
func (i *instance) tryLogin(ctx context.Context, role string) (in bool, why error) {
	password, err := i.password(role)
	if err != nil {
		return false, err
	}
	conn, err := i.dial(ctx, i.Database, role, password)
	if err != nil {
		return false, err
	}
	closing(conn, i.settings)
	return true, nil
}
