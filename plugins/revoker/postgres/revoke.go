package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

const (
	acknowledged = pluginv1.RevokeResult_REVOKE_RESULT_ACKNOWLEDGED
	refused      = pluginv1.RevokeResult_REVOKE_RESULT_REFUSED
)

// target is one role to revoke.
type target struct{ role, grant string }

// Revoke takes away the roles of the grants that are named; when none is, all
// roles of the task. Sessions of a role end with it, and so does what it has
// passed on.
func (p *postgres) Revoke(ctx context.Context, req *pluginv1.RevokeRequest) (*pluginv1.RevokeResponse, error) {
	i, err := p.configured()
	if err != nil {
		return nil, err
	}
	if req.GetStopId() == "" || req.GetTask().GetTaskId() == "" {
		return nil, plugin.InvalidArgument("a revocation needs a task and a stop id")
	}
	conn, err := i.connect(ctx, i.Database)
	if err != nil {
		return p.answer(ctx, failures{{"", err}}, nil)
	}
	defer closing(conn, i.settings)
	targets, err := i.targets(ctx, conn, req)
	if err != nil {
		return p.answer(ctx, failures{{"", err}}, nil)
	}
	if req.GetDryRun() {
		return i.rehearse(ctx, conn, targets)
	}
	var failed failures
	var facts []fact
	for _, t := range targets {
		if conn.IsClosed() { // one connection that breaks is not the end of all
			fresh, err := i.connect(ctx, i.Database)
			if err != nil {
				failed = append(failed, failure{t.grant, err})
				continue
			}
			defer closing(fresh, i.settings)
			conn = fresh
		}
		f, err := i.patiently(ctx, func(ctx context.Context) (*fact, error) { return i.cut(ctx, conn, t.role) })
		if err != nil {
			failed = append(failed, failure{t.grant, err})
			continue
		}
		p.log.Info("revoked", "role", t.role, "stop_id", req.GetStopId(), "existed", f.OID != 0, "sessions", len(f.Ended))
		facts = append(facts, *f)
	}
	return p.answer(ctx, failed, facts)
}

// patiently bounds the work on one role: the server bounds its statements
// itself, but not when it hangs or cannot be reached any more.
func (i *instance) patiently(ctx context.Context, work func(context.Context) (*fact, error)) (*fact, error) {
	const statements = 5 // of those that may take their whole time
	ctx, cancel := context.WithTimeout(ctx, statements*i.timeout)
	defer cancel()
	return work(ctx)
}

// targets are the roles that a request means.
func (i *instance) targets(ctx context.Context, conn *pgx.Conn, req *pluginv1.RevokeRequest) (out []target, err error) {
	seen := map[string]bool{}
	for _, g := range req.GetGrants() {
		if role := roleOf(i.hostID, g); !seen[role] {
			seen[role] = true
			out = append(out, target{role, g})
		}
	}
	if len(req.GetGrants()) > 0 {
		return out, nil
	}
	rows, err := conn.Query(ctx, `SELECT r.rolname FROM pg_roles r JOIN pg_shdescription d ON d.objoid = r.oid AND d.classoid = 'pg_authid'::regclass
		WHERE starts_with(d.description, $1) AND starts_with(r.rolname, $2) ORDER BY 1`,
		"airlock grant "+taskLabel(i.hostID, req.GetTask().GetTaskId())+" ", prefix)
	if err != nil {
		return nil, err
	}
	roles, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, r := range roles {
		out = append(out, target{r, r})
	}
	return out, err
}

// rehearse says what would be done.
func (i *instance) rehearse(ctx context.Context, conn *pgx.Conn, targets []target) (*pluginv1.RevokeResponse, error) {
	var roles []string
	for _, t := range targets {
		roles = append(roles, t.role)
	}
	var exist, sessions int
	err := conn.QueryRow(ctx, `SELECT count(DISTINCT r.oid), count(a.pid) FROM pg_roles r LEFT JOIN pg_stat_activity a ON a.usesysid = r.oid
		WHERE r.rolname = ANY($1::text[])`, roles).Scan(&exist, &sessions)
	if err != nil {
		return nil, asStatus(err)
	}
	return &pluginv1.RevokeResponse{Result: acknowledged, Detail: fmt.Sprintf(
		"dry run: of %d grants %d have a role, which would be dropped, and %d sessions, which would be ended; owned objects: %s",
		len(targets), exist, sessions, i.Owned)}, nil
}

// failure is one grant that could not be revoked; without a grant, none could.
type failure struct {
	grant string
	err   error
}

type failures []failure

// answer makes the response. Trying again may help when it may help for one.
func (p *postgres) answer(ctx context.Context, failed failures, facts []fact) (*pluginv1.RevokeResponse, error) {
	evidence, err := json.Marshal(facts)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(evidence)
	if len(failed) == 0 {
		dropped, ended := 0, 0
		for _, f := range facts {
			if f.OID != 0 {
				dropped++
			}
			ended += len(f.Ended)
		}
		return &pluginv1.RevokeResponse{
			Result: acknowledged, EvidenceDigest: digest[:],
			Detail: fmt.Sprintf("%d roles dropped, %d sessions ended, %d grants had no role; evidence %s", dropped, ended, len(facts)-dropped, cutText(string(evidence))),
		}, nil
	}
	var said []string
	again := false
	for _, f := range failed {
		if errors.Is(f.err, context.Canceled) && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		again = again || retryable(f.err)
		text := words(f.err)
		if f.grant != "" {
			text = "grant " + f.grant + ": " + text
		}
		p.log.Warn("not revoked", "grant", f.grant, "why", words(f.err), "retryable", retryable(f.err))
		said = append(said, text)
	}
	return &pluginv1.RevokeResponse{
		Result: refused, Retryable: again, EvidenceDigest: digest[:],
		Detail: fmt.Sprintf("%d grants failed, %d are revoked: %s", len(failed), len(facts), cutText(strings.Join(said, "; "))),
	}, nil
}

// cutText keeps a detail readable.
func cutText(s string) string {
	const most = 2000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
