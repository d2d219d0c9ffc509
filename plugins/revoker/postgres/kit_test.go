package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
)

const host = "host-1"

// block is a config block as the host sends it: defaults filled in.
func block(t *testing.T, change map[string]any) []byte {
	t.Helper()
	all := map[string]any{}
	for _, a := range newPostgres().Describe().GetSchema().GetAttributes() {
		var v any
		if a.GetDefaultJson() != "" {
			if err := json.Unmarshal([]byte(a.GetDefaultJson()), &v); err != nil {
				t.Fatalf("default of %s: %v", a.GetName(), err)
			}
		}
		all[a.GetName()] = v
	}
	maps.Copy(all, change)
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *server) block(t *testing.T, change map[string]any) []byte {
	t.Helper()
	all := map[string]any{
		"host": s.dir, "port": testPort, "database": "work", "user": "boss", "password": bossPassword, "sslmode": "disable",
		"roles": []string{"worker"}, "timeout": "2s",
		"privileges": []privilege{{Allow: []string{"usage", "create"}, On: "schema", Name: "app"}},
	}
	maps.Copy(all, change)
	return block(t, all)
}

// login logs in with the environment of a grant.
func (s *server) login(ctx context.Context, g *pluginv1.Grant) (bool, error) {
	conn, err := s.connect(ctx, g.GetEnv()["PGDATABASE"], g.GetEnv()["PGUSER"], g.GetEnv()["PGPASSWORD"])
	var refused *pgconn.PgError
	if errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28") {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, conn.Close(ctx)
}

// issuer is the server in the hands of the kit.
func (s *server) issuer(user, password string) conformance.Issuer {
	return conformance.Issuer{
		Accepts: s.login,
		Away:    func(context.Context) (func() error, error) { s.halt(syscall.SIGQUIT); return s.start, nil },
		Stall: func(context.Context) (func() error, error) {
			return func() error { return s.signalAll(syscall.SIGCONT) }, s.signalAll(syscall.SIGSTOP)
		},
		// The plugin's own login does not work any more: no retry helps.
		Refuse: func(ctx context.Context) (func() error, error) {
			return func() error {
				return s.do(context.WithoutCancel(ctx), "postgres", "ALTER ROLE "+user+" PASSWORD '"+password+"'")
			}, s.do(ctx, "postgres", "ALTER ROLE "+user+" PASSWORD 'another'")
		},
		// Somebody works with a table of the role and does not come to an end.
		Hold: func(ctx context.Context, id string) (func() error, error) {
			table := "app.held_" + digest(id)[:8]
			conn, err := s.connect(ctx, "work", "root", rootPassword)
			if err != nil {
				return nil, err
			}
			_, err = conn.PgConn().Exec(ctx, fmt.Sprintf("CREATE TABLE %[1]s (); ALTER TABLE %[1]s OWNER TO %[2]s; BEGIN; LOCK TABLE %[1]s",
				table, roleOf(host, id))).ReadAll()
			return func() error { return conn.Close(context.WithoutCancel(ctx)) }, err
		},
	}
}

// start starts the plugin as a process of its own.
func start(t *testing.T, config []byte) (*conformance.RevokerProcess, *pluginv1.ConfigureRequest) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	configure := &pluginv1.ConfigureRequest{Instance: "db", ConfigJson: config, StateDir: state, RunDir: dir, HostId: host}
	p, err := conformance.StartRevoker(t.Context(), exe, dir, configure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p, configure
}

// conform runs the kit and wants nothing but the named checks undeclared.
func conform(t *testing.T, p *conformance.RevokerProcess, o conformance.RevokerOptions, undeclared ...string) {
	t.Helper()
	o.Plugin, o.HostID, o.Features = p.Plugin(), host, newPostgres().Describe().GetFeatures()
	o.Restart, o.Logs, o.Timeout = p.Restart, p.Logs, 2*time.Minute
	for _, c := range conformance.Revoker(t.Context(), p.Revoker(), o) {
		want := conformance.Pass
		if slices.Contains(undeclared, c.Name) {
			want = conformance.NotDeclared
		}
		if c.Result != want {
			t.Errorf("%s: %s, not %s: %s", c.Name, c.Result, want, c.Detail)
			continue
		}
		t.Logf("%s: %s %s (%v)", c.Name, c.Result, c.Detail, c.Took)
	}
}

func TestConformanceAsSuperuser(t *testing.T) {
	s := needServer(t)
	const roles = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'airlock\\_%' AND rolname NOT LIKE 'airlock\\_kept%'"
	before := ask[int](t, s, "postgres", roles) // other tests leave some
	p, configure := start(t, s.block(t, nil))
	conform(t, p, conformance.RevokerOptions{
		Configure: configure, Issuer: s.issuer("boss", bossPassword), Secrets: []string{bossPassword},
	}, "verify-catches-a-lie")
	if left := ask[int](t, s, "postgres", roles); left != before {
		t.Errorf("%d roles are left", left-before)
	}
}

func TestConformanceWithCreateRoleOnly(t *testing.T) {
	s := needServer(t)
	p, configure := start(t, s.block(t, map[string]any{"user": "maker", "password": makerPassword}))
	conform(t, p, conformance.RevokerOptions{
		Configure: configure, Secrets: []string{makerPassword}, Issuer: conformance.Issuer{Accepts: s.login},
		// What depends on the rights of the plugin's role.
		Only: []string{"grant-idempotent", "revoke-cuts", "revoke-only-what-is-named", "verify", "revoke-after-restart", "no-secret-in-logs"},
	})
}
