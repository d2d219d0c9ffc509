package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/airlock-host/airlock/sdk/plugin"
)

// The roles of the test server. The plugin logs in as boss or as maker, the
// tests themselves as root.
const (
	rootPassword  = "password-of-root"
	bossPassword  = "password-of-boss"  // a superuser
	makerPassword = "password-of-maker" // CREATEROLE and no more
	testPort      = 5432                // of the socket's name; no TCP port is opened
)

// server is one PostgreSQL of the tests' own, behind a unix socket.
type server struct {
	bin, dir string
	uid      *syscall.Credential

	mu  sync.Mutex
	cmd *exec.Cmd
	log lockedLog
}

// shared is the server of all tests, which therefore do not run in parallel.
var shared *server

func TestMain(m *testing.M) {
	if os.Getenv(plugin.MagicCookieKey) != "" {
		main()
		return
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	s, err := newServer()
	if err != nil {
		fmt.Fprintf(os.Stderr, "no PostgreSQL for the tests: %v\n", err)
		if os.Getenv("AIRLOCK_REQUIRE") != "" {
			return 1
		}
	}
	if s != nil {
		defer os.RemoveAll(s.dir)
		defer s.halt(syscall.SIGQUIT)
		shared = s
	}
	return m.Run()
}

// needServer is the shared server, empty of what other tests have made.
func needServer(t *testing.T) *server {
	t.Helper()
	if shared == nil {
		if os.Getenv("AIRLOCK_REQUIRE") != "" {
			t.Fatal("there is no PostgreSQL: run hack/test-deps.sh")
		}
		t.Skip("there is no PostgreSQL: run hack/test-deps.sh")
	}
	return shared
}

func newServer() (*server, error) {
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
		if len(found) == 0 {
			return nil, errors.New("there is no initdb")
		}
		initdb = found[len(found)-1]
	}
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		return nil, err
	}
	s := &server{bin: filepath.Dir(initdb), dir: dir}
	pw := filepath.Join(dir, "pw")
	if err := os.WriteFile(pw, []byte(rootPassword), 0o600); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 { // PostgreSQL does not run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				return nil, err
			}
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.uid = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := errors.Join(os.Chown(dir, uid, gid), os.Chown(pw, uid, gid)); err != nil {
			return nil, err
		}
	}
	init := s.command("initdb", "-D", s.data(), "-U", "root", "-A", "scram-sha-256", "--pwfile", pw, "-N", "--locale=C", "-E", "UTF8")
	if out, err := init.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	if err := s.start(); err != nil {
		s.halt(syscall.SIGQUIT)
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, s.prepare()
}

func (s *server) prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, sql := range []string{
		"CREATE ROLE boss SUPERUSER LOGIN PASSWORD '" + bossPassword + "'",
		"CREATE ROLE maker CREATEROLE LOGIN PASSWORD '" + makerPassword + "'",
		"CREATE ROLE worker NOLOGIN", "CREATE ROLE heir NOLOGIN",
		"CREATE DATABASE work", "CREATE DATABASE other", "GRANT ALL ON DATABASE work TO maker WITH GRANT OPTION",
	} {
		if err := s.do(ctx, "postgres", sql); err != nil {
			return err
		}
	}
	return s.do(ctx, "work", "CREATE SCHEMA app; CREATE TABLE app.orders (id int); INSERT INTO app.orders VALUES (1);"+
		"GRANT USAGE, CREATE ON SCHEMA app TO worker; GRANT SELECT ON app.orders TO worker; GRANT CREATE ON SCHEMA app TO heir;"+
		"GRANT USAGE, CREATE ON SCHEMA app TO maker WITH GRANT OPTION")
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	// A group of its own, so that all of its processes can be stopped at once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.uid, Setpgid: true}
	return cmd
}

// start starts the server and waits until it takes logins.
func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd = s.command("postgres", "-D", s.data(), "-p", strconv.Itoa(testPort), "-k", s.dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "max_connections=40", "-c", "shared_buffers=16MB", "-c", "log_statement=all")
	s.cmd.Stderr = &s.log
	s.cmd.Stdout = &s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := s.connect(context.Background(), "postgres", "root", rootPassword)
		if err == nil {
			return conn.Close(context.Background())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not come up: %w: %s", err, s.log.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// halt ends the server: SIGQUIT takes its processes with it, SIGKILL lets them
// find out.
func (s *server) halt(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// signalAll signals every process of the server. Backends are in groups of
// their own.
func (s *server) signalAll(sig syscall.Signal) error {
	pids := []int{s.cmd.Process.Pid}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pids[0]))
	if err != nil {
		return err
	}
	for _, f := range strings.Fields(string(children)) {
		pid, _ := strconv.Atoi(f)
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

func (s *server) connect(ctx context.Context, database, user, password string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig("host=/ sslmode=disable passfile=/dev/null connect_timeout=30")
	if err != nil {
		return nil, err
	}
	c.Host, c.Port, c.Database, c.User, c.Password = s.dir, testPort, database, user, password
	return pgx.ConnectConfig(ctx, c)
}

// do runs statements as root.
func (s *server) do(ctx context.Context, database, sql string) error {
	conn, err := s.connect(ctx, database, "root", rootPassword)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// ask runs a query of one value as root.
func ask[T any](t *testing.T, s *server, database, sql string, args ...any) (v T) {
	t.Helper()
	conn, err := s.connect(t.Context(), database, "root", rootPassword)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// lockedLog is a server's log, which is read while it is written.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
