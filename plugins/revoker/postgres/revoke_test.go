package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// rig is the plugin in the test's own process.
type rig struct {
	*testing.T
	s    *server
	p    *postgres
	task *pluginv1.TaskRef
}

var ids int // tests do not run in parallel

func newRig(t *testing.T, change map[string]any) *rig {
	t.Helper()
	r := &rig{T: t, s: needServer(t), p: newPostgres()}
	ids++
	r.task = &pluginv1.TaskRef{TaskId: fmt.Sprintf("task-%d", ids), HostId: host}
	err := r.p.Configure(t.Context(), &pluginv1.ConfigureRequest{ConfigJson: r.s.block(t, change), StateDir: t.TempDir(), HostId: host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.p.Shutdown(context.Background()) })
	return r
}

func (r *rig) grant(request string) *pluginv1.Grant {
	r.Helper()
	ids++
	g, err := r.p.Grant(r.Context(), &pluginv1.GrantRequest{Task: r.task, GrantId: fmt.Sprintf("grant-%d", ids), RequestJson: []byte(request)})
	if err != nil {
		r.Fatal(err)
	}
	return g.GetGrant()
}

func (r *rig) open(g *pluginv1.Grant) *pgx.Conn {
	r.Helper()
	conn, err := r.s.connect(r.Context(), g.GetEnv()["PGDATABASE"], g.GetEnv()["PGUSER"], g.GetEnv()["PGPASSWORD"])
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func (r *rig) exec(conn *pgx.Conn, sql string) {
	r.Helper()
	if _, err := conn.Exec(r.Context(), sql); err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
}

func (r *rig) revoke(grants ...string) *pluginv1.RevokeResponse {
	r.Helper()
	got, err := r.p.Revoke(r.Context(), &pluginv1.RevokeRequest{Task: r.task, StopId: "stop", Grants: grants})
	if err != nil {
		r.Fatal(err)
	}
	return got
}

func (r *rig) cut(grants ...string) {
	r.Helper()
	if got := r.revoke(grants...); got.GetResult() != acknowledged {
		r.Fatalf("revoke is %v: %s", got.GetResult(), got.GetDetail())
	}
}

// gone wants a grant to have neither role nor login.
func (r *rig) gone(g *pluginv1.Grant) {
	r.Helper()
	if in, err := r.s.login(r.Context(), g); in || err != nil {
		r.Errorf("the login works: %t %v", in, err)
	}
	if ask[bool](r.T, r.s, "postgres", "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", g.GetEnv()["PGUSER"]) {
		r.Error("the role is still there")
	}
}

func (r *rig) owner(database, table string) string {
	r.Helper()
	return ask[string](r.T, r.s, database, "SELECT coalesce((SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass($1)), '')", table)
}

func TestSessionsOfTheRoleEnd(t *testing.T) {
	r := newRig(t, nil)
	g := r.grant("{}")
	busy, idle := r.open(g), r.open(g)
	done := make(chan error, 1)
	go func() { _, err := busy.Exec(context.Background(), "SELECT pg_sleep(600)"); done <- err }()
	other := r.open(r.grant("{}")) // of the same task, not named
	r.cut(g.GetGrantId())
	if err := <-done; err == nil {
		t.Error("the query went on")
	}
	if err := idle.Ping(t.Context()); err == nil {
		t.Error("the idle session lives")
	}
	if err := other.Ping(t.Context()); err != nil {
		t.Errorf("the session of another grant: %v", err)
	}
	r.gone(g)
}

func TestWithoutNamesTheWholeTaskIsRevoked(t *testing.T) {
	r := newRig(t, nil)
	mine := []*pluginv1.Grant{r.grant("{}"), r.grant("{}")}
	task := r.task
	r.task = &pluginv1.TaskRef{TaskId: task.GetTaskId() + "0", HostId: host}
	others := r.grant("{}")
	r.task = task
	r.cut()
	for _, g := range mine {
		r.gone(g)
	}
	if in, err := r.s.login(t.Context(), others); !in || err != nil {
		t.Errorf("the grant of another task: %t %v", in, err)
	}
}

// TestOwnedObjects: what becomes of a table, of one in another database, and
// of a function that would run with its new owner's rights.
func TestOwnedObjects(t *testing.T) {
	for owned, change := range map[string]map[string]any{
		"keep": {"owned": "keep"}, "reassign": {"owned": "reassign", "reassign_to": "heir"}, "drop": {"owned": "drop"},
	} {
		t.Run(owned, func(t *testing.T) {
			r := newRig(t, change)
			g := r.grant("{}")
			role := g.GetEnv()["PGUSER"]
			conn := r.open(g)
			table := "app.t_" + role
			r.exec(conn, "CREATE TABLE "+table+" (id int)")
			r.exec(conn, `CREATE FUNCTION app."f '' `+role+`"() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT current_user::text'`)
			if err := r.s.do(t.Context(), "other", "CREATE TABLE "+role+" (); ALTER TABLE "+role+" OWNER TO "+role); err != nil {
				t.Fatal(err)
			}
			r.cut(g.GetGrantId())
			r.gone(g)
			want := map[string]string{"keep": keeperOf(role), "reassign": "heir"}[owned]
			if got := r.owner("work", table); got != want {
				t.Errorf("the table belongs to %q, want %q", got, want)
			}
			if got := r.owner("other", "public."+role); got != want {
				t.Errorf("the table of the other database belongs to %q, want %q", got, want)
			}
			definers := ask[int](t, r.s, "work", "SELECT count(*) FROM pg_proc WHERE prosecdef AND proname LIKE '%' || $1", role)
			if definers != 0 {
				t.Error("a function runs with the rights of its new owner")
			}
			if owned == "keep" && ask[bool](t, r.s, "work", "SELECT rolcanlogin FROM pg_roles WHERE rolname = $1", want) {
				t.Error("the keeper can log in")
			}
		})
	}
}

// TestWhatTheRoleHasPassedOnIsCut: a role can make others members of itself,
// and give rights on what it owns.
func TestWhatTheRoleHasPassedOnIsCut(t *testing.T) {
	r := newRig(t, nil)
	from, to := r.grant("{}"), r.grant("{}")
	a, b := r.open(from), r.open(to)
	fromRole, toRole := from.GetEnv()["PGUSER"], to.GetEnv()["PGUSER"]
	r.exec(a, "CREATE TABLE app.passed_"+toRole+" (id int)")
	r.exec(a, "GRANT SELECT ON app.passed_"+toRole+" TO "+toRole)
	if err := r.s.do(t.Context(), "work", "GRANT "+fromRole+" TO "+toRole+" WITH ADMIN OPTION"); err != nil {
		t.Fatal(err)
	}
	r.exec(b, "SET ROLE "+fromRole)
	r.exec(b, "RESET ROLE")
	r.cut(from.GetGrantId())
	r.gone(from)
	if _, err := b.Exec(t.Context(), "SET ROLE "+fromRole); err == nil {
		t.Error("another role can still take the revoked one")
	}
	r.cut(to.GetGrantId())
	r.gone(to)
}

func TestGrantGivesWhatIsConfiguredAndNoMore(t *testing.T) {
	r := newRig(t, map[string]any{"connection_limit": 2, "client_host": "db.internal", "client_port": 6432})
	g := r.grant(`{"ttl": "1h", "read_only": true}`)
	if env := g.GetEnv(); env["PGHOST"] != "db.internal" || env["PGPORT"] != "6432" || env["PGDATABASE"] != "work" {
		t.Errorf("the environment is %v", env["PGHOST"]+" "+env["PGPORT"]+" "+env["PGDATABASE"])
	}
	if left := time.Until(g.GetExpiresAt().AsTime()); left > time.Hour || left < 30*time.Minute {
		t.Errorf("it lives for %v", left)
	}
	conn := r.open(g)
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM app.orders").Scan(&n); err != nil || n != 1 {
		t.Errorf("the orders are %d: %v", n, err)
	}
	for _, sql := range []string{"CREATE TABLE app.x ()", "DELETE FROM app.orders", "CREATE ROLE x", "CREATE DATABASE x", "SET SESSION AUTHORIZATION boss"} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s works", sql)
		}
	}
	r.open(g)
	if _, err := r.s.connect(t.Context(), "work", g.GetEnv()["PGUSER"], g.GetEnv()["PGPASSWORD"]); err == nil {
		t.Error("a third session opens where two are allowed")
	}
	for _, bad := range []string{`{"roles": ["boss"]}`, `{"ttl": "1000h"}`, `{"connection_limit": 3}`, `{"superuser": true}`, `[]`, `{`} {
		_, err := r.p.Grant(t.Context(), &pluginv1.GrantRequest{Task: r.task, GrantId: "bad", RequestJson: []byte(bad)})
		if err == nil {
			t.Errorf("the request %s is granted", bad)
		}
	}
	r.cut(g.GetGrantId())
	r.gone(g)
}

// TestServerKilledInTheMiddle: the answer is a failure worth another try, and
// the role can then not log in; the next call finishes.
func TestServerKilledInTheMiddle(t *testing.T) {
	r := newRig(t, map[string]any{"timeout": "30s"})
	g := r.grant("{}")
	role := g.GetEnv()["PGUSER"]
	r.exec(r.open(g), "CREATE TABLE app.mid_"+role+" ()")
	hold, err := r.s.connect(t.Context(), "work", "root", rootPassword)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close(context.Background())
	r.exec(hold, "BEGIN")
	r.exec(hold, "LOCK TABLE app.mid_"+role)
	answered := make(chan *pluginv1.RevokeResponse, 1)
	go func() { answered <- r.revoke(g.GetGrantId()) }()
	waiting := "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'airlock-revoker-postgres' AND wait_event_type = 'Lock')"
	for deadline := time.Now().Add(time.Minute); !ask[bool](t, r.s, "work", waiting); {
		if time.Now().After(deadline) {
			t.Fatal("the revocation does not wait for the lock")
		}
	}
	pids := ask[[]int32](t, r.s, "work", "SELECT array_agg(pid) FROM pg_stat_activity")
	r.s.halt(syscall.SIGKILL)
	got := <-answered
	if got.GetResult() != refused || !got.GetRetryable() || !strings.Contains(got.GetDetail(), g.GetGrantId()) {
		t.Errorf("with the server killed: %v, retryable %t: %s", got.GetResult(), got.GetRetryable(), got.GetDetail())
	}
	for _, pid := range pids { // the next server needs them gone
		for errors.Is(syscall.Kill(int(pid), 0), nil) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if got := r.revoke(g.GetGrantId()); got.GetResult() != refused || !got.GetRetryable() {
		t.Errorf("without a server: %v, retryable %t: %s", got.GetResult(), got.GetRetryable(), got.GetDetail())
	}
	if err := r.s.start(); err != nil {
		t.Fatal(err)
	}
	if in, err := r.s.login(t.Context(), g); in || err != nil {
		t.Errorf("half revoked, it can log in: %t %v", in, err)
	}
	r.cut(g.GetGrantId())
	r.gone(g)
}

// TestLoginsDuringARevocation: nobody gets in while or after it runs.
func TestLoginsDuringARevocation(t *testing.T) {
	r := newRig(t, map[string]any{"connection_limit": 20})
	g := r.grant("{}")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []*pgx.Conn
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := r.s.connect(context.Background(), "work", g.GetEnv()["PGUSER"], g.GetEnv()["PGPASSWORD"])
				if err == nil {
					mu.Lock()
					conns = append(conns, conn)
					full := len(conns) > 12
					mu.Unlock()
					if full {
						return
					}
				}
			}
		})
	}
	r.cut(g.GetGrantId())
	close(stop)
	wg.Wait()
	for _, conn := range conns {
		if err := conn.Ping(t.Context()); err == nil {
			t.Error("a session has outlived the revocation")
		}
		_ = conn.Close(context.Background())
	}
	r.gone(g)
}

func TestAnotherServerIsNoAcknowledgement(t *testing.T) {
	r := newRig(t, nil)
	i := r.p.current.Load()
	role := roleOf(host, "elsewhere")
	if err := i.write(role, record{Server: "1", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if got := r.revoke("elsewhere"); got.GetResult() != refused || got.GetRetryable() {
		t.Errorf("a grant of another server: %v, retryable %t: %s", got.GetResult(), got.GetRetryable(), got.GetDetail())
	}
	v, err := r.p.Verify(t.Context(), &pluginv1.VerifyRequest{Task: r.task, Grants: []string{"elsewhere"}})
	if err != nil || v.GetResult() != cannotTell {
		t.Errorf("verify says %v: %v", v.GetResult(), err)
	}
}

func TestVerifySeesALiveSession(t *testing.T) {
	r := newRig(t, nil)
	g := r.grant("{}")
	r.open(g)
	role := g.GetEnv()["PGUSER"]
	if err := r.s.do(t.Context(), "postgres", "ALTER ROLE "+role+" NOLOGIN"); err != nil {
		t.Fatal(err)
	}
	v, err := r.p.Verify(t.Context(), &pluginv1.VerifyRequest{Task: r.task, Grants: []string{g.GetGrantId()}})
	if err != nil || v.GetResult() != stillAccepted {
		t.Errorf("with a session alive verify says %v: %v", v.GetResult(), err)
	}
	r.cut(g.GetGrantId())
}

// TestNoPasswordReachesTheServersLog: statements carry SCRAM verifiers only.
// The server logs every statement here.
func TestNoPasswordReachesTheServersLog(t *testing.T) {
	r := newRig(t, nil)
	g := r.grant("{}")
	r.cut(g.GetGrantId())
	set := regexp.MustCompile(`ALTER ROLE "airlock_\w+" .*PASSWORD 'SCRAM-SHA-256\$`)
	n := 0
	for end := time.Now().Add(30 * time.Second); n < 2 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		n = len(set.FindAllString(r.s.log.String(), -1)) // the server writes its log when it gets to it
	}
	if n < 2 {
		t.Errorf("the log has %d statements of the plugin: is it looked at?", n)
	}
	if strings.Contains(r.s.log.String(), g.GetEnv()["PGPASSWORD"]) {
		t.Error("the password is in the server's log")
	}
}
