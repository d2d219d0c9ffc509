package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"modernc.org/sqlite"
)

// Page caches, in KiB.
const (
	writerCache = 4096
	readerCache = 512
)

// useFdatasync makes SQLite sync with fdatasync, as it does in every Linux
// distribution; the pure Go build has fsync, which waits for timestamps too.
// The switch is one for the process and is always set to the same value.
func useFdatasync() { _, _ = sqlite.Fdatasync(true) }

// dsn is the connection string. Checkpoints are the writer's own.
func dsn(path string, cacheKiB int) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?_busy_timeout=5000&_pragma=foreign_keys(0)&_pragma=journal_mode(wal)&_pragma=synchronous(full)" +
		"&_pragma=wal_autocheckpoint(0)&_pragma=journal_size_limit(67108864)&_pragma=temp_store(memory)" +
		"&_pragma=cache_size(-" + strconv.Itoa(cacheKiB) + ")"
}

// conn is a connection below database/sql: the writer's statements are bound
// without its locks and allocations. One goroutine at a time.
type conn struct {
	dc    driver.Conn
	stmts []driver.Stmt
}

func openConn(path string, cacheKiB int) (*conn, error) {
	name := dsn(path, cacheKiB)
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		// A file that can give space back while it is in use is one from its very
		// first page, so this comes before everything else.
		name = strings.Replace(name, "?", "?_pragma=auto_vacuum(incremental)&", 1)
	}
	dc, err := (&sqlite.Driver{}).Open(name)
	if err != nil {
		return nil, err
	}
	return &conn{dc: dc}, nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	c.stmts = nil
	if c.dc != nil {
		errs = append(errs, c.dc.Close())
		c.dc = nil
	}
	return errors.Join(errs...)
}

// exec runs a statement, or a script, that is not worth preparing.
func (c *conn) exec(query string) error {
	ex, ok := c.dc.(driver.ExecerContext)
	if !ok {
		return errors.New("the SQLite driver has no ExecContext")
	}
	_, err := ex.ExecContext(context.Background(), query, nil)
	return err
}

// ints runs a query and gives its first row as integers.
func (c *conn) ints(query string, args ...driver.Value) ([]int64, error) {
	st, err := c.prepareOnce(query, len(args))
	if err != nil {
		return nil, err
	}
	defer st.s.Close()
	var out []int64
	_, err = st.row(func(vals []driver.Value) {
		for _, v := range vals {
			n, _ := v.(int64)
			out = append(out, n)
		}
	}, args...)
	return out, err
}

// stmt is a prepared statement with room for its arguments.
type stmt struct {
	s    driver.Stmt
	exe  driver.StmtExecContext
	qry  driver.StmtQueryContext
	args []driver.NamedValue
	vals []driver.Value
}

// prepare makes a statement that lives as long as the connection.
func (c *conn) prepare(query string, nargs int) (*stmt, error) {
	st, err := c.prepareOnce(query, nargs)
	if err == nil {
		c.stmts = append(c.stmts, st.s)
	}
	return st, err
}

func (c *conn) prepareOnce(query string, nargs int) (*stmt, error) {
	s, err := c.dc.Prepare(query)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", query, err)
	}
	out := &stmt{s: s, args: make([]driver.NamedValue, nargs)}
	for i := range out.args {
		out.args[i].Ordinal = i + 1
	}
	var ok1, ok2 bool
	out.exe, ok1 = s.(driver.StmtExecContext)
	out.qry, ok2 = s.(driver.StmtQueryContext)
	if !ok1 || !ok2 {
		return nil, errors.Join(errors.New("the SQLite driver's statements take no context"), s.Close())
	}
	return out, nil
}

// exec runs the statement with the given arguments, or with those that were
// set before.
func (s *stmt) exec(vals ...driver.Value) error {
	_, err := s.result(vals)
	return err
}

// changed runs the statement and gives how many rows it changed.
func (s *stmt) changed(vals ...driver.Value) (int64, error) {
	res, err := s.result(vals)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (s *stmt) result(vals []driver.Value) (driver.Result, error) {
	for i, v := range vals {
		s.args[i].Value = v
	}
	res, err := s.exe.ExecContext(context.Background(), s.args)
	for i := range s.args {
		s.args[i].Value = nil // hold on to nothing of the callers'
	}
	return res, err
}

// row runs a query and hands over its first row, if there is one.
func (s *stmt) row(use func([]driver.Value), vals ...driver.Value) (found bool, err error) {
	err = s.query(vals, func(v []driver.Value) bool {
		found = true
		if use != nil {
			use(v)
		}
		return false
	})
	return found, err
}

// each runs a query and hands over all its rows.
func (s *stmt) each(use func([]driver.Value)) error {
	return s.query(nil, func(v []driver.Value) bool { use(v); return true })
}

func (s *stmt) query(vals []driver.Value, more func([]driver.Value) bool) (err error) {
	for i, v := range vals {
		s.args[i].Value = v
	}
	rows, err := s.qry.QueryContext(context.Background(), s.args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if n := len(rows.Columns()); len(s.vals) != n {
		s.vals = make([]driver.Value, n)
	}
	for {
		switch err := rows.Next(s.vals); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case !more(s.vals):
			return nil
		}
	}
}

// createFile makes an empty file of mode 0600 if there is none.
func createFile(path string) (fresh bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		info, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		if info.Mode().Perm()&0o077 != 0 {
			return false, os.Chmod(path, 0o600)
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(f.Close(), syncDir(filepath.Dir(path)))
}

// privateDir makes a directory that only its owner can enter.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
