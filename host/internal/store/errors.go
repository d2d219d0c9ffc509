package store

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Errors that callers decide on.
var (
	// ErrNotFound: there is no such mission, task or checkpoint.
	ErrNotFound = errors.New("not found in the store")
	// ErrConflict: the batch does not follow the stored head; read it again.
	ErrConflict = errors.New("the batch does not follow the stored head")
	// ErrInvalid: the batch can never be committed.
	ErrInvalid = errors.New("the batch is invalid")
	// ErrFull: no disk space; nothing was changed, and it may work later.
	ErrFull = errors.New("no space left for the store")
	// ErrPoisoned: an I/O error made the store refuse every commit until the
	// host is started again. Whether the batch in hand became durable is not
	// known; reads do not show it.
	ErrPoisoned = errors.New("the store had an I/O error and takes no more commits")
	// ErrUncertain: it is ErrPoisoned, and the batch in hand was at its commit: it
	// may be there after the next start.
	ErrUncertain = errors.New("whether the batch became durable is not known")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("the store is closed")
	// ErrSchema: the file was written by a newer program, or is not ours.
	ErrSchema = errors.New("the store's schema is not one of this program")
	// ErrDamaged: the file is not a sound database.
	ErrDamaged = errors.New("the store is damaged")
)

// ErrLocked says that another host uses the data directory.
type ErrLocked struct {
	Dir string
	PID int // 0: not known
}

// Error implements error.
func (e ErrLocked) Error() string {
	who := "another host"
	if e.PID != 0 {
		who = fmt.Sprintf("another host (pid %d)", e.PID)
	}
	return fmt.Sprintf("%s uses the data directory %s; stop it first, or give this one a data_dir of its own", who, e.Dir)
}

// code gives SQLite's primary result code, 0 if the error is not SQLite's.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// isFull: SQLite could not extend a file, before the commit point.
func isFull(err error) bool {
	return errors.Is(err, ErrFull) || code(err) == sqlite3.SQLITE_FULL
}

// FileError says that pages of the database file are not what SQLite has written:
// zeroed, torn or overwritten. It is an ErrDamaged.
type FileError struct {
	Path string
	Err  error
}

// Error names the file and says what to do.
func (e *FileError) Error() string {
	return fmt.Sprintf("the database file %[1]s is damaged (%[2]v): stop the host, keep %[1]s and %[1]s-wal for later, and put the newest good copy in their place; "+
		"`airlock status` then names the tasks that are newer than it. `airlock journal repair` cuts torn records off a task's journal, and cannot mend the file", e.Path, e.Err)
}

// Is says that it is an ErrDamaged.
func (e *FileError) Is(target error) bool { return target == ErrDamaged }

// Unwrap gives what SQLite says.
func (e *FileError) Unwrap() error { return e.Err }

// damaged marks complaints about the file itself.
func (s *Store) damaged(err error) error {
	var known *FileError
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, ErrDamaged), code(err) == sqlite3.SQLITE_NOTADB, code(err) == sqlite3.SQLITE_CORRUPT:
		return &FileError{s.path(), err}
	}
	return err
}

// isBatchs says that an SQL error is the fault of one batch and not of the
// file or the disk below it.
func isBatchs(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		return true
	}
	return errors.Is(err, errHalfWritten)
}

// errHalfWritten: a batch failed after it had begun to write.
var errHalfWritten = fmt.Errorf("%w: a row that it changes is not there", ErrInvalid)
